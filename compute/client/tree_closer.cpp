#include "compute/client/tree_closer.h"

#include <chrono>
#include <utility>

#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {
namespace {

// Each batch of a worker brings its tree, which most often stays open: no wake-up for each.
constexpr std::chrono::milliseconds kPause(10);

}  // namespace

TreeCloser::~TreeCloser() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

absl::Status TreeCloser::Start() {
  PANDO_ASSIGN_OR_RETURN(thread_, StartQuietThread("pando-closer", [this] { Run(); }));
  return absl::OkStatus();
}

void TreeCloser::Take(std::shared_ptr<TreeImpl> tree) {
  std::lock_guard lock(mutex_);
  trees_.insert(std::move(tree));
  // Where it was there already this reference is not the last one, as long as the mutex is held.
  tree.reset();
  if (std::exchange(sleeping_, false)) changed_.notify_one();
}

void TreeCloser::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    sleeping_ = true;
    changed_.wait(lock, [this] { return stopping_ || !trees_.empty(); });
    sleeping_ = false;
    if (trees_.empty()) return;
    auto closing = std::exchange(trees_, {});
    lock.unlock();
    closing.clear();
    lock.lock();
    changed_.wait_for(lock, kPause, [this] { return stopping_; });
  }
}

}  // namespace pando

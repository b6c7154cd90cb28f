#include "common/fabric/verbs/queue_pair_opener.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {

QueuePairOpener::~QueuePairOpener() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status QueuePairOpener::Start(Request request) {
  std::lock_guard lock(mutex_);
  const Gid& gid = request.remote.gid;
  PANDO_RETURN_IF_ERROR(unreachable_.Check(gid, RealClock().NowNs()));
  if (static_cast<size_t>(idle_) <= queued_ && threads_.size() < kThreadsMax) {
    const absl::Status started = StartThread();
    if (threads_.empty()) return started;  // else it waits for one of those that there are
  }
  auto& queue = reached_.contains(gid) ? known_ : strangers_[request.origin];
  queue.push_back(std::move(request));
  ++queued_;
  changed_.notify_one();
  return absl::OkStatus();
}

absl::Status QueuePairOpener::StartThread() {
  absl::StatusOr<std::thread> thread = StartQuietThread("pando-connect", [this] { Run(); });
  if (!thread.ok()) return Annotate(thread.status(), "the memory server cannot connect it");
  threads_.push_back(*std::move(thread));
  return absl::OkStatus();
}

void QueuePairOpener::Withdraw(PeerId peer) {
  std::lock_guard lock(mutex_);
  const auto withdraw = [&](std::deque<Request>* queue) {
    const size_t withdrawn =
        std::erase_if(*queue, [peer](const Request& waiting) { return waiting.peer == peer; });
    queued_ -= withdrawn;
    for (size_t i = 0; i < withdrawn; ++i) {
      done_.push_back({peer, absl::CancelledError("the connection that asked for it is gone")});
    }
    if (withdrawn > 0) wake_();
  };
  withdraw(&known_);
  for (auto origin = strangers_.begin(); origin != strangers_.end();) {
    withdraw(&origin->second);
    origin = origin->second.empty() ? strangers_.erase(origin) : std::next(origin);
  }
}

std::vector<QueuePairOpener::Result> QueuePairOpener::TakeDone() {
  std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

bool QueuePairOpener::MayBegin(const Request& request) const {
  const auto running = running_.find(request.remote.gid);
  return running == running_.end() || running->second < kThreadsOfAddress;
}

bool QueuePairOpener::TakeNext(Request* request, bool* known) {
  const auto may_begin = [this](const Request& waiting) { return MayBegin(waiting); };
  const auto take = [&](std::deque<Request>* queue) {
    const auto first = std::find_if(queue->begin(), queue->end(), may_begin);
    if (first == queue->end()) return false;
    *request = std::move(*first);
    queue->erase(first);
    --queued_;
    return true;
  };
  *known = take(&known_);
  if (*known) return true;
  if (running_strangers_ >= kThreadsMax - kThreadsForKnown) return false;
  auto origin = strangers_.upper_bound(last_origin_);
  for (size_t looked = strangers_.size(); looked > 0; --looked) {
    if (origin == strangers_.end()) origin = strangers_.begin();
    if (take(&origin->second)) {
      last_origin_ = origin->first;
      if (origin->second.empty()) strangers_.erase(origin);
      return true;
    }
    ++origin;
  }
  return false;
}

void QueuePairOpener::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Request request;
    bool known = false;
    ++idle_;
    changed_.wait(lock, [&] { return stopping_ || TakeNext(&request, &known); });
    --idle_;
    if (stopping_) return;
    const Gid gid = request.remote.gid;
    running_strangers_ += known ? 0 : 1;
    ++running_[gid];
    lock.unlock();
    ServedPairOr pair = open_(request);
    lock.lock();
    running_strangers_ -= known ? 0 : 1;
    if (--running_[gid] == 0) running_.erase(gid);
    // Other errors (no queue pair is left) say nothing about the address.
    const bool unreachable = absl::IsUnavailable(pair.status());
    if (pair.ok() || unreachable) unreachable_.Note(gid, pair.ok(), RealClock().NowNs());
    if (!pair.ok()) {
      if (unreachable) reached_.erase(gid);
    } else if (reached_.size() < kKnownMax || reached_.contains(gid)) {
      reached_.insert(gid);
    } else {
      reached_ = {gid};
    }
    done_.push_back({request.peer, std::move(pair)});
    changed_.notify_one();  // what waited for this address, or for a thread, may begin
    wake_();
  }
}

}  // namespace pando

// Lets trees go for sessions whose thread may not wait: closing one waits for memory servers, and
// for what an owned tree has to write back.
//
// Thread safety: Take() from any thread, inside coroutines, too; the rest is for the owner.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "compute/client/tree_impl.h"

namespace pando {

class TreeCloser {
 public:
  TreeCloser() = default;
  ~TreeCloser();  // once all of them have gone
  TreeCloser(const TreeCloser&) = delete;
  TreeCloser& operator=(const TreeCloser&) = delete;

  // Before all else. ResourceExhausted: the system has no thread for it.
  absl::Status Start();
  // The reference is moved here: were the caller to keep a copy, that might be the last one.
  void Take(std::shared_ptr<TreeImpl> tree);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  absl::flat_hash_set<std::shared_ptr<TreeImpl>> trees_;  // each once
  bool sleeping_ = false;                                 // for as long as there are none
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pando

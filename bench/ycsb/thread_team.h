// Threads that get ready, start together and are waited for. Used by one thread; the steps run on
// the team's threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace pando::bench {

class ThreadTeam {
 public:
  using Step = std::function<absl::Status(int thread)>;

  struct Steps {
    Step prepare;
    Step work;    // after Start(), where `prepare` was well
    Step finish;  // always
  };
  ThreadTeam(int threads, Steps steps);
  // Threads that have not started never will; the destructor waits for the others.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // The first error of a `prepare`, when all are through.
  absl::Status WaitPrepared();
  void Start();
  bool WaitFinished(std::chrono::nanoseconds timeout);
  // The first error of any step. After WaitFinished() only.
  absl::Status status();

 private:
  enum class Signal { kWait, kStart, kAbandon };

  void Run(int thread);
  void Note(absl::Status status, int* count);
  void Give(Signal signal);

  const int size_;
  const Steps steps_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Signal signal_ = Signal::kWait;
  int prepared_ = 0;
  int finished_ = 0;
  absl::Status status_;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace pando::bench

#include "bench/ycsb/thread_team.h"

#include <utility>

namespace pando::bench {

ThreadTeam::ThreadTeam(int threads, Steps steps) : size_(threads), steps_(std::move(steps)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

ThreadTeam::~ThreadTeam() {
  Give(Signal::kAbandon);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::Note(absl::Status status, int* count) {
  std::lock_guard lock(mutex_);
  status_.Update(std::move(status));
  if (count != nullptr) ++*count;
  changed_.notify_all();
}

void ThreadTeam::Give(Signal signal) {
  std::lock_guard lock(mutex_);
  if (signal_ == Signal::kWait) signal_ = signal;
  changed_.notify_all();
}

void ThreadTeam::Run(int thread) {
  const absl::Status prepared = steps_.prepare(thread);
  Note(prepared, &prepared_);
  bool start;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return signal_ != Signal::kWait; });
    start = signal_ == Signal::kStart;
  }
  if (start && prepared.ok()) Note(steps_.work(thread), nullptr);
  Note(steps_.finish(thread), &finished_);
}

absl::Status ThreadTeam::WaitPrepared() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return prepared_ == size_; });
  return status_;
}

void ThreadTeam::Start() { Give(Signal::kStart); }

bool ThreadTeam::WaitFinished(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return finished_ == size_; });
}

absl::Status ThreadTeam::status() {
  std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace pando::bench

// Endpoints for the tests of this room: chains and calls finish when the test says so.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/fabric/fabric.h"

namespace pando {

// Thread-driven, real time. kImmediate: chains are done when Post() returns. kDelayed: done
// `delay_ns` later, found by Poll(). kManual: done after the test's Finish...() and a Poll().
class FakeEndpoint : public Endpoint {
 public:
  enum class Mode { kImmediate, kDelayed, kManual };

  explicit FakeEndpoint(Mode mode, int64_t delay_ns = 0) : mode_(mode), delay_ns_(delay_ns) {}

  size_t Poll() override {
    ++polls_;
    std::vector<Chain*> due;
    const int64_t now = clock().NowNs();
    while (!posted_.empty() && posted_.front().second <= now) {
      due.push_back(posted_.front().first);
      posted_.pop_front();
    }
    for (Chain* chain : due) chain->Complete(chain_status_, now);
    size_t calls = 0;
    for (size_t i = 0; i < calls_.size();) {
      PendingCall* call = calls_[i];
      if (replies_.contains(call->request)) {
        call->reply = replies_[call->request];
      } else if (call->deadline_ns <= now) {
        call->status = absl::DeadlineExceededError("no reply");
      } else {
        ++i;
        continue;
      }
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
      call->done = true;
      call->on_done(call, call->context);
      ++calls;
    }
    return due.size() + calls;
  }
  size_t in_flight() const override { return posted_.size() + calls_.size(); }
  absl::StatusOr<LocalBuffer> AllocateBuffer(size_t) override {
    return absl::UnimplementedError("the fake has no memory");
  }
  void Wait(int64_t until_ns) override {
    ++waits_;
    if (!posted_.empty()) until_ns = std::min(until_ns, posted_.front().second);
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return woken_; };
    if (until_ns == kNeverNs) {
      wake_.wait(lock, woken);
    } else {
      const int64_t left_ns = until_ns - clock().NowNs();
      if (left_ns > 0) wake_.wait_for(lock, std::chrono::nanoseconds(left_ns), woken);
    }
    woken_ = false;
  }
  void Wake() override {
    std::lock_guard lock(mutex_);
    ++wakes_;
    woken_ = true;
    wake_.notify_one();
  }
  void WakeAt(int64_t) override {}
  void set_runner(std::function<void()>) override {}
  const Clock& clock() const override { return RealClock(); }
  uint64_t random_seed() override { return 1; }

  // --- For tests. Own thread, except wakes().
  void FinishOldest() { posted_.front().second = 0; }
  void FinishAll() {
    for (auto& [chain, due_ns] : posted_) due_ns = 0;
  }
  void FailChains(absl::Status status) { chain_status_ = std::move(status); }
  void Reply(std::string request, std::string reply) {
    replies_[std::move(request)] = std::move(reply);
  }
  int polls() const { return polls_; }
  int waits() const { return waits_; }
  int wakes() {
    std::lock_guard lock(mutex_);
    return wakes_;
  }

 private:
  void DoPost(Chain* chain) override {
    const int64_t now = clock().NowNs();
    chain->MarkPosted(now);
    if (mode_ == Mode::kImmediate) {
      chain->Complete(chain_status_, now);
    } else {
      posted_.emplace_back(chain, mode_ == Mode::kManual ? kNeverNs : now + delay_ns_);
    }
  }
  void DoCall(PendingCall* call) override { calls_.push_back(call); }

  const Mode mode_;
  const int64_t delay_ns_;
  absl::Status chain_status_;
  std::deque<std::pair<Chain*, int64_t>> posted_;
  std::vector<PendingCall*> calls_;
  std::map<std::string, std::string> replies_;
  int polls_ = 0;
  int waits_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  int wakes_ = 0;
};

// Event-driven, virtual time, one thread: several endpoints share one world. Every completion and
// wake-up is an event, after which the endpoint's runner is called, as the simulator does it.
class FakeWorld : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void At(int64_t ns, std::function<void()> event) {
    events_.emplace(std::pair(std::max(ns, now_ns_), next_++), std::move(event));
  }
  bool RunOne() {
    if (events_.empty()) return false;
    auto node = events_.extract(events_.begin());
    now_ns_ = node.key().first;
    node.mapped()();
    ++ran_;
    return true;
  }
  void RunAll() {
    while (RunOne()) {
    }
  }
  size_t ran() const { return ran_; }

 private:
  int64_t now_ns_ = 1'000;
  uint64_t next_ = 0;
  size_t ran_ = 0;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
};

class FakeEventEndpoint : public Endpoint {
 public:
  FakeEventEndpoint(FakeWorld* world, int64_t delay_ns) : world_(world), delay_ns_(delay_ns) {}

  size_t Poll() override { return 0; }
  size_t in_flight() const override { return in_flight_; }
  absl::StatusOr<LocalBuffer> AllocateBuffer(size_t) override {
    return absl::UnimplementedError("the fake has no memory");
  }
  void Wait(int64_t) override { world_->RunOne(); }
  void Wake() override { WakeAt(world_->NowNs()); }
  void WakeAt(int64_t ns) override {
    world_->At(ns, [this] { Run(); });
  }
  void set_runner(std::function<void()> runner) override { runner_ = std::move(runner); }
  const Clock& clock() const override { return *world_; }
  uint64_t random_seed() override { return 1; }
  // As if another event of this endpoint had happened now.
  void Run() {
    if (runner_) runner_();
  }

 private:
  void DoPost(Chain* chain) override {
    chain->MarkPosted(world_->NowNs());
    ++in_flight_;
    world_->At(world_->NowNs() + delay_ns_, [this, chain] {
      --in_flight_;
      chain->Complete(absl::OkStatus(), world_->NowNs());
      Run();
    });
  }
  void DoCall(PendingCall* call) override {
    world_->At(call->deadline_ns, [this, call] {
      call->status = absl::DeadlineExceededError("no reply");
      call->done = true;
      call->on_done(call, call->context);
      Run();
    });
  }

  FakeWorld* const world_;
  const int64_t delay_ns_;
  std::function<void()> runner_;
  size_t in_flight_ = 0;
};

}  // namespace pando

// Client, service and ports on threads of their own, with links that break at any moment: what the
// simulator cannot show, and ThreadSanitizer can.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/sched/fake_endpoint.h"
#include "compute/peer/peer_client.h"
#include "compute/peer/peer_service.h"

namespace pando {
namespace {

constexpr PeerIdentity kService{1, 7}, kClient{2, 9};

// Runs what it is given, one after the other.
class EventThread {
 public:
  EventThread() : thread_([this] { Run(); }) {}
  ~EventThread() { Stop(); }
  void Post(std::function<void()> event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  // After what has been posted.
  void Stop() {
    if (!thread_.joinable()) return;
    Post([this] { over_ = true; });
    thread_.join();
  }

 private:
  void Run() {
    while (!over_) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !events_.empty(); });
      const std::function<void()> event = std::move(events_.front());
      events_.pop_front();
      lock.unlock();
      event();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> events_;
  bool over_ = false;  // its thread's
  std::thread thread_;
};

// Two ends in one process (peer.h), which take four messages each way.
class Loopback {
 public:
  struct Pair;
  class End final : public PeerLink {
   public:
    PeerSend TrySend(std::string_view message) override;
    void Close() override;
    bool broken() const override;
    PeerIdentity other() const override { return other_identity; }

    std::shared_ptr<Pair> pair;
    int side = 0;
    PeerIdentity other_identity;
    PeerHandler* handler = nullptr;
    EventThread* thread = nullptr;
    bool ended = false;  // its thread's
    int under_way = 0;   // to it; these under the pair's mutex
    bool wants_room = false;
  };
  struct Pair {
    std::mutex mutex;
    bool broken = false;
    std::shared_ptr<End> ends[2];
  };

  // With `closed_by` that side is told that it did it.
  static void Break(const std::shared_ptr<Pair>& pair, int closed_by = -1) {
    std::lock_guard lock(pair->mutex);
    if (std::exchange(pair->broken, true)) return;
    for (const std::shared_ptr<End>& end : pair->ends) {
      end->thread->Post([end, by_itself = end->side == closed_by] {
        end->ended = true;
        end->handler->OnBroken(end.get(), by_itself ? absl::CancelledError("closed")
                                                    : absl::UnavailableError("broken"));
        // The pair and its ends hold each other.
        std::lock_guard inner(end->pair->mutex);
        end->pair->ends[end->side].reset();
      });
    }
  }
};

PeerSend Loopback::End::TrySend(std::string_view message) {
  std::lock_guard lock(pair->mutex);
  if (pair->broken) return PeerSend::kBroken;
  const std::shared_ptr<End> to = pair->ends[1 - side];
  if (to->under_way == 4) {
    wants_room = true;
    return PeerSend::kFull;
  }
  ++to->under_way;
  to->thread->Post([to, from = pair->ends[side], bytes = std::string(message)] {
    if (to->ended) return;
    to->handler->OnMessage(to.get(), bytes);
    std::lock_guard inner(to->pair->mutex);
    --to->under_way;
    if (!std::exchange(from->wants_room, false) || to->pair->broken) return;
    from->thread->Post([from] {
      if (!from->ended) from->handler->OnWritable(from.get());
    });
  });
  return PeerSend::kSent;
}

void Loopback::End::Close() { Break(pair, side); }

bool Loopback::End::broken() const {
  std::lock_guard lock(pair->mutex);
  return pair->broken;
}

// The client's port; the service's is only a thread.
class LoopbackPort final : public PeerPort {
 public:
  LoopbackPort(PeerAcceptor* acceptor, EventThread* service_thread)
      : acceptor_(acceptor), service_thread_(service_thread) {}
  ~LoopbackPort() override {
    BreakAll();
    thread_.Stop();
  }

  const std::string& address() const override { return address_; }
  absl::StatusOr<std::shared_ptr<PeerLink>> Connect(const std::string&,
                                                    PeerHandler* handler) override {
    auto pair = std::make_shared<Loopback::Pair>();
    for (int side : {0, 1}) {
      pair->ends[side] = std::make_shared<Loopback::End>();
      pair->ends[side]->pair = pair;
      pair->ends[side]->side = side;
      pair->ends[side]->thread = side == 0 ? &thread_ : service_thread_;
      pair->ends[side]->other_identity = side == 0 ? kService : kClient;
    }
    const std::shared_ptr<Loopback::End> mine = pair->ends[0], its = pair->ends[1];
    mine->handler = handler;
    std::lock_guard lock(mutex_);
    pairs_.push_back(pair);
    service_thread_->Post([this, mine, its] {
      its->handler = acceptor_->OnAccepted(its);
      thread_.Post([mine] {
        if (!mine->ended) mine->handler->OnWritable(mine.get());
      });
    });
    return mine;
  }
  void BreakAll() {
    std::lock_guard lock(mutex_);
    for (const auto& pair : pairs_) Loopback::Break(pair);
  }

 private:
  const std::string address_;
  PeerAcceptor* const acceptor_;
  EventThread* const service_thread_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Loopback::Pair>> pairs_;
  EventThread thread_;
};

// Counts how often each key is written.
class CountingOwner final : public PeerExecutor {
 public:
  void Execute(OperationContext& context, const PeerRequest& request, PeerAnswer* answer) override {
    Scheduler& scheduler = context.session.scheduler();
    if (context.session.random().Chance(0.2)) {
      scheduler.SleepUntil(scheduler.NowNs() + 50 * kMicrosecondNs);
    }
    std::unique_lock lock(mutex);
    if (request.is_read()) {
      answer->value = "value";
      return;
    }
    ++written[std::string(request.key)];
    if (written.size() != look_at) return;
    lock.unlock();
    look();
  }

  size_t look_at = 0;  // so many keys
  std::function<void()> look;

  std::mutex mutex;
  std::map<std::string, int> written;
};

std::unique_ptr<SessionContext> FakeSession(EpochDomain* epochs, uint64_t seed) {
  return std::make_unique<SessionContext>(
      std::make_unique<FakeEndpoint>(FakeEndpoint::Mode::kImmediate), epochs, 64, seed);
}

// A client and a service, and sessions of the client that write and read.
class PeerThreads : public testing::Test {
 protected:
  static constexpr int kSessions = 3, kCoroutines = 8, kOperations = 100;

  void Start(PeerService::Options options) {
    options.identity = kService;
    std::vector<std::unique_ptr<SessionContext>> lanes;
    for (uint64_t i = 0; i < 2; ++i) lanes.push_back(FakeSession(&epochs_, i + 1));
    service_ = std::make_unique<PeerService>(options, std::move(lanes), &owner_);
    PANDO_CHECK_OK(service_->Start());
    service_thread_ = std::make_unique<EventThread>();
    port_ = std::make_unique<LoopbackPort>(service_.get(), service_thread_.get());
    client_ = std::make_unique<PeerClient>(port_.get(), kClient, &RealClock(), true);
  }
  void Stop() {
    port_.reset();            // the client's end of all links,
    service_thread_->Stop();  // the service's,
    service_.reset();         // and what it was at
  }

  absl::Status Call(SessionContext& session, int64_t timeout_ns, const PeerRequest& request,
                    PeerAnswer* answer) {
    OperationContext context(&session, session.NowNs() + timeout_ns);
    const absl::Status status = client_->Call(context, {kService, "here"}, request, answer);
    return status.ok() ? answer->status : status;
  }
  // Each write has a key of its own; one in ten has `short_ns`.
  void RunSession(int number, int64_t short_ns) {
    const auto session = FakeSession(&epochs_, static_cast<uint64_t>(10 + number));
    for (int c = 0; c < kCoroutines; ++c) {
      session->scheduler().Spawn([&, c] {
        for (int n = 0; n < kOperations; ++n) {
          const std::string key = absl::StrCat(number, "-", c, "-", n);
          PeerAnswer answer;
          const absl::Status written =
              Call(*session, n % 10 == 9 ? short_ns : kLongNs,
                   {.operation = PeerRequest::Operation::kWrite, .key = key}, &answer);
          {
            std::lock_guard lock(mutex_);
            outcomes_[key] = written;
          }
          const absl::Status read = Call(*session, kLongNs, {.key = key}, &answer);
          // Unavailable: the link broke before it was open.
          if (read.ok() ? answer.value != "value" : !absl::IsUnavailable(read)) ++reads_failed_;
        }
      });
    }
    session->scheduler().Drain();
  }
  void RunSessions(int64_t short_ns) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kSessions; ++i) {
      threads.emplace_back([this, i, short_ns] { RunSession(i, short_ns); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reads_failed_, 0);
    EXPECT_EQ(outcomes_.size(), size_t{kSessions * kCoroutines * kOperations});
  }
  // Each was done at most once, and what was said of it is true. How many were done.
  int CheckWrites() {
    int done = 0;
    for (const auto& [key, status] : outcomes_) {
      const int times = owner_.written.count(key) == 0 ? 0 : owner_.written[key];
      EXPECT_LE(times, 1) << key;
      if (status.ok()) {
        ++done;
        EXPECT_EQ(times, 1) << key;
      } else if (!IsOutcomeUnknown(status)) {
        EXPECT_EQ(times, 0) << key << ": " << status;
      }
    }
    return done;
  }

  static constexpr int64_t kLongNs = 60 * kSecondNs;
  EpochDomain epochs_;
  CountingOwner owner_;
  std::unique_ptr<PeerService> service_;
  std::unique_ptr<EventThread> service_thread_;
  std::unique_ptr<LoopbackPort> port_;
  std::unique_ptr<PeerClient> client_;
  std::mutex mutex_;
  std::map<std::string, absl::Status> outcomes_;
  std::atomic<int> reads_failed_{0};
};

TEST_F(PeerThreads, WritesAreDoneAtMostOnceWhateverBreaks) {
  Start({});
  std::atomic<bool> over{false};
  std::thread breaker([&] {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      port_->BreakAll();
    }
  });
  RunSessions(100 * kMicrosecondNs);
  over = true;
  breaker.join();
  Stop();
  EXPECT_GT(CheckWrites(), 100);
  EXPECT_GT(client_->counters().links, 1u);
}

TEST_F(PeerThreads, AllSessionsLeaveAnOwnerThatHasEnded) {
  Start({});
  owner_.look_at = 200;
  owner_.look = [&] {
    (void)client_->Overdue(RealClock().NowNs());
    client_->NoteEnded(kService);
  };
  RunSessions(kLongNs);
  Stop();
  const int done = CheckWrites();
  EXPECT_GT(done, 100);
  EXPECT_LT(done, kSessions * kCoroutines * kOperations);
  EXPECT_EQ(client_->counters().links, 1u);
}

// A peer at its limit of requests under way is not taken for one above it, although its next
// request may come before the service has counted the answer.
TEST_F(PeerThreads, WhoKeepsToTheBoundKeepsHisLink) {
  Start({.requests_max_of_link = kSessions * kCoroutines});
  RunSessions(kLongNs);
  Stop();
  for (const auto& [key, status] : outcomes_) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(client_->counters().links, 1u);
  EXPECT_EQ(owner_.written.size(), outcomes_.size());
}

// Who lets others of its session join its message comes back late, as one of these keeps the
// thread: other sessions' requests do not wait for that, whether or not there is a link.
TEST_F(PeerThreads, WhoGathersForLongKeepsNoOthersWaiting) {
  Start({});
  for (const bool has_link : {false, true}) {
    std::atomic<bool> keeps_thread{false}, other_is_done{false};
    std::thread gatherer([&] {
      const auto session = FakeSession(&epochs_, 20);
      session->scheduler().Spawn([&] {
        PeerAnswer answer;
        EXPECT_TRUE(Call(*session, kLongNs, {.key = "gathers"}, &answer).ok());
      });
      session->scheduler().Spawn([&] {
        keeps_thread = true;
        for (int ms = 0; ms < 20'000 && !other_is_done; ++ms) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_TRUE(other_is_done) << (has_link ? "with" : "without") << " a link";
      });
      session->scheduler().Drain();
    });
    while (!keeps_thread) std::this_thread::yield();
    const auto session = FakeSession(&epochs_, 21);
    session->scheduler().Spawn([&] {
      PeerAnswer answer;
      EXPECT_TRUE(Call(*session, kLongNs, {.key = "other"}, &answer).ok());
      other_is_done = true;
    });
    session->scheduler().Drain();
    gatherer.join();
  }
  Stop();
}

}  // namespace
}  // namespace pando

// Rule F7, tried out: clients die at every instruction of a chain, and each WRITE is whole or
// absent, in chain order.
#include <sys/ptrace.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/sanitizer.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/shm_test_helper.h"
#include "common/fabric/shm/word_copy.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

// Of a longer scenario a sample.
constexpr int kKillsMax = 500;

class CountingHandler : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view) override { return "x"; }
  void OnPeerGone(PeerId) override {
    std::lock_guard lock(mutex_);
    ++gone_;
    changed_.notify_all();
  }
  bool WaitForGone(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return gone_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int gone_ = 0;
};

class ShmKillTest : public testing::Test {
 protected:
  ShmKillTest() {
    ShmServerOptions options;
    options.socket_path = directory_.path() + "/socket";
    options.main_bytes = 1 << 20;
    options.endpoints_max = 16;
    thread_ = std::make_unique<ShmServerThread>(options, &handler_);
  }
  const std::string& path() { return thread_->server().options().socket_path; }

  std::span<std::byte> Memory(const KillScenario::Target& target) {
    const ServerMemory memory = thread_->server().memory();
    return (target.space == MemorySpace::kMain ? memory.main : memory.locks)
        .subspan(target.offset, target.bytes);
  }
  // By words: the server's thread works on this memory, too.
  static constexpr uint64_t Pattern(int byte) { return 0x0101010101010101u * byte; }
  static bool AllAre(std::span<const std::byte> bytes, int byte) {
    for (size_t i = 0; i < bytes.size(); i += kWordBytes) {
      if (LoadWord(bytes.data() + i) != Pattern(byte)) return false;
    }
    return true;
  }
  static void SetAll(std::span<std::byte> bytes, int byte) {
    for (size_t i = 0; i < bytes.size(); i += kWordBytes)
      StoreWord(bytes.data() + i, Pattern(byte));
  }

  // Runs the scenario for `steps` instructions (to its end if it has fewer), kills the client.
  // Returns how many it did; nothing where tracing is not allowed.
  std::optional<int> KillAfter(int scenario, int steps) {
    HelperProcess client({"trace", path(), std::to_string(scenario)});
    EXPECT_TRUE(client.ready());
    const int stopped = client.Wait();
    if (!WIFSTOPPED(stopped)) return std::nullopt;
    int done = 0;
    for (; done < steps; ++done) {
      if (ptrace(PTRACE_SINGLESTEP, client.pid(), nullptr, nullptr) != 0) return std::nullopt;
      const int status = client.Wait();
      if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) break;  // the second SIGSTOP
    }
    client.Kill(SIGKILL);
    EXPECT_TRUE(handler_.WaitForGone(++clients_));
    return done;
  }

  // How many of the scenario's WRITEs are there; -1: one is torn, or there without its predecessor.
  int CountWrites(const std::vector<KillScenario::Target>& targets) {
    size_t there = 0;
    while (there < targets.size() && AllAre(Memory(targets[there]), KillScenario::kNewByte))
      ++there;
    for (size_t i = there; i < targets.size(); ++i) {
      if (!AllAre(Memory(targets[i]), KillScenario::kOldByte)) return -1;
    }
    return static_cast<int>(there);
  }

  void KillEverywhere(int scenario) {
    if (kSanitized) GTEST_SKIP() << "instrumented clients take long to start, and end unseen";
    const auto targets = KillScenario::Get(scenario);
    const auto reset = [&] {
      for (const auto& target : targets) {
        SetAll(Memory(target), KillScenario::kOldByte);
      }
    };
    reset();
    const std::optional<int> length = KillAfter(scenario, INT32_MAX);
    if (!length.has_value()) GTEST_SKIP() << "ptrace is not permitted here";
    ASSERT_GT(*length, 50);
    ASSERT_EQ(CountWrites(targets), static_cast<int>(targets.size()));

    // A line more than the longest run seen: clocks make it vary.
    const int last = *length + 64;
    const int stride = std::max(1, (last + kKillsMax - 1) / kKillsMax);
    std::vector<int> times(targets.size() + 1);
    for (int steps = 0; steps <= last; steps += stride) {
      reset();
      const std::optional<int> done = KillAfter(scenario, steps);
      ASSERT_TRUE(done.has_value());
      const int writes = CountWrites(targets);
      ASSERT_GE(writes, 0) << "killed after " << steps << " instructions";
      ++times[writes];
    }
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_GT(times[i], 0) << "never killed with exactly " << i << " WRITEs done";
    }
    EXPECT_GT(thread_->server().intents_completed(), 0u);
    RecordProperty("instructions", *length);
    RecordProperty("completed", static_cast<int>(thread_->server().intents_completed()));
  }

  TemporaryDirectory directory_;
  CountingHandler handler_;
  std::unique_ptr<ShmServerThread> thread_;
  int clients_ = 0;
};

TEST_F(ShmKillTest, OneLineIsWholeOrAbsent) { KillEverywhere(0); }
TEST_F(ShmKillTest, ManyLinesAreWholeOrAbsent) { KillEverywhere(1); }
TEST_F(ShmKillTest, ChainsEndBetweenWrites) { KillEverywhere(2); }

TEST_F(ShmKillTest, BusyClientsDieAtAnyTime) {
  constexpr int kThreads = 4;
  Random random(7);
  for (int round = 1; round <= 40; ++round) {
    // As if the byte before the first, 0, had been written last.
    SetAll(thread_->server().memory().main.subspan(HammerArea::First(0),
                                                   2 * kThreads * HammerArea::kBytes),
           0xff);
    {
      HelperProcess client({"hammer", path(), std::to_string(kThreads)});
      ASSERT_TRUE(client.ready());
      usleep(static_cast<useconds_t>(random.Uniform(10'000)));
      client.Kill(SIGKILL);
    }
    ASSERT_TRUE(handler_.WaitForGone(round));
    for (int thread = 0; thread < kThreads; ++thread) {
      const auto main = thread_->server().memory().main;
      const auto first = main.subspan(HammerArea::First(thread), HammerArea::kBytes);
      const auto second = main.subspan(HammerArea::Second(thread), HammerArea::kBytes);
      const int a = static_cast<int>(LoadWord(first.data()) & 0xff);
      const int b = static_cast<int>(LoadWord(second.data()) & 0xff);
      EXPECT_TRUE(AllAre(first, a)) << "round " << round;
      EXPECT_TRUE(AllAre(second, b)) << "round " << round;
      EXPECT_TRUE(a == b || a == (b + 1) % 256) << a << " " << b;
    }
  }
}

// A stopped process may go on: its intents are not touched, its slots stay its own.
TEST_F(ShmKillTest, OnlyExitIsDeath) {
  HelperProcess client({"hammer", path(), "1"});
  ASSERT_TRUE(client.ready());
  client.Signal(SIGSTOP);
  usleep(300'000);
  EXPECT_EQ(thread_->server().intents_completed(), 0u);
  client.Signal(SIGCONT);
  client.Kill(SIGKILL);
  EXPECT_TRUE(handler_.WaitForGone(1));
}

}  // namespace
}  // namespace pando

// The redo log on shared memory, its sessions on threads of their own: group commit (rule W3), and
// that everything is in order where nothing is simulated. For ThreadSanitizer, too.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/epoch.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "compute/log/read_log.h"
#include "compute/log/redo_log.h"

namespace pando {
namespace {

class NoHandler : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view) override { return "ok"; }
  void OnPeerGone(PeerId) override {}
};

class LogThreadsTest : public testing::Test {
 protected:
  static constexpr ServerId kServer = 1;

  LogThreadsTest() { membership_.Publish(kServer, 1, 0); }

  std::unique_ptr<SessionContext> NewSession(int coroutines) {
    auto endpoint = cluster_.fabric(0).Connect(1, 1);
    PANDO_CHECK_OK(endpoint.status());
    auto session =
        std::make_unique<SessionContext>(*std::move(endpoint), &epochs_, coroutines, ++seed_);
    session->set_membership(&membership_);
    return session;
  }
  static void Run(SessionContext& session, int coroutines,
                  const std::function<void(OperationContext&)>& job) {
    for (int i = 0; i < coroutines; ++i) {
      session.scheduler().Spawn([&session, &job] {
        OperationContext context(&session, session.NowNs() + 60 * kSecondNs);
        job(context);
      });
    }
    session.scheduler().Drain();
  }

  // Returns messages a batch.
  double PutAll(int threads, int coroutines, int puts) {
    RedoLog::Options options;
    options.extent = {kServer, 1, 1 << 20, 2 << 20};
    options.log_id = 7;
    options.epoch = ++epoch_;
    options.packet_bytes = 1024;
    std::vector<std::unique_ptr<SessionContext>> sessions;
    for (int i = 0; i < threads; ++i) sessions.push_back(NewSession(coroutines));
    const auto service = NewSession(2);
    std::unique_ptr<RedoLog> log;
    Run(*service, 1, [&](OperationContext& context) { log = *RedoLog::Create(context, options); });

    std::atomic<int> working{threads};
    std::vector<std::thread> workers;
    for (const auto& session : sessions) {
      workers.emplace_back([&, session = session.get()] {
        Run(*session, coroutines, [&](OperationContext& context) {
          for (int i = 0; i < puts; ++i) {
            auto room = log->Reserve(context, 8, 8);
            ASSERT_TRUE(room.ok()) << room.status();
            const Lsn lsn = log->Append(*std::move(room), {.key = "12345678", .value = "abcdefgh"});
            ASSERT_TRUE(log->AwaitDurable(context, lsn).ok());
            ASSERT_GE(log->durable(), lsn);
          }
        });
        working.fetch_sub(1);
      });
    }
    Run(*service, 1, [&](OperationContext& context) {
      bool over = false;
      while (!over) {
        over = working.load() == 0;
        ASSERT_TRUE(log->Tend(context).ok());
        // Nobody needs the last hundred but the reader.
        const Lsn end = log->durable();
        if (over || (log->used_bytes() > (64 << 10) && end > 100)) {
          ASSERT_TRUE(log->AdvanceBase(context, end - 100).ok());
        }
        context.session.scheduler().SleepUntil(context.session.NowNs() + 50 * kMicrosecondNs);
      }
    });
    for (std::thread& worker : workers) worker.join();

    const LogCounters counters = log->counters();
    const auto all = static_cast<uint64_t>(threads) * static_cast<uint64_t>(coroutines) *
                     static_cast<uint64_t>(puts);
    EXPECT_EQ(counters.messages, all);
    EXPECT_GT(counters.base_lines, 1u);
    Lsn last = kNoLsn;
    Run(*service, 1, [&](OperationContext& context) {
      const auto span = ReadLog(context, options.extent, options.log_id, options.epoch,
                                [&](Lsn lsn, const LogMessage& message) {
                                  EXPECT_EQ(message.value, "abcdefgh");
                                  last = lsn;
                                  return absl::OkStatus();
                                });
      ASSERT_TRUE(span.ok()) << span.status();
      EXPECT_EQ(span->end, all + 1);
      EXPECT_EQ(span->base, log->base());
    });
    EXPECT_EQ(last, all);
    const double batch =
        static_cast<double>(counters.messages) / static_cast<double>(counters.batches);
    std::printf("%d x %d: %.1f messages a batch, %lu parked, %lu written again, %lu turns taken\n",
                threads, coroutines, batch, counters.parked, counters.written_again,
                counters.turns_taken);
    // The service's looks aside, and turns that it has taken.
    if (threads == 1) {
      EXPECT_LT(counters.parked, all / 4) << "a chain is done at once here";
    }
    return batch;
  }

  NoHandler handler_;
  ShmTestCluster cluster_{{.servers = 1, .main_bytes = 4 << 20}, {&handler_}};
  Membership membership_;
  EpochDomain epochs_;
  uint64_t seed_ = 0;
  uint32_t epoch_ = 0;
};

TEST_F(LogThreadsTest, ThirtyTwoInFlightShareChains) {
  EXPECT_GE(PutAll(1, 32, 500), 8.0);
  // Of several threads a batch takes what is there when the one before it is complete: on
  // processors of their own three to five messages, where they take turns eight and more.
  EXPECT_GE(PutAll(4, 8, 500), 1.5);
}

TEST_F(LogThreadsTest, ManyThreadsWithFewEach) { EXPECT_GE(PutAll(8, 2, 1000), 1.0); }

}  // namespace
}  // namespace pando

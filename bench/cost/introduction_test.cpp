// A client meets a memory server that comes, and something goes wrong in the middle of it, at any
// moment: the server is stopped for a while, or nothing gets through.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando {
namespace {

// From the first call to the last, at least.
constexpr int64_t kIntroductionNs = kMillisecondNs, kStepNs = 10 * kMicrosecondNs;
constexpr int64_t kLeaseNs = 20 * kMillisecondNs;
constexpr uint64_t kKeys = 2'000;

// A client with two trees, and a server that has come since.
class Stage {
 public:
  Stage(uint64_t seed, int64_t lease_ns)
      : cluster_({.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole},
                  .memory_servers = 1,
                  .main_bytes = 8 << 20,
                  .chunk_bytes = 64 << 10,
                  .lease_ns = lease_ns}),
        fabric_(cluster_.world().NewFabric()),
        client_(*ConnectOverFabric({.connect_timeout_ms = 50, .seed = seed + 1}, fabric_)),
        tree_(*client_->CreateTree("t", {})),
        other_(*client_->CreateTree("other", {})),
        session_(*client_->NewSession()),
        late_(cluster_.StartOneMore()) {}

  sim::SimWorld& world() { return cluster_.world(); }
  SimCluster& cluster() { return cluster_; }
  const Fabric& fabric() const { return *fabric_; }
  Client& client() { return *client_; }
  ServerId late() const { return late_; }
  absl::Status Add() { return ImplOf(*client_).AddMember({.id = late_}); }
  void RunFor(int64_t ns) { world().RunUntil(world().clock().NowNs() + ns); }
  uint64_t LateCounter(const std::string& name) {
    for (const auto& [counter, value] : cluster_.server(late_ - 1).Counters()) {
      if (counter == name) return value;
    }
    return 0;
  }
  absl::Status Put(uint64_t n) { return session_->Put(*tree_, KeyOf(n), "v"); }
  // The trees go on, on that server, too.
  void ExpectIsUsed() {
    for (uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(Put(n).ok()) << n;
    EXPECT_GT(LateCounter("nodes_out") + LateCounter("nodes_settled"), 0u) << "of no use";
    const auto fresh = cluster_.NewClient();
    const auto tree = *fresh->OpenTree("t");
    const auto session = *fresh->NewSession();
    std::vector<KeyValue> rows;
    ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
    EXPECT_EQ(rows.size(), kKeys);
    EXPECT_TRUE(client_->TreeStatus(*tree_).ok());
    EXPECT_TRUE(client_->TreeStatus(*other_).ok());
  }

 private:
  SimCluster cluster_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_, other_;
  std::unique_ptr<Session> session_;
  const ServerId late_;
};

// What it had been told waits in its socket, and is executed before the end of the connection.
TEST(IntroductionTest, AServerThatIsStoppedInTheMiddleIsTakenUpOnceItGoesOn) {
  for (const int64_t lease_ns : {int64_t{0}, kLeaseNs}) {
    int failed = 0, introduced = 0;
    for (int64_t stop_ns = 0; stop_ns < kIntroductionNs; stop_ns += kStepNs) {
      SCOPED_TRACE(testing::Message() << "lease " << lease_ns << ", stopped after " << stop_ns);
      Stage stage(static_cast<uint64_t>(1 + stop_ns / kStepNs), lease_ns);
      stage.world().At(stage.world().clock().NowNs() + stop_ns,
                       [&] { stage.world().PauseServer(stage.late()); });
      const absl::Status first = stage.Add();
      failed += first.ok() ? 0 : 1;
      // Longer than a lease, too.
      stage.RunFor(10 * kLeaseNs);
      introduced += !first.ok() && stage.LateCounter("attaches") > 0 ? 1 : 0;
      EXPECT_TRUE(first.ok() || absl::IsUnavailable(stage.Add())) << "it is stopped";
      stage.world().ResumeServer(stage.late());
      stage.RunFor(kMillisecondNs);
      EXPECT_EQ(stage.LateCounter("clients"), first.ok() ? 1u : 0u);
      const absl::Status added = first.ok() ? first : stage.Add();
      ASSERT_TRUE(added.ok()) << added;
      EXPECT_FALSE(stage.client().fenced());
      EXPECT_EQ(stage.cluster().Counter("deaths"), 0u);
      ASSERT_NO_FATAL_FAILURE(stage.ExpectIsUsed());
      EXPECT_EQ(stage.client().Servers().size(), 2u);
    }
    EXPECT_GT(failed, 10);
    EXPECT_GT(introduced, 5) << "or this shows less than half of it";
    EXPECT_LT(introduced, failed);
  }
}

// Nothing gets through for longer than a lease, so that nothing is withdrawn. Whom the server has
// met is dead there, and learns it when it comes again.
TEST(IntroductionTest, WhoIsTakenForDeadInTheMiddleIsToldAndLeavesAll) {
  for (const int64_t lease_ns : {int64_t{0}, kLeaseNs}) {
    int met = 0, unknown = 0;
    for (int64_t cut_ns = 0; cut_ns < kIntroductionNs; cut_ns += kStepNs) {
      SCOPED_TRACE(testing::Message() << "lease " << lease_ns << ", cut after " << cut_ns);
      Stage stage(static_cast<uint64_t>(1 + cut_ns / kStepNs), lease_ns);
      sim::SimWorld& world = stage.world();
      ASSERT_TRUE(stage.Put(0).ok());
      world.At(world.clock().NowNs() + cut_ns,
               [&] { world.CutLink(stage.fabric(), stage.late(), true); });
      if (stage.Add().ok()) continue;
      EXPECT_TRUE(absl::IsUnavailable(stage.Add())) << "nobody answers";
      const bool was_met = stage.LateCounter("attaches") > 0;
      (was_met ? met : unknown) += 1;
      // Its lease at the other server is renewed meanwhile.
      stage.RunFor(3 * kLeaseNs);
      world.CutLink(stage.fabric(), stage.late(), false);
      EXPECT_EQ(stage.cluster().Counter("deaths"), was_met ? 1u : 0u);
      const absl::Status again = stage.Add();
      if (!was_met) {
        ASSERT_TRUE(again.ok()) << again;
        ASSERT_NO_FATAL_FAILURE(stage.ExpectIsUsed());
        continue;
      }
      EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
      EXPECT_NE(again.message().find("close the client and connect again"), std::string::npos)
          << again;
      EXPECT_EQ(stage.client().fenced(), lease_ns > 0);
      if (lease_ns == 0) {
        EXPECT_TRUE(stage.Put(1).ok()) << "nobody else has taken it for dead, nor can";
        continue;
      }
      EXPECT_TRUE(absl::IsFailedPrecondition(stage.Put(1)));
      // It is not introduced for ever, and is dead everywhere.
      const uint64_t calls = stage.LateCounter("calls");
      EXPECT_TRUE(absl::IsFailedPrecondition(stage.Add()));
      stage.RunFor(3 * kLeaseNs);
      EXPECT_EQ(stage.LateCounter("calls"), calls);
      EXPECT_EQ(stage.cluster().Counter("deaths"), 2u);
    }
    EXPECT_GT(met, 5);
    EXPECT_GT(unknown, 5);
  }
}

}  // namespace
}  // namespace pando

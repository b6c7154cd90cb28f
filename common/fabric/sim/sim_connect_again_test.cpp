// A client that gives its connection to a living memory server up, and connects again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"

namespace pando::sim {
namespace {

// What has come to the server, and from whom, in its order: the peer, negative when it is gone.
class Journal : public ControlHandler {
 public:
  std::string Handle(PeerId peer, std::string_view) override {
    entries.push_back(static_cast<int64_t>(peer));
    return "ok";
  }
  void OnPeerGone(PeerId peer) override { entries.push_back(-static_cast<int64_t>(peer)); }
  std::vector<int64_t> entries;
};

class SimConnectAgain : public testing::Test {
 protected:
  explicit SimConnectAgain(const SimOptions& options = {.seed = 1}) : sim_(options) {
    sim_.world.SetHandler(kServer, &journal_);
    client_ = std::make_unique<TestClient>(sim_.world.NewFabric());
  }
  void BeginCall() {
    call_ = {.server = kServer, .request = "hello"};
    client_->endpoint->Call(&call_);
  }
  absl::Status Call() {
    BeginCall();
    while (!call_.done) client_->endpoint->Wait(kNeverNs);
    return call_.status;
  }
  absl::Status Connect() {
    const auto added = client_->fabric->AddServer({.id = kServer});
    if (added.ok()) client_->endpoint->AdoptServers(*added);
    return added.status();
  }
  int64_t LastCaller() const {
    return *std::max_element(journal_.entries.begin(), journal_.entries.end());
  }
  void Settle() { sim_.world.RunUntil(sim_.world.clock().NowNs() + kSecondNs); }

  TestWorld sim_;
  Journal journal_;
  std::unique_ptr<TestClient> client_;
  PendingCall call_;
};

TEST_F(SimConnectAgain, TheServerTakesItForAnotherPeer) {
  Fabric& fabric = *client_->fabric;
  EXPECT_TRUE(absl::IsUnavailable(Connect())) << "it is connected";
  ASSERT_TRUE(Call().ok());
  TestClient elsewhere(client_->fabric);
  fabric.Disconnect(kServer);
  EXPECT_FALSE(fabric.IsConnected(kServer));
  EXPECT_TRUE(absl::IsUnavailable(Call()));
  ASSERT_TRUE(Connect().ok());
  EXPECT_TRUE(fabric.IsConnected(kServer));
  EXPECT_TRUE(absl::IsUnavailable(Connect())) << "it is connected";
  ASSERT_TRUE(Call().ok());
  const int64_t second = LastCaller();
  EXPECT_NE(second, 1);
  client_->ExpectReaches(kServer, sim_.memory);
  Settle();
  EXPECT_EQ(journal_.entries, (std::vector<int64_t>{1, second, -1}));
  // Whoever has not taken the new connection up has the old one.
  elsewhere.chain.Write(MemorySpace::kMain, 8192, elsewhere.buffer.Slice(0, 8));
  elsewhere.Run();
  EXPECT_TRUE(absl::IsUnavailable(elsewhere.chain.status())) << elsewhere.chain.status();
  elsewhere.endpoint.reset();
  elsewhere.fabric.reset();
  client_.reset();
  Settle();
  EXPECT_EQ(journal_.entries, (std::vector<int64_t>{1, second, -1, -second}));
}

// As from a socket: what was sent comes before the end, and both wait while the server is stopped.
TEST_F(SimConnectAgain, AStoppedServerHearsWhatWasSaidBeforeTheEnd) {
  sim_.world.PauseServer(kServer);
  BeginCall();
  client_->fabric->Disconnect(kServer);
  while (!call_.done) client_->endpoint->Wait(kNeverNs);
  EXPECT_TRUE(absl::IsUnavailable(call_.status)) << call_.status;
  EXPECT_TRUE(absl::IsUnavailable(Connect())) << "nobody answers";
  Settle();
  EXPECT_TRUE(journal_.entries.empty());
  sim_.world.ResumeServer(kServer);
  ASSERT_TRUE(Connect().ok());
  Settle();
  EXPECT_EQ(journal_.entries, (std::vector<int64_t>{1, -1}));
  EXPECT_TRUE(Call().ok());
}

TEST_F(SimConnectAgain, WhoWasCutOffIsReportedForBothEnds) {
  sim_.world.Fence(kServer)->CutOff(1);
  EXPECT_TRUE(absl::IsUnavailable(Connect())) << "the connection is still there";
  EXPECT_TRUE(Call().ok()) << "it can be told";
  client_->fabric->Disconnect(kServer);
  EXPECT_FALSE(sim_.world.Fence(kServer)->CutOff(1)) << "it has ended already";
  ASSERT_TRUE(Connect().ok());
  client_->ExpectReaches(kServer, sim_.memory);
  Settle();
  EXPECT_EQ(journal_.entries, (std::vector<int64_t>{-1, 1, -1}));
  ASSERT_TRUE(Call().ok());
  EXPECT_TRUE(sim_.world.Fence(kServer)->CutOff(static_cast<PeerId>(LastCaller())));
  client_->chain.Reset(kServer);
  client_->chain.Write(MemorySpace::kMain, 4096, client_->buffer.Slice(0, 8));
  client_->Run();
  EXPECT_TRUE(absl::IsUnavailable(client_->chain.status())) << client_->chain.status();
}

// Packets of the old connection arrive beside those of the new one, until the server has noticed.
TEST(SimConnectAgainPackets, TheOldOnesMayComeLateAndNoneAfterTheEnd) {
  std::set<std::pair<uint64_t, uint64_t>> outcomes;
  int overtaken = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (int steps = 0; steps < 12; ++steps) {
      TestWorld sim({.seed = seed});
      GoneHandler handler;
      sim.world.SetHandler(kServer, &handler);
      TestClient client(sim.world.NewFabric());
      client.PostTwoWrites();
      for (int i = 0; i < steps; ++i) sim.world.Step();
      const bool was_done = client.chain.done();
      client.fabric->Disconnect(kServer);
      const auto added = client.fabric->AddServer({.id = kServer});
      ASSERT_TRUE(added.ok()) << added.status();
      client.endpoint->AdoptServers(*added);
      Chain chain(kServer);
      chain.FetchAdd(MemorySpace::kMain, 0, 1);
      client.endpoint->Post(&chain);
      while (!chain.done()) client.endpoint->Wait(kNeverNs);
      EXPECT_TRUE(chain.ok()) << chain.status();
      const std::pair<uint64_t, uint64_t> before = {sim.Word(4096), sim.Word(8192)};
      client.Finish();
      if (!was_done) {
        EXPECT_TRUE(absl::IsUnavailable(client.chain.status())) << client.chain.status();
      }
      while (handler.gone.empty()) ASSERT_TRUE(sim.world.Step());
      const std::pair<uint64_t, uint64_t> found = {sim.Word(4096), sim.Word(8192)};
      for (uint64_t at = 0; at < 1024; at += 8) {
        EXPECT_EQ(sim.Word(4096 + at), found.first);
        EXPECT_EQ(sim.Word(8192 + at), found.second);
      }
      overtaken += before != found;
      outcomes.insert(found);
      sim.world.RunUntil(sim.world.clock().NowNs() + kSecondNs);
      EXPECT_EQ(std::make_pair(sim.Word(4096), sim.Word(8192)), found) << "moved after the end";
      EXPECT_EQ(sim.Word(0), 1u);
      EXPECT_EQ(handler.gone, std::vector<PeerId>{1});
    }
  }
  EXPECT_EQ(outcomes, (std::set<std::pair<uint64_t, uint64_t>>{{0, 0}, {1, 0}, {1, 2}}));
  EXPECT_GT(overtaken, 0) << "or this shows nothing";
}

}  // namespace
}  // namespace pando::sim

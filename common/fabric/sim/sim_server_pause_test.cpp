// A memory server whose process is stopped: what waits for it, in which order it is executed, and
// what goes on meanwhile.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/fabric/recoverable.h"
#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Remembers what has come to it, and wants to be called every 100 us.
class NotingHandler : public ControlHandler {
 public:
  explicit NotingHandler(const SimWorld& world) : world_(world) {}
  std::string Handle(PeerId, std::string_view request) override {
    notes.emplace_back(request);
    return "re: " + std::string(request);
  }
  void OnPeerGone(PeerId peer) override { notes.push_back("gone " + std::to_string(peer)); }
  int64_t OnTimer(int64_t now_ns) override {
    EXPECT_EQ(now_ns, world_.clock().NowNs());
    ++timers;
    return now_ns / kEveryNs * kEveryNs + kEveryNs;
  }

  static constexpr int64_t kEveryNs = 100 * kMicrosecondNs;
  std::vector<std::string> notes;
  int timers = 0;

 private:
  const SimWorld& world_;
};

class ServerPauseTest : public testing::Test {
 protected:
  ServerPauseTest() { sim_.world.SetHandler(kServer, &handler_); }

  // The call's deadline is so much later.
  static void Begin(TestClient& client, const TestWorld& sim, const std::string& request,
                    int64_t timeout_ns, PendingCall* call) {
    call->server = kServer;
    call->request = request;
    call->deadline_ns = sim.world.clock().NowNs() + timeout_ns;
    client.endpoint->Call(call);
  }
  static void Finish(TestClient& client, const PendingCall& call) {
    while (!call.done) client.endpoint->Wait(kNeverNs);
  }
  void RunFor(int64_t ns) { sim_.world.RunUntil(sim_.world.clock().NowNs() + ns); }

  TestWorld sim_{{.seed = 1}};
  NotingHandler handler_{sim_.world};
};

TEST_F(ServerPauseTest, AFirstAttemptIsExecutedAfterItsCallerHasGivenItUp) {
  TestClient client(sim_.world.NewFabric());
  sim_.world.PauseServer(kServer);
  PendingCall first, second, third;
  Begin(client, sim_, "first", 200 * kMicrosecondNs, &first);
  Finish(client, first);
  Begin(client, sim_, "again", 200 * kMicrosecondNs, &second);
  Finish(client, second);
  Begin(client, sim_, "and again", kSecondNs, &third);
  RunFor(kMillisecondNs);
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.status)) << first.status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(second.status)) << second.status;
  EXPECT_FALSE(third.done);
  EXPECT_THAT(handler_.notes, IsEmpty());
  sim_.world.ResumeServer(kServer);
  Finish(client, third);
  EXPECT_EQ(third.reply, "re: and again");
  EXPECT_THAT(handler_.notes, ElementsAre("first", "again", "and again"));
  EXPECT_EQ(sim_.world.stats().calls_too_late, 2u);
  EXPECT_EQ(sim_.world.stats().lost_requests, 0u);
}

// One thread of a process alone.
TEST_F(ServerPauseTest, OtherThreadsOfTheProcessGoOn) {
  TestClient stopped(sim_.world.NewFabric());
  TestClient other(stopped.fabric);
  stopped.PostTwoWrites();
  PendingCall call;
  Begin(stopped, sim_, "its own", kSecondNs, &call);
  const uint32_t thread = sim_.world.PauseEndpoint(*stopped.endpoint);
  RunFor(kMillisecondNs);
  other.ExpectReaches(kServer, sim_.memory);
  EXPECT_FALSE(stopped.chain.done());
  EXPECT_FALSE(call.done);
  EXPECT_EQ(sim_.Word(8192), 2u) << "what it had posted is executed";
  sim_.world.ResumeEndpoint(thread);
  stopped.Finish();
  Finish(stopped, call);
  EXPECT_TRUE(stopped.chain.ok()) << stopped.chain.status();
  EXPECT_EQ(call.reply, "re: its own");
  // Once more, and its process dies meanwhile, and it ends.
  stopped.chain.Reset(kServer);
  stopped.PostTwoWrites();
  EXPECT_EQ(sim_.world.PauseEndpoint(*stopped.endpoint), thread);
  RunFor(kMillisecondNs);
  sim_.world.KillFabric(*stopped.fabric);
  stopped.Finish();
  EXPECT_FALSE(stopped.chain.ok());
  stopped.endpoint.reset();
  sim_.world.ResumeEndpoint(thread);
}

TEST_F(ServerPauseTest, WhatTheClosedAndTheDeadHaveAskedForIsExecutedToo) {
  auto closed = std::make_unique<TestClient>(sim_.world.NewFabric());
  auto dead = std::make_unique<TestClient>(sim_.world.NewFabric());
  TestClient cut(sim_.world.NewFabric());
  sim_.world.PauseServer(kServer);
  PendingCall of_closed, of_dead, of_cut;
  Begin(*dead, sim_, "of the dead", kSecondNs, &of_dead);
  Begin(*closed, sim_, "of the closed", 100 * kMicrosecondNs, &of_closed);
  Begin(cut, sim_, "of the cut off", kSecondNs, &of_cut);
  Finish(*closed, of_closed);
  closed.reset();
  sim_.world.KillFabric(*dead->fabric);
  sim_.world.CutLink(*cut.fabric, kServer, true);
  RunFor(kMillisecondNs);
  EXPECT_THAT(handler_.notes, IsEmpty());
  sim_.world.ResumeServer(kServer);
  RunFor(kMillisecondNs);
  EXPECT_THAT(handler_.notes, testing::UnorderedElementsAre("of the dead", "of the closed",
                                                            "of the cut off", "gone 1", "gone 2"));
  const auto place = [&](const std::string& note) {
    return std::find(handler_.notes.begin(), handler_.notes.end(), note);
  };
  EXPECT_LT(place("of the closed"), place("gone 1"));
  EXPECT_LT(place("of the dead"), place("gone 2"));
  while (!of_dead.done) dead->endpoint->Wait(kNeverNs);
  while (!of_cut.done) cut.endpoint->Wait(kNeverNs);
}

TEST_F(ServerPauseTest, ItsTimersWaitAndThenGoOn) {
  TestClient client(sim_.world.NewFabric());
  PendingCall call;
  Begin(client, sim_, "hello", kSecondNs, &call);
  Finish(client, call);
  RunFor(kMillisecondNs);
  EXPECT_GE(handler_.timers, 10);
  sim_.world.PauseServer(kServer);
  sim_.world.PauseServer(kServer);  // again changes nothing
  const int before = handler_.timers;
  RunFor(5 * kMillisecondNs);
  EXPECT_EQ(handler_.timers, before);
  sim_.world.ResumeServer(kServer);
  sim_.world.ResumeServer(kServer);
  RunFor(0);
  EXPECT_EQ(handler_.timers, before + 1) << "what was due is done once, and now";
  RunFor(kMillisecondNs);
  EXPECT_EQ(handler_.timers, before + 11);
}

TEST_F(ServerPauseTest, VerbsGoOnButNoQueuePairIsOpenedAgain) {
  TestClient client(sim_.world.NewFabric()), other(sim_.world.NewFabric());
  sim_.world.PauseServer(kServer);
  client.ExpectReaches(kServer, sim_.memory);
  sim_.world.BreakQueuePairs(*client.fabric, kServer);
  RunFor(20 * kMillisecondNs);
  EXPECT_EQ(sim_.world.stats().queue_pairs_reopened, 0u);
  client.chain.Reset(kServer);
  client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 8));
  client.Run();
  EXPECT_TRUE(IsRecoverable(client.chain.status())) << client.chain.status();
  other.ExpectReaches(kServer, sim_.memory);
  sim_.world.ResumeServer(kServer);
  RunFor(kMillisecondNs);
  EXPECT_EQ(sim_.world.stats().queue_pairs_reopened, 1u);
  client.ExpectReaches(kServer, sim_.memory);
}

TEST_F(ServerPauseTest, OneThatDiesExecutesNothingMore) {
  TestClient client(sim_.world.NewFabric());
  sim_.world.PauseServer(kServer);
  PendingCall call;
  Begin(client, sim_, "hello", kNeverNs / 2, &call);
  RunFor(kMillisecondNs);
  sim_.world.KillServer(kServer);
  sim_.world.PauseServer(kServer);
  Finish(client, call);
  EXPECT_TRUE(absl::IsUnavailable(call.status)) << call.status;
  RunFor(5 * kSecondNs);
  EXPECT_THAT(handler_.notes, IsEmpty());
}

}  // namespace
}  // namespace pando::sim

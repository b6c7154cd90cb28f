// Control calls: answered, delayed, lost on the way there, lost on the way back.
#include <memory>
#include <string>
#include <vector>

#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

class CountingHandler : public ControlHandler {
 public:
  std::string Handle(PeerId peer, std::string_view request) override {
    ++handled;
    last_peer = peer;
    return "re: " + std::string(request);
  }
  void OnPeerGone(PeerId) override {}
  int handled = 0;
  PeerId last_peer = 0;
};

struct CallFixture {
  explicit CallFixture(const SimOptions& options) : sim(options), client(sim.world.NewFabric()) {
    sim.world.SetHandler(kServer, &handler);
    call.server = kServer;
    call.request = "x";
  }
  void Run(int64_t timeout_ns) {
    call.deadline_ns = timeout_ns == kNeverNs ? kNeverNs : sim.world.clock().NowNs() + timeout_ns;
    client.endpoint->Call(&call);
    EXPECT_FALSE(call.done) << "completes through events";
    while (!call.done) client.endpoint->Wait(kNeverNs);
    EXPECT_EQ(client.endpoint->in_flight(), 0u);
    while (sim.world.Step()) {
    }
  }

  // It ended at its deadline; the handler has seen it so often.
  void ExpectLate(int handled) const {
    EXPECT_TRUE(absl::IsDeadlineExceeded(call.status)) << call.status;
    EXPECT_EQ(handler.handled, handled);
  }

  CountingHandler handler;
  TestWorld sim;
  TestClient client;
  PendingCall call;
};

TEST(SimCalls, Answered) {
  CallFixture f({.seed = 1});
  f.Run(kNeverNs);
  EXPECT_TRUE(f.call.status.ok());
  EXPECT_EQ(f.call.reply, "re: x");
  EXPECT_EQ(f.handler.handled, 1);
}

TEST(SimCalls, LostRequestNeverArrives) {
  CallFixture f({.seed = 1, .call_request_loss = 1.0});
  f.Run(kMillisecondNs);
  f.ExpectLate(0);
  EXPECT_EQ(f.sim.world.stats().lost_requests, 1u);
}

TEST(SimCalls, LostReplyHasTakenEffect) {
  CallFixture f({.seed = 1, .call_reply_loss = 1.0});
  f.Run(kMillisecondNs);
  f.ExpectLate(1);
  EXPECT_EQ(f.sim.world.stats().lost_replies, 1u);
}

TEST(SimCalls, RequestMayArriveAfterTheCallerGaveUp) {
  CallFixture f({.seed = 1, .call_delay_ns = kMillisecondNs});
  f.Run(kMicrosecondNs);
  EXPECT_TRUE(absl::IsDeadlineExceeded(f.call.status));
  EXPECT_EQ(f.handler.handled, 1);
}

TEST(SimCalls, CallWithoutDeadlineEndsToo) {
  CallFixture f({.seed = 1});
  f.sim.world.PauseCalls(kServer, true);
  f.Run(kNeverNs);
  EXPECT_TRUE(absl::IsDeadlineExceeded(f.call.status));
  f.sim.world.PauseCalls(kServer, false);
  f.Run(kNeverNs);
  EXPECT_TRUE(f.call.status.ok());
}

TEST(SimCalls, SomeAreLostSomeAreNot) {
  CallFixture f({.seed = 9, .call_request_loss = 0.2, .call_reply_loss = 0.2});
  int failed = 0;
  for (int i = 0; i < 100; ++i) {
    f.Run(kMillisecondNs);
    failed += f.call.status.ok() ? 0 : 1;
  }
  EXPECT_GT(failed, 10);
  EXPECT_LT(failed, 70);
  EXPECT_GT(f.sim.world.stats().lost_requests, 0u);
  EXPECT_GT(f.sim.world.stats().lost_replies, 0u);
}

TEST(SimCalls, NoneIsLostOnceTheNetworkIsWell) {
  CallFixture f({.seed = 9, .call_request_loss = 1.0, .call_reply_loss = 1.0});
  f.Run(kMillisecondNs);
  f.ExpectLate(0);
  f.sim.world.LoseNoMoreCalls();
  f.Run(kMillisecondNs);
  EXPECT_TRUE(f.call.status.ok()) << f.call.status;
}

TEST(SimCalls, DeadServerAnswersNobody) {
  CallFixture f({.seed = 1});
  f.sim.world.KillServer(kServer);
  f.Run(kNeverNs);
  EXPECT_TRUE(absl::IsUnavailable(f.call.status)) << f.call.status;
  EXPECT_EQ(f.handler.handled, 0);
}

TEST(SimCalls, EachProcessIsAPeerOfItsOwn) {
  CallFixture f({.seed = 1});
  f.Run(kNeverNs);
  const PeerId first = f.handler.last_peer;
  TestClient other(f.sim.world.NewFabric());
  PendingCall call;
  call.server = kServer;
  other.endpoint->Call(&call);
  while (!call.done) other.endpoint->Wait(kNeverNs);
  EXPECT_NE(f.handler.last_peer, first);
}

}  // namespace
}  // namespace pando::sim

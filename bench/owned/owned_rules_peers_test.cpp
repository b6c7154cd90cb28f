// What goes wrong where keys are others', and a rule of the way there does not hold
// (common/base/rule.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"
#include "compute/peer/peer_test_util.h"

namespace pando {
namespace {

OwnedStageOptions OfSeed(uint64_t seed) {
  OwnedStageOptions options;
  options.cluster.sim.seed = seed;
  return options;
}

// Their ranges go where a test says.
ClientOptions QuietOwner() {
  ClientOptions client = OwnedStage::SmallOwner();
  client.owner = true;
  client.spread_ranges = false;
  return client;
}

// One of them opens the tree as if its entry said nothing.
TEST_F(OwnedRulesTest, O1) {
  ExpectShown(Rule::kO1, [](uint64_t seed) {
    const Rule broken = BrokenRule();
    BreakRule(Rule::kNone);
    OwnedStage stage(OfSeed(seed));
    OwnedActor* const owner = stage.Join(QuietOwner());
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1)) return stage.what();
    BreakRule(broken);
    OwnedActor* const other = stage.Join(QuietOwner());
    if (!stage.Open(other, 0)) return stage.what();
    Get(&stage, other, 1);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Three members, of which the last one knows the key's owner.
class RoutingStage : public OwnedStage {
 public:
  explicit RoutingStage(uint64_t seed) : OwnedStage(OfSeed(seed)) {
    for (OwnedActor** const actor : {&owner, &next, &asker}) {
      ClientOptions client = QuietOwner();
      client.operation_timeout_ms = 100;
      *actor = Join(client);
      if (!Open(*actor, 0)) Problem("the set-up has failed");
    }
    if (!Put(this, owner, 1) || !Get(this, asker, 1)) Problem("the set-up has failed");
  }
  std::string GiveAndAsk() {
    if (!Give(owner, 0, 0, KeyOf(1), next).ok()) return "the set-up has failed";
    const uint64_t before = refused();
    Get(this, asker, 1);
    if (refused() > before) return "the key of a member that lives cannot be read";
    return what();
  }

  OwnedActor *owner, *next, *asker;
};

TEST_F(OwnedRulesTest, O6) {
  ExpectShown(Rule::kO6, [](uint64_t seed) {
    RoutingStage stage(seed);
    const std::string shown = stage.GiveAndAsk();
    if (!shown.empty()) return shown;
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Who had the key has nothing to do with it any more, and is stopped.
TEST_F(OwnedRulesTest, P4) {
  ExpectShown(Rule::kP4, [](uint64_t seed) {
    RoutingStage stage(seed);
    std::string shown = stage.GiveAndAsk();
    if (!shown.empty()) return "the set-up has failed: " + shown;
    stage.Pause(stage.owner, stage.NowNs(), 300 * kMillisecondNs);
    stage.Quiet(kMillisecondNs);
    const uint64_t before = stage.refused();
    Get(&stage, stage.asker, 1);
    if (stage.refused() > before) shown = "the key cannot be read while another member is stopped";
    stage.Quiet(kSecondNs);
    if (!shown.empty()) return shown;
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Many operations in flight from one to another: how many messages that takes, both ways.
TEST_F(OwnedRulesTest, P2) {
  ExpectShown(Rule::kP2, [](uint64_t seed) -> std::string {
    constexpr int kInFlight = 32, kOperations = 100;
    sim::SimWorld world({.seed = seed});
    TestOwner owner(&world, kOwner);
    TestAsker asker(&world, kAsker, /*session_count=*/4);
    for (int i = 0; i < kInFlight; ++i) {
      asker.Spawn(
          [&, i](OperationContext& context) {
            PeerAnswer answer;
            for (int n = 0; n < kOperations; ++n) {
              (void)asker.client->Call(context, owner.where(), GetRequest(absl::StrCat("key", i)),
                                       &answer);
            }
          },
          kSecondNs, i % 4);
    }
    asker.Drain();
    const double messages = static_cast<double>(asker.messages()) / (kInFlight * kOperations);
    return messages > 0.3 ? absl::StrCat(messages, " messages an operation") : "";
  });
}

// As many messages as may be unanswered wait for something slow.
TEST_F(OwnedRulesTest, P2Patience) {
  ExpectShown(Rule::kP2Patience, [](uint64_t seed) -> std::string {
    sim::SimWorld world({.seed = seed});
    TestOwner owner(&world, kOwner);
    TestAsker asker(&world, kAsker);
    owner.owner.delay = [](const PeerRequest& request) {
      return request.key == "slow" ? 100 * kMillisecondNs : 0;
    };
    int64_t took_ns = 0;
    const auto ask = [&](const char* key) {
      asker.Spawn([&, key](OperationContext& context) {
        const int64_t began_ns = world.clock().NowNs();
        PeerAnswer answer;
        (void)asker.client->Call(context, owner.where(), PutRequest(key, "x"), &answer);
        if (key != std::string("slow")) took_ns = world.clock().NowNs() - began_ns;
      });
      world.RunUntil(world.clock().NowNs() + 100 * kMicrosecondNs);
    };
    for (int i = 0; i < 8; ++i) ask("slow");
    ask("quick");
    asker.Drain();
    return took_ns > 15 * kMillisecondNs ? absl::StrCat("it took ", took_ns, " ns") : "";
  });
}

// A compute server that asks and asks.
struct Flood : PeerHandler {
  Flood(sim::SimWorld* world, const TestOwner& owner)
      : fabric(world->NewFabric()), port(fabric->OpenPeers({.identity = kAsker}).value()) {
    link = port->Connect(owner.address, this).value();
    while (!writable) world->Step();
    PeerMessageWriter writer;
    writer.StartRequests({kAsker, kOwner});
    for (uint32_t i = 0; i < 10; ++i) (void)writer.Add(i, kPeerNoDeadline, GetRequest("key"));
    for (int i = 0; i < 20 && !broken; ++i) {
      (void)link->TrySend(writer.bytes());
      world->RunUntil(world->clock().NowNs() + 10 * kMicrosecondNs);
    }
  }
  void OnMessage(PeerLink*, std::string_view) override {}
  void OnWritable(PeerLink*) override { writable = true; }
  void OnBroken(PeerLink*, const absl::Status&) override { broken = true; }

  std::shared_ptr<Fabric> fabric;
  bool writable = false, broken = false;
  std::shared_ptr<PeerLink> link;
  std::unique_ptr<PeerPort> port;
};

TEST_F(OwnedRulesTest, P4Most) {
  ExpectShown(Rule::kP4Most, [](uint64_t seed) -> std::string {
    constexpr size_t kMost = 50;
    sim::SimWorld world({.seed = seed});
    TestOwner owner(&world, kOwner, {.requests_max_of_link = kMost});
    owner.owner.delay = [](const PeerRequest&) { return kMillisecondNs; };
    const Flood flood(&world, owner);
    const uint64_t begun = owner.owner.begun;
    world.RunUntil(world.clock().NowNs() + 10 * kMillisecondNs);
    return begun > kMost ? absl::StrCat(begun, " requests of one peer are under way") : "";
  });
}

}  // namespace
}  // namespace pando

// Links between compute servers in the simulator: what a seed may do to them, deaths, pauses, cut
// links, and what messages cost where there is a timing model.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/fabric/peer_conformance.h"
#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"

namespace pando::sim {
namespace {

// Remembers when it was called, too.
struct TimedRecorder : PeerAcceptor, PeerHandler {
  explicit TimedRecorder(const SimWorld* on) : world(on) {}
  PeerHandler* OnAccepted(const std::shared_ptr<PeerLink>& link) override {
    links.push_back(link);
    return this;
  }
  void OnMessage(PeerLink*, std::string_view message) override {
    messages.emplace_back(message);
    times.push_back(world->clock().NowNs());
  }
  void OnWritable(PeerLink*) override { ++writable; }
  void OnBroken(PeerLink*, const absl::Status& status) override {
    ++broken;
    why = status;
    broken_ns = world->clock().NowNs();
  }

  const SimWorld* const world;
  std::vector<std::shared_ptr<PeerLink>> links;
  std::vector<std::string> messages;
  std::vector<int64_t> times;
  int writable = 0, broken = 0;
  absl::Status why;
  int64_t broken_ns = 0;
};

struct Peer {
  explicit Peer(SimWorld* on, std::shared_ptr<Fabric> its) : recorder(on), fabric(std::move(its)) {
    PeerOptions options;
    options.acceptor = &recorder;
    port = *fabric->OpenPeers(options);
  }

  TimedRecorder recorder;
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<PeerPort> port;
};

// Two compute servers with a link from `a` to `b`.
struct TwoPeers {
  explicit TwoPeers(const SimOptions& options)
      : world(options), a(&world, world.NewFabric()), b(&world, world.NewFabric()) {
    link = *a.port->Connect(b.port->address(), &a.recorder);
    while (a.recorder.writable == 0) world.Step();
    back = b.recorder.links.at(0);
  }
  void RunFor(int64_t ns) { world.RunUntil(world.clock().NowNs() + ns); }
  // As many as it takes, numbered; returns how many.
  static int SendAll(PeerLink& on, int count) {
    int sent = 0;
    while (sent < count && on.TrySend(absl::StrCat(sent)) == PeerSend::kSent) ++sent;
    return sent;
  }

  SimWorld world;
  Peer a, b;
  std::shared_ptr<PeerLink> link, back;
};

void ExpectPrefix(const std::vector<std::string>& messages, int sent) {
  ASSERT_LE(static_cast<int>(messages.size()), sent);
  for (size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(messages[i], absl::StrCat(i));
}

TEST(SimPeer, ARunFollowsFromItsSeed) {
  const auto run = [](uint64_t seed) {
    TwoPeers sim({.seed = seed});
    sim.world.SetPeerBreakProbability(*sim.a.fabric, 0.02);
    for (int i = 0; i < 50; ++i) {
      TwoPeers::SendAll(*sim.link, 3);
      sim.RunFor(3 * kMicrosecondNs);
    }
    return sim.world.trace_hash();
  };
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
    hashes.insert(run(seed));
  }
  EXPECT_EQ(hashes.size(), 10u);
}

TEST(SimPeer, HowMuchALinkTakesFollowsFromTheSeed) {
  std::set<int> most;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    TwoPeers sim({.seed = seed});
    most.insert(TwoPeers::SendAll(*sim.link, 100));
    EXPECT_EQ(sim.link->TrySend("x"), PeerSend::kFull);
    const int writable = sim.a.recorder.writable;
    sim.RunFor(kMillisecondNs);
    EXPECT_GT(sim.a.recorder.writable, writable);
  }
  EXPECT_GT(most.size(), 15u);
  EXPECT_EQ(*most.begin(), 1);
  EXPECT_LE(*most.rbegin(), 32);
}

// Whatever was under way when a link broke: each end has a prefix, and hears of it once, at its own
// time.
TEST(SimPeer, ABreakLeavesAPrefixToEachEnd) {
  int nothing = 0, some = 0, everything = 0, a_first = 0, b_first = 0, into_the_void = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    TwoPeers sim({.seed = seed});
    const int sent = TwoPeers::SendAll(*sim.link, 8), back = TwoPeers::SendAll(*sim.back, 8);
    for (uint64_t i = 0; i < seed % 7; ++i) sim.world.Step();
    sim.world.BreakPeerLinks(seed % 2 == 0 ? *sim.a.fabric : *sim.b.fabric);
    if (!sim.link->broken() && sim.link->TrySend("lost") == PeerSend::kSent) ++into_the_void;
    sim.RunFor(kMillisecondNs);
    for (const Peer* peer : {&sim.a, &sim.b}) {
      EXPECT_EQ(peer->recorder.broken, 1) << "seed " << seed;
      EXPECT_TRUE(absl::IsUnavailable(peer->recorder.why)) << peer->recorder.why;
    }
    ExpectPrefix(sim.b.recorder.messages, sent);
    ExpectPrefix(sim.a.recorder.messages, back);
    const auto came = static_cast<int>(sim.b.recorder.messages.size());
    ++(came == 0 ? nothing : came == sent ? everything : some);
    ++(sim.a.recorder.broken_ns < sim.b.recorder.broken_ns ? a_first : b_first);
    EXPECT_EQ(sim.link->TrySend("x"), PeerSend::kBroken);
    EXPECT_EQ(sim.world.stats().peer_links_broken, 1u);
  }
  for (const int count : {nothing, some, everything, a_first, b_first, into_the_void}) {
    EXPECT_GT(count, 10);
  }
}

TEST(SimPeer, LinksBreakBySeed) {
  uint64_t broken = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    TwoPeers sim({.seed = seed});
    sim.world.SetPeerBreakProbability(*sim.a.fabric, 0.05);
    int sent = 0;
    while (sent < 40 && sim.a.recorder.broken == 0) {
      if (sim.link->TrySend(absl::StrCat(sent)) == PeerSend::kSent) ++sent;
      sim.RunFor(kMicrosecondNs);
    }
    sim.RunFor(kMillisecondNs);
    ExpectPrefix(sim.b.recorder.messages, sent);
    EXPECT_EQ(sim.a.recorder.broken, sim.b.recorder.broken);
    broken += sim.world.stats().peer_links_broken;
  }
  EXPECT_GT(broken, 20u);
  EXPECT_LT(broken, 50u);
}

TEST(SimPeer, TheOtherEndHearsOfADeathAndTheDeadIsCalledNoMore) {
  std::set<size_t> came;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    TwoPeers sim({.seed = seed});
    TestClient client(sim.a.fabric);  // its code is run to its end by this
    const int sent = TwoPeers::SendAll(*sim.link, 4);
    TwoPeers::SendAll(*sim.back, 4);
    sim.world.KillFabric(*sim.a.fabric);
    EXPECT_EQ(sim.link->TrySend("x"), PeerSend::kBroken);
    EXPECT_TRUE(sim.link->broken());
    sim.RunFor(kMillisecondNs);
    EXPECT_EQ(sim.b.recorder.broken, 1);
    EXPECT_TRUE(absl::IsUnavailable(sim.b.recorder.why));
    ExpectPrefix(sim.b.recorder.messages, sent);
    came.insert(sim.b.recorder.messages.size());
    EXPECT_TRUE(sim.a.recorder.messages.empty()) << "a dead process runs";
    EXPECT_EQ(sim.a.recorder.broken, 0);
    EXPECT_TRUE(
        absl::IsUnavailable(sim.b.port->Connect(sim.a.port->address(), &sim.b.recorder).status()));
    EXPECT_FALSE(sim.a.fabric->OpenPeers({}).ok());

    client.endpoint->Wait(sim.world.clock().NowNs() + 1);
    sim.RunFor(kMillisecondNs);
    EXPECT_EQ(sim.a.recorder.broken, 1);
    EXPECT_TRUE(absl::IsUnavailable(sim.a.recorder.why)) << sim.a.recorder.why;
    EXPECT_TRUE(sim.a.recorder.messages.empty());
  }
  EXPECT_GE(came.size(), 4u) << "any prefix";
}

TEST(SimPeer, WhoIsStoppedTakesHisMessagesLater) {
  TwoPeers sim({.seed = 3});
  sim.world.PauseFabric(*sim.b.fabric);
  const int sent = TwoPeers::SendAll(*sim.link, 100);
  sim.RunFor(10 * kSecondNs);
  EXPECT_TRUE(sim.b.recorder.messages.empty());
  EXPECT_EQ(sim.a.recorder.broken, 0) << "he is not gone";
  EXPECT_EQ(sim.link->TrySend("x"), PeerSend::kFull);
  sim.world.ResumeFabric(*sim.b.fabric);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(static_cast<int>(sim.b.recorder.messages.size()), sent);
  ExpectPrefix(sim.b.recorder.messages, sent);
}

// A link that broke while one of its ends was stopped: he hears of it when he goes on.
TEST(SimPeer, WhoIsStoppedHearsOfABreakLater) {
  TwoPeers sim({.seed = 4});
  sim.world.PauseFabric(*sim.b.fabric);
  sim.world.BreakPeerLinks(*sim.a.fabric);
  sim.RunFor(kSecondNs);
  EXPECT_EQ(sim.a.recorder.broken, 1);
  EXPECT_EQ(sim.b.recorder.broken, 0);
  EXPECT_EQ(sim.back->TrySend("x"), PeerSend::kSent);
  sim.world.ResumeFabric(*sim.b.fabric);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(sim.b.recorder.broken, 1);
}

TEST(SimPeer, WhoIsCutOffFromOneReachesTheOthers) {
  TwoPeers sim({.seed = 5});
  Peer other(&sim.world, sim.world.NewFabric());
  const auto to_other = *sim.a.port->Connect(other.port->address(), &sim.a.recorder);
  sim.RunFor(kMillisecondNs);
  sim.world.CutPeers(*sim.a.fabric, *sim.b.fabric, true);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(sim.a.recorder.broken, 1);
  EXPECT_EQ(sim.b.recorder.broken, 1);
  EXPECT_EQ(to_other->TrySend("hello"), PeerSend::kSent);
  const auto refused = *sim.b.port->Connect(sim.a.port->address(), &sim.b.recorder);
  sim.RunFor(kSecondNs);
  EXPECT_EQ(refused->TrySend("x"), PeerSend::kFull) << "it waits to be open";
  EXPECT_EQ(other.recorder.messages, std::vector<std::string>{"hello"});
  EXPECT_EQ(sim.b.recorder.broken, 1);
  sim.RunFor(2 * kSecondNs);
  EXPECT_EQ(sim.b.recorder.broken, 2);
  EXPECT_EQ(sim.a.recorder.broken, 1) << "he never heard of it";

  sim.world.CutPeers(*sim.a.fabric, *sim.b.fabric, false);
  const auto again = *sim.b.port->Connect(sim.a.port->address(), &sim.b.recorder);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(again->TrySend("back"), PeerSend::kSent);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(sim.a.recorder.messages, std::vector<std::string>{"back"});
}

// What the one sends is lost, what the other one sends arrives, until both have noticed.
TEST(SimPeer, WhoIsCutOffInOneDirectionIsNotHeardOfAndHears) {
  TwoPeers sim({.seed = 6, .peer_messages_max = 255, .peer_silent_ns = 10 * kMillisecondNs});
  sim.world.CutPeersOneWay(*sim.a.fabric, *sim.b.fabric, true);
  EXPECT_EQ(sim.link->TrySend("lost"), PeerSend::kSent);
  EXPECT_EQ(sim.back->TrySend("heard"), PeerSend::kSent);
  sim.RunFor(100 * kMicrosecondNs);
  EXPECT_EQ(sim.a.recorder.messages, std::vector<std::string>{"heard"});
  EXPECT_EQ(sim.a.recorder.broken + sim.b.recorder.broken, 0) << "neither knows";
  sim.RunFor(10 * kMillisecondNs);
  EXPECT_EQ(sim.a.recorder.broken, 1);
  EXPECT_EQ(sim.b.recorder.broken, 1);
  EXPECT_TRUE(sim.b.recorder.messages.empty());
  EXPECT_EQ(sim.world.stats().peer_links_mute, 1u);
  // Its hello is lost; the other one's is answered, and the answer is lost.
  const auto unheard = *sim.a.port->Connect(sim.b.port->address(), &sim.a.recorder);
  const auto unanswered = *sim.b.port->Connect(sim.a.port->address(), &sim.b.recorder);
  sim.RunFor(kSecondNs);
  EXPECT_EQ(sim.b.recorder.links.size(), 1u);
  ASSERT_EQ(sim.a.recorder.links.size(), 1u);
  EXPECT_EQ(sim.a.recorder.links[0]->TrySend("into the void"), PeerSend::kSent);
  EXPECT_EQ(unheard->TrySend("x"), PeerSend::kFull);
  EXPECT_EQ(unanswered->TrySend("x"), PeerSend::kFull);
  sim.RunFor(2 * kSecondNs);
  EXPECT_EQ(sim.a.recorder.broken, 3) << "both of its links";
  EXPECT_EQ(sim.b.recorder.broken, 2) << "the one that it knew";
  EXPECT_TRUE(sim.b.recorder.messages.empty());

  sim.world.CutPeersOneWay(*sim.a.fabric, *sim.b.fabric, false);
  const auto again = *sim.a.port->Connect(sim.b.port->address(), &sim.a.recorder);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(again->TrySend("back"), PeerSend::kSent);
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(sim.b.recorder.messages, std::vector<std::string>{"back"});
}

// A network that is whole again does not bring back what a link has lost: that link ends.
TEST(SimPeer, ALinkThatHasLostSomethingEnds) {
  TwoPeers sim({.seed = 7, .peer_silent_ns = 10 * kMillisecondNs});
  sim.world.CutPeersOneWay(*sim.b.fabric, *sim.a.fabric, true);
  EXPECT_EQ(sim.back->TrySend("lost"), PeerSend::kSent);
  sim.world.CutPeersOneWay(*sim.b.fabric, *sim.a.fabric, false);
  EXPECT_EQ(sim.back->TrySend("lost, too"), PeerSend::kSent);
  sim.RunFor(11 * kMillisecondNs);
  EXPECT_TRUE(sim.a.recorder.messages.empty());
  EXPECT_EQ(sim.a.recorder.broken, 1);
  EXPECT_EQ(sim.b.recorder.broken, 1);
}

// --- With a timing model: round numbers, and the times that follow from them.

constexpr int64_t kPeerOneWay = 2000, kPeerPost = 80, kPeerCompletion = 40, kPeerFetch = 500;
constexpr int64_t kPeerBytesANs = 10, kPeerHeader = 10, kPeerInline = 128;

std::shared_ptr<NicProfile> RoundNumbersOfMessages() {
  auto profile = std::make_shared<NicProfile>();
  profile->cpu = {
      .post_chain_ns = kPeerPost - 30, .post_verb_ns = 30, .completion_ns = kPeerCompletion};
  profile->nic = {
      .fetch_payload_ns = kPeerFetch, .inline_bytes = kPeerInline, .send_ns = 50, .receive_ns = 20};
  profile->link = {.gbits = 8 * kPeerBytesANs,
                   .header_bytes = kPeerHeader * kPeerBytesANs,
                   .packet_bytes = 4096,
                   .propagation_ns = 100,
                   .switch_ns = 200};
  profile->pcie = {.read_ns = 600, .gbits = 8 * kPeerBytesANs};
  profile->atomics = {.buckets = 1, .waiting_max = 1};
  profile->calls = {.one_way_ns = kPeerOneWay, .server_cpu_ns = 300};
  return profile;
}

struct TwoTimedPeers : TwoPeers {
  TwoTimedPeers() : TwoPeers({.mode = DeliveryMode::kWhole, .nic = RoundNumbersOfMessages()}) {}
  // From the send to OnMessage(), where nothing else is under way and nobody's thread posts.
  int64_t Measure(size_t bytes) {
    const int64_t began_ns = world.clock().NowNs();
    EXPECT_EQ(link->TrySend(std::string(bytes, 'x')), PeerSend::kSent);
    RunFor(kMillisecondNs);
    return b.recorder.times.back() - began_ns;
  }
};

TEST(SimPeer, AShortMessageTakesOneWay) {
  TwoTimedPeers sim;
  EXPECT_NEAR(sim.Measure(8), kPeerOneWay + kPeerCompletion, 2);
  EXPECT_NEAR(sim.Measure(128), kPeerOneWay + (128 - 8) / kPeerBytesANs + kPeerCompletion, 2);
}

TEST(SimPeer, ALongMessageIsFetchedAndTakesItsTimeOnTheWire) {
  TwoTimedPeers sim;
  const int64_t transfer = 4096 / kPeerBytesANs;
  EXPECT_NEAR(sim.Measure(4096), kPeerOneWay + kPeerFetch + 2 * transfer + kPeerCompletion, 3);
}

TEST(SimPeer, MessagesShareTheWireAndTheReceiversThread) {
  TwoTimedPeers sim;
  const int64_t began_ns = sim.world.clock().NowNs();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(sim.link->TrySend(std::string(100, 'x')), PeerSend::kSent);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sim.link->TrySend(std::string(1000, 'x')), PeerSend::kSent);
  }
  sim.RunFor(kMillisecondNs);
  const std::vector<int64_t>& times = sim.b.recorder.times;
  ASSERT_EQ(times.size(), 12u);
  EXPECT_NEAR(times[0], began_ns + kPeerOneWay + 9 + kPeerCompletion, 3);
  // The short ones are 50 ns apart (the engine) and 40 (the thread); the long ones on the wire.
  for (size_t i = 1; i < 8; ++i) EXPECT_NEAR(times[i] - times[i - 1], 50, 2) << i;
  for (size_t i = 9; i < 12; ++i)
    EXPECT_NEAR(times[i] - times[i - 1], 1000 / kPeerBytesANs + kPeerHeader, 2);
}

// A client that sends from its session's thread pays for it there.
TEST(SimPeer, ASessionPaysForWhatItSends) {
  TwoTimedPeers sim;
  TestClient client(sim.a.fabric);
  int64_t spent_ns = 0;
  client.endpoint->set_runner([&] {
    const int64_t began_ns = sim.world.clock().NowNs();
    EXPECT_EQ(sim.link->TrySend("one"), PeerSend::kSent);
    EXPECT_EQ(sim.link->TrySend("two"), PeerSend::kSent);
    spent_ns = sim.world.clock().NowNs() - began_ns;
  });
  client.endpoint->Wake();
  sim.RunFor(kMillisecondNs);
  EXPECT_EQ(spent_ns, 2 * kPeerPost);
  EXPECT_EQ(sim.b.recorder.messages, (std::vector<std::string>{"one", "two"}));
  client.endpoint->set_runner(nullptr);
}

}  // namespace
}  // namespace pando::sim

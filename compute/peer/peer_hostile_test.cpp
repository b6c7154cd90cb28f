// Peers that send what no peer sends: they lose their link, and harm nobody.
#include <gtest/gtest.h>

#include "compute/peer/peer_test_util.h"

namespace pando {
namespace {

// Answers as a test says.
struct HostileOwner : PeerAcceptor, PeerHandler {
  HostileOwner(sim::SimWorld* world, PeerIdentity me) : fabric(world->NewFabric()) {
    port = fabric->OpenPeers({.identity = me, .acceptor = this}).value();
  }
  PeerHandler* OnAccepted(const std::shared_ptr<PeerLink>&) override { return this; }
  void OnMessage(PeerLink* link, std::string_view message) override {
    PeerMessageHeader header;
    std::vector<PeerNumberedRequest> requests;
    ASSERT_TRUE(ParsePeerRequests(message, &header, &requests).ok());
    received += static_cast<int>(requests.size());
    react(link, header, requests);
  }
  void OnWritable(PeerLink*) override {}
  void OnBroken(PeerLink*, const absl::Status&) override { ++broken; }

  std::shared_ptr<Fabric> fabric;
  std::function<void(PeerLink*, const PeerMessageHeader&, const std::vector<PeerNumberedRequest>&)>
      react;
  int received = 0, broken = 0;
  std::unique_ptr<PeerPort> port;
};

std::string AnswerTo(uint32_t number, const PeerAnswer& answer, PeerMessageHeader header) {
  PeerMessageWriter writer;
  writer.StartAnswers(header);
  EXPECT_TRUE(writer.Add(number, answer));
  return std::string(writer.bytes());
}

TEST(PeerHostile, AnAskerTakesNoGarbage) {
  const PeerMessageHeader right{kOwner, kAsker};
  PeerAnswer done, rows, other;
  done.value = "value";
  rows.is_scan = true;
  other.not_owner = true;
  using Numbered = std::vector<PeerNumberedRequest>;
  const std::vector<std::function<std::string(const Numbered&)>> answers = {
      [](const Numbered&) { return std::string("garbage"); },
      [](const Numbered&) { return std::string(4096, '\0'); },
      [&](const Numbered& n) { return AnswerTo(n[0].number + 1, done, right); },
      [&](const Numbered& n) { return AnswerTo(n[0].number ^ 0x70000, done, right); },
      [&](const Numbered& n) { return AnswerTo(n[0].number | 0xffff, done, right); },
      [&](const Numbered& n) { return AnswerTo(n[0].number, rows, right); },
      [&](const Numbered& n) {
        return AnswerTo(n[0].number, done, {kOwner, {2, 8}});
      },
      [&](const Numbered& n) {
        return AnswerTo(n[0].number, done, {{1, 6}, kAsker});
      },
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    sim::SimWorld world({.seed = i + 1});
    HostileOwner owner(&world, kOwner);
    owner.react = [&](PeerLink* link, const PeerMessageHeader&, const Numbered& requests) {
      EXPECT_EQ(link->TrySend(answers[i](requests)), PeerSend::kSent);
    };
    TestAsker asker(&world, kAsker);
    absl::Status write, read;
    PeerAnswer answer;
    const PeerAddress where{kOwner, owner.port->address()};
    asker.Run([&](OperationContext& context) {
      write = asker.client->Call(context, where, PutRequest("key", "value"), &answer);
    });
    EXPECT_TRUE(IsOutcomeUnknown(write)) << i << ": " << write;
    EXPECT_EQ(owner.received, 1) << "a write is sent once";
    asker.Run(
        [&](OperationContext& context) {
          read = asker.client->Call(context, where, GetRequest("key"), &answer);
        },
        5 * kMillisecondNs);
    EXPECT_TRUE(absl::IsDeadlineExceeded(read)) << i << ": " << read;
    EXPECT_GT(owner.received, 3) << "a read goes again";
    EXPECT_LT(owner.received, 200) << "but not in a hurry";
    EXPECT_EQ(asker.client->counters().links_closed, asker.client->counters().links);
  }
}

// The second answer to a request is for nobody, even if another request has its place now.
TEST(PeerHostile, AnAskerTakesNoAnswerTwice) {
  sim::SimWorld world({.seed = 1});
  HostileOwner owner(&world, kOwner);
  PeerAnswer said;
  said.value = "first";
  owner.react = [&](PeerLink* link, const PeerMessageHeader& header,
                    const std::vector<PeerNumberedRequest>& requests) {
    static uint32_t first;
    if (owner.received == 1) first = requests[0].number;
    (void)link->TrySend(AnswerTo(first, said, {header.to, header.from}));
  };
  TestAsker asker(&world, kAsker);
  PeerAnswer answer;
  const PeerAddress where{kOwner, owner.port->address()};
  absl::Status first, second;
  asker.Run([&](OperationContext& context) {
    first = asker.client->Call(context, where, PutRequest("key", "1"), &answer);
    second = asker.client->Call(context, where, PutRequest("key", "2"), &answer);
  });
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(IsOutcomeUnknown(second)) << second;
}

// A peer that answers nothing is not waited for endlessly: the link ends when half of all numbers
// are overdue.
TEST(PeerHostile, AnAskerGivesUpALinkWithoutAnswers) {
  sim::SimWorld world({.seed = 1});
  HostileOwner owner(&world, kOwner);
  owner.react = [](PeerLink*, const PeerMessageHeader&, const std::vector<PeerNumberedRequest>&) {};
  TestAsker asker(&world, kAsker);
  const PeerAddress where{kOwner, owner.port->address()};
  int unknown = 0;
  for (int i = 0; i < 600; ++i) {
    asker.Spawn(
        [&](OperationContext& context) {
          PeerAnswer answer;
          const absl::Status status =
              asker.client->Call(context, where, PutRequest("key", "1"), &answer);
          EXPECT_TRUE(IsOutcomeUnknown(status)) << status << owner.received;
          unknown += IsOutcomeUnknown(status);
        },
        10 * kMillisecondNs + i);
  }
  asker.Drain();
  EXPECT_EQ(unknown, 600);
  EXPECT_EQ(asker.client->counters().links_closed, 1u);
}

// A compute server that sends what it likes.
struct HostileAsker : PeerHandler {
  HostileAsker(sim::SimWorld* world, const TestOwner& owner)
      : fabric(world->NewFabric()), port(fabric->OpenPeers({.identity = kAsker}).value()) {
    link = port->Connect(owner.address, this).value();
    while (writable == 0) world->Step();
  }
  void OnMessage(PeerLink*, std::string_view message) override {
    PeerMessageHeader header;
    std::vector<PeerAnswerView> views;
    ASSERT_TRUE(ParsePeerAnswers(message, &header, &views).ok());
    answers += views.size();
  }
  void OnWritable(PeerLink*) override { ++writable; }
  void OnBroken(PeerLink*, const absl::Status&) override { ++broken; }

  std::shared_ptr<Fabric> fabric;
  int writable = 0, broken = 0;
  size_t answers = 0;
  std::shared_ptr<PeerLink> link;
  std::unique_ptr<PeerPort> port;
};

std::string Requests(int count, PeerMessageHeader header) {
  PeerMessageWriter writer;
  writer.StartRequests(header);
  for (int i = 0; i < count; ++i) {
    // All have the same number: that is the asker's business.
    EXPECT_TRUE(writer.Add(7, kPeerNoDeadline, PutRequest("key", "value")));
  }
  return std::string(writer.bytes());
}

TEST(PeerHostile, AServiceTakesNoGarbage) {
  const std::string good = Requests(3, {kAsker, kOwner});
  const std::vector<std::string> messages = {"garbage",
                                             std::string(4096, '\0'),
                                             good.substr(0, good.size() - 1),
                                             good + "x",
                                             Requests(1, {{2, 8}, kOwner}),  // somebody else's name
                                             AnswerTo(7, {}, {kAsker, kOwner})};
  sim::SimWorld world({.seed = 1});
  TestOwner owner(&world, kOwner);
  HostileAsker lawful(&world, owner);
  for (const std::string& message : messages) {
    HostileAsker asker(&world, owner);
    EXPECT_EQ(asker.link->TrySend(message), PeerSend::kSent);
    world.RunUntil(world.clock().NowNs() + kMillisecondNs);
    EXPECT_EQ(asker.broken, 1);
    EXPECT_EQ(asker.answers, 0u);
  }
  EXPECT_EQ(owner.owner.begun, 0u);
  EXPECT_EQ(owner.service->counters().links_closed, messages.size());
  EXPECT_EQ(lawful.link->TrySend(good), PeerSend::kSent);
  world.RunUntil(world.clock().NowNs() + kMillisecondNs);
  EXPECT_EQ(lawful.answers, 3u);
  EXPECT_EQ(lawful.broken, 0);
}

TEST(PeerHostile, AServiceTakesNoMoreThanItMay) {
  sim::SimWorld world({.seed = 1});
  TestOwner owner(&world, kOwner, {.requests_max_of_link = 100});
  owner.owner.delay = [](const PeerRequest&) { return kMillisecondNs; };
  HostileAsker asker(&world, owner);
  for (int i = 0; i < 1000 && asker.broken == 0; ++i) {
    (void)asker.link->TrySend(Requests(30, {kAsker, kOwner}));
    world.Step();
  }
  world.RunUntil(world.clock().NowNs() + 10 * kMillisecondNs);
  EXPECT_EQ(asker.broken, 1);
  EXPECT_LE(owner.owner.begun, 100u);
  EXPECT_EQ(owner.owner.begun, owner.owner.executed);
  // Others are served.
  TestAsker other(&world, {3, 1});
  other.Run([&](OperationContext& context) {
    PeerAnswer answer;
    EXPECT_TRUE(other.client->Call(context, owner.where(), GetRequest("key"), &answer).ok());
  });
}

}  // namespace
}  // namespace pando

// How many messages operations take (rule P2): these numbers do not depend on the machine.
#include <gtest/gtest.h>

#include <algorithm>

#include "compute/peer/peer_test_util.h"

namespace pando {
namespace {

TEST(PeerCount, OneInFlightTakesTwoMessages) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    sim::SimWorld world({.seed = seed});
    TestOwner owner(&world, kOwner);
    TestAsker asker(&world, kAsker);
    owner.owner.delay = [&](const PeerRequest& request) {
      return request.key == "slow" ? 20 * kMicrosecondNs : 0;
    };
    uint32_t cost_messages = 0;
    asker.Run([&](OperationContext& context) {
      PeerAnswer answer;
      for (int i = 0; i < 100; ++i) {
        const PeerRequest request =
            i % 2 == 0 ? PutRequest("key", "value") : GetRequest(i % 3 == 0 ? "slow" : "key");
        EXPECT_TRUE(asker.client->Call(context, owner.where(), request, &answer).ok());
        EXPECT_FALSE(answer.not_owner);
      }
      cost_messages = context.cost.messages;
    });
    EXPECT_EQ(asker.messages(), 200u) << "seed " << seed;
    EXPECT_EQ(cost_messages, 200u);
    EXPECT_EQ(owner.owner.executed, 100u);
    EXPECT_EQ(owner.service->counters().requests, 100u);
    EXPECT_EQ(owner.service->counters().answers, 100u);
  }
}

// Numbers are reused, and the part that distinguishes them wraps around.
TEST(PeerCount, NumbersWrapAround) {
  sim::SimWorld world({.seed = 2});
  TestOwner owner(&world, kOwner);
  TestAsker asker(&world, kAsker);
  asker.Run(
      [&](OperationContext& context) {
        PeerAnswer answer;
        for (int i = 0; i < 70'000; ++i) {
          ASSERT_TRUE(asker.client->Call(context, owner.where(), GetRequest("key"), &answer).ok());
        }
      },
      1000 * kSecondNs);
  EXPECT_EQ(asker.messages(), 140'000u);
  EXPECT_EQ(asker.client->counters().links, 1u);
}

struct Load {
  int in_flight = 32;  // operations, of all sessions together
  int sessions = 1;
  double misses = 0;  // the part of each key's operations that takes a chain's time and some
  bool cheap_messages = true;
};

struct Took {
  double messages = 0;  // an operation, both ways
  int64_t ns = 0;       // all of it
};

Took RunLoad(uint64_t seed, const Load& load) {
  constexpr int kOperations = 100;
  sim::SimWorld world({.seed = seed});
  TestOwner owner(&world, kOwner, {.cheap_messages = load.cheap_messages});
  TestAsker asker(&world, kAsker, load.sessions, load.cheap_messages);
  Random random(seed);
  owner.owner.delay = [&](const PeerRequest&) {
    return random.Chance(load.misses)
               ? static_cast<int64_t>(3'000 + random.Uniform(3) * 2'000 + random.Uniform(1'000))
               : 0;
  };
  for (int i = 0; i < load.in_flight; ++i) {
    asker.Spawn(
        [&, i](OperationContext& context) {
          PeerAnswer answer;
          const std::string key = absl::StrCat("key", i);
          for (int n = 0; n < kOperations; ++n) {
            const PeerRequest request = n % 2 == 0 ? PutRequest(key, "12345678") : GetRequest(key);
            EXPECT_TRUE(asker.client->Call(context, owner.where(), request, &answer).ok());
          }
        },
        kSecondNs, i % load.sessions);
  }
  asker.Drain();
  const int operations = load.in_flight * kOperations;
  EXPECT_EQ(owner.owner.executed, static_cast<uint64_t>(operations));
  return {static_cast<double>(asker.messages()) / operations, world.clock().NowNs()};
}

TEST(PeerCount, ThirtyTwoInFlightShareMessages) {
  for (const double misses : {0.0, 0.1, 0.5, 1.0}) {
    for (const int sessions : {1, 4}) {
      double most = 0;
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        most = std::max(most, RunLoad(seed, {.sessions = sessions, .misses = misses}).messages);
      }
      // Many sessions that wait for the leaves each go on at a time of their own.
      EXPECT_LE(most, sessions > 1 && misses > 0.1 ? 0.3 : 0.25)
          << misses << " of misses, " << sessions << " sessions";
      RecordProperty(absl::StrCat("messages_", misses, "_", sessions), absl::StrCat(most));
    }
  }
}

// Callers of many sessions, each with one operation in flight, need not wait for each other's
// answers where messages are cheap; where each is a system call they share two.
TEST(PeerCount, FewInFlightWaitForNoOthersWhereMessagesAreCheap) {
  Took cheap, dear;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Load load = {.in_flight = 8, .sessions = 8, .misses = 1};
    const Took one = RunLoad(seed, load);
    cheap.messages += one.messages / 20;
    cheap.ns += one.ns;
    Load shared = load;
    shared.cheap_messages = false;
    const Took other = RunLoad(seed, shared);
    dear.messages += other.messages / 20;
    dear.ns += other.ns;
  }
  EXPECT_LT(static_cast<double>(cheap.ns), 0.9 * static_cast<double>(dear.ns));
  EXPECT_LT(dear.messages, 0.8 * cheap.messages);
  EXPECT_LE(cheap.messages, 2);
  RecordProperty("cheap", absl::StrCat(cheap.messages, " messages, ", cheap.ns, " ns"));
  RecordProperty("dear", absl::StrCat(dear.messages, " messages, ", dear.ns, " ns"));
}

// What as many messages' requests wait for as may be unanswered holds up nobody else.
TEST(PeerCount, SlowRequestsHoldUpNoOthers) {
  sim::SimWorld world({.seed = 3});
  TestOwner owner(&world, kOwner);
  TestAsker asker(&world, kAsker);
  owner.owner.delay = [](const PeerRequest& request) {
    return request.key == "slow" ? 100 * kMillisecondNs : 0;
  };
  const auto ask = [&](OperationContext& context, std::string_view key) {
    PeerAnswer answer;
    EXPECT_TRUE(asker.client->Call(context, owner.where(), PutRequest(key, "x"), &answer).ok());
  };
  asker.Run([&](OperationContext& context) { ask(context, "link"); });
  for (int i = 0; i < 8; ++i) {
    asker.Spawn([&](OperationContext& context) { ask(context, "slow"); });
    world.RunUntil(world.clock().NowNs() + 100 * kMicrosecondNs);
  }
  int64_t took_ns = 0;
  for (int i = 0; i < 10; ++i) {
    asker.Spawn([&](OperationContext& context) {
      const int64_t began_ns = world.clock().NowNs();
      ask(context, "quick");
      took_ns = std::max(took_ns, world.clock().NowNs() - began_ns);
    });
  }
  asker.Drain();
  EXPECT_GT(took_ns, 0);
  EXPECT_LT(took_ns, 15 * kMillisecondNs);
}

// More requests than may be unanswered: the rest wait, and all are answered.
TEST(PeerCount, NoMoreAreUnansweredThanMayBe) {
  sim::SimWorld world({.seed = 4});
  TestOwner owner(&world, kOwner);
  TestAsker asker(&world, kAsker);
  uint64_t most = 0;
  owner.owner.delay = [&](const PeerRequest&) {
    most = std::max(most, owner.owner.begun - owner.owner.executed);
    return 200 * kMicrosecondNs;
  };
  int answered = 0;
  for (int i = 0; i < 2000; ++i) {
    asker.Spawn([&, i](OperationContext& context) {
      PeerAnswer answer;
      const std::string key = absl::StrCat("key", i);
      answered += asker.client->Call(context, owner.where(), AddRequest(key), &answer).ok() ? 1 : 0;
    });
  }
  asker.Drain();
  EXPECT_EQ(answered, 2000);
  EXPECT_EQ(owner.owner.executed, 2000u);
  EXPECT_LE(most, 1024u);
  EXPECT_GT(most, 500u);
  EXPECT_EQ(asker.client->counters().links, 1u);
}

}  // namespace
}  // namespace pando

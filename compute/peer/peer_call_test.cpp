// What calls of peers promise beside counts and breaks: deadlines, targets, bounds, scans, and the
// end of a service.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "compute/peer/peer_test_util.h"

namespace pando {
namespace {

struct Two {
  explicit Two(uint64_t seed, PeerService::Options options = {}, uint32_t messages_max = 32)
      : world({.seed = seed, .peer_messages_max = messages_max}),
        owner(&world, kOwner, options),
        asker(&world, kAsker) {}

  absl::Status Call(const PeerRequest& request, PeerAnswer* answer,
                    int64_t timeout_ns = kSecondNs) {
    absl::Status status;
    asker.Run(
        [&](OperationContext& context) {
          status = asker.client->Call(context, owner.where(), request, answer);
        },
        timeout_ns);
    return status;
  }
  void RunFor(int64_t ns) { world.RunUntil(world.clock().NowNs() + ns); }

  sim::SimWorld world;
  TestOwner owner;
  TestAsker asker;
  PeerAnswer answer;
};

TEST(PeerCall, AnswersAreWhatTheOwnerSays) {
  Two two(1);
  EXPECT_TRUE(two.Call(PutRequest("a", "1"), &two.answer).ok());
  EXPECT_TRUE(two.answer.status.ok());
  EXPECT_TRUE(two.Call(GetRequest("a"), &two.answer).ok());
  EXPECT_EQ(two.answer.value, "1");
  EXPECT_TRUE(two.Call(GetRequest("b"), &two.answer).ok());
  EXPECT_TRUE(absl::IsNotFound(two.answer.status));
  EXPECT_EQ(two.answer.value, "");
  PeerRequest replace = PutRequest("a", "2");
  replace.write = Write::Kind::kReplace;
  replace.expected = "0";
  EXPECT_TRUE(two.Call(replace, &two.answer).ok());
  EXPECT_TRUE(IsConditionFailed(two.answer.status));
  EXPECT_EQ(two.answer.value, "1");
  EXPECT_TRUE(two.Call(AddRequest("a"), &two.answer).ok());
  EXPECT_EQ(two.answer.value, "11");
}

TEST(PeerCall, AnotherIncarnationDoesNothing) {
  Two two(2);
  for (const PeerIdentity target : {PeerIdentity{1, 6}, PeerIdentity{1, 8}, PeerIdentity{3, 7}}) {
    absl::Status status;
    two.asker.Run([&](OperationContext& context) {
      status = two.asker.client->Call(context, {target, two.owner.address}, PutRequest("a", "1"),
                                      &two.answer);
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(two.answer.not_owner);
  }
  EXPECT_EQ(two.owner.owner.begun, 0u);
}

TEST(PeerCall, ScansComeInPieces) {
  Two two(3);
  for (int i = 0; i < 1000; ++i) two.owner.owner.entries[absl::StrCat("key", 1000 + i)] = "value";
  for (const bool down : {false, true}) {
    PeerRequest request{.operation = PeerRequest::Operation::kScan, .tree_id = 1};
    std::string at = down ? "key1900" : "key1100";
    bool after = !down;
    std::vector<std::string> keys;
    request.down = down;
    request.end = {down ? "key1100" : "key1900", !down};
    request.rows_max = 200;
    int pieces = 0;
    do {
      request.at = {at, after};
      ASSERT_TRUE(two.Call(request, &two.answer).ok());
      ASSERT_TRUE(two.answer.status.ok());
      PeerRowReader reader(two.answer.rows);
      for (std::string_view key, value; reader.Next(&key, &value);) keys.emplace_back(key);
      at = two.answer.reached_key;
      after = two.answer.reached_after;
      ++pieces;
    } while (two.answer.more);
    EXPECT_EQ(pieces, 4);
    EXPECT_EQ(keys.size(), 800u);
    if (down) std::reverse(keys.begin(), keys.end());
    EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
  }
}

TEST(PeerCall, ADeadlineAfterSendingLeavesAWriteUnknown) {
  Two two(4);
  two.owner.owner.delay = [](const PeerRequest& request) {
    return request.key == "slow" ? 10 * kMillisecondNs : 0;
  };
  EXPECT_TRUE(IsOutcomeUnknown(two.Call(AddRequest("slow"), &two.answer, kMillisecondNs)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(two.Call(GetRequest("slow"), &two.answer, kMillisecondNs)));
  EXPECT_TRUE(two.Call(AddRequest("quick"), &two.answer).ok());
  EXPECT_EQ(two.answer.value, "1") << "answers that come late are nobody's";
  two.RunFor(20 * kMillisecondNs);
  EXPECT_TRUE(two.Call(GetRequest("slow"), &two.answer).ok());
  EXPECT_EQ(two.answer.value, "1");
  EXPECT_EQ(two.asker.client->counters().links_closed, 0u);
}

TEST(PeerCall, ADeadlineBeforeSendingHasNoEffect) {
  Two two(5);
  two.world.PauseFabric(*two.owner.fabric);  // the link does not open
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(two.Call(AddRequest("key"), &two.answer, 10 * kMillisecondNs)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(two.Call(AddRequest("key"), &two.answer, 0)));
  two.world.ResumeFabric(*two.owner.fabric);
  two.RunFor(10 * kMillisecondNs);
  EXPECT_EQ(two.owner.owner.begun, 0u);
  EXPECT_TRUE(two.Call(AddRequest("key"), &two.answer).ok());
  EXPECT_EQ(two.answer.value, "1");
}

// What comes to a service when its time has run out is not begun.
TEST(PeerCall, ARequestThatComesTooLateIsNotExecuted) {
  Two two(6);
  EXPECT_TRUE(two.Call(GetRequest("key"), &two.answer).ok());
  std::optional<absl::Status> status;
  two.asker.Spawn(
      [&](OperationContext& context) {
        status = two.asker.client->Call(context, two.owner.where(), AddRequest("key"), &two.answer);
      },
      900);  // less than a microsecond: none is left when it comes
  two.RunFor(kMillisecondNs);
  ASSERT_TRUE(status.has_value());
  EXPECT_FALSE(status->ok());
  EXPECT_EQ(two.owner.owner.begun, 1u);
}

TEST(PeerCall, NobodyListensThere) {
  Two two(7);
  absl::Status status;
  const int64_t began_ns = two.world.clock().NowNs();
  two.asker.Run([&](OperationContext& context) {
    status = two.asker.client->Call(context, {kOwner, "nowhere"}, AddRequest("a"), &two.answer);
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(two.world.clock().NowNs() - began_ns, kMillisecondNs);
}

TEST(PeerCall, AServiceRefusesWhatIsBeyondItsRoom) {
  Two two(8, {.requests_max = 200});
  two.owner.owner.delay = [](const PeerRequest&) { return kMillisecondNs; };
  int done = 0, refused = 0;
  for (int i = 0; i < 500; ++i) {
    two.asker.Spawn([&, i](OperationContext& context) {
      PeerAnswer answer;
      const std::string key = absl::StrCat("key", i);
      ASSERT_TRUE(
          two.asker.client->Call(context, two.owner.where(), AddRequest(key), &answer).ok());
      ++(answer.status.ok() ? done : refused);
      EXPECT_TRUE(answer.status.ok() || absl::IsResourceExhausted(answer.status));
    });
  }
  two.asker.Drain();
  EXPECT_EQ(done + refused, 500);
  EXPECT_GT(done, 20);
  EXPECT_GT(refused, 100);
  EXPECT_EQ(two.owner.owner.executed, static_cast<uint64_t>(done));
  EXPECT_EQ(two.owner.service->counters().refused, static_cast<uint64_t>(refused));
}

// A link that takes one message at a time, and an asker that takes none for a while.
TEST(PeerCall, AnswersWaitForRoom) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Two two(seed, {}, 1);
    const std::string value(kPeerValueBytesMax, 'v');
    int done = 0;
    for (int i = 0; i < 200; ++i) {
      two.asker.Spawn([&, i](OperationContext& context) {
        PeerAnswer answer;
        const std::string key = absl::StrCat("key", i);
        PeerRequest upsert = AddRequest(key);
        upsert.value = value;
        ASSERT_TRUE(two.asker.client->Call(context, two.owner.where(), upsert, &answer).ok());
        EXPECT_EQ(answer.value, value);
        ++done;
      });
    }
    two.RunFor(static_cast<int64_t>(seed) * 2 * kMicrosecondNs);
    two.world.PauseFabric(*two.asker.fabric);
    two.RunFor(10 * kMillisecondNs);
    two.world.ResumeFabric(*two.asker.fabric);
    two.asker.Drain();
    EXPECT_EQ(done, 200);
  }
}

// The service's end waits for what is executed; the asker hears of the link's.
TEST(PeerCall, AServiceEndsWhileRequestsRun) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Two two(seed);
    two.owner.owner.delay = [](const PeerRequest&) { return 30 * kMicrosecondNs; };
    std::vector<absl::Status> statuses(20);
    for (size_t i = 0; i < statuses.size(); ++i) {
      two.asker.Spawn([&, i](OperationContext& context) {
        PeerAnswer answer;
        const std::string key = absl::StrCat("key", i);
        statuses[i] = two.asker.client->Call(context, two.owner.where(), AddRequest(key), &answer);
      });
    }
    two.RunFor(static_cast<int64_t>(seed) * kMicrosecondNs);
    two.owner.port.reset();
    two.owner.service.reset();
    EXPECT_EQ(two.owner.owner.begun, two.owner.owner.executed);
    two.asker.Drain();
    for (size_t i = 0; i < statuses.size(); ++i) {
      const size_t times = two.owner.owner.entries.count(absl::StrCat("key", i));
      EXPECT_TRUE(!statuses[i].ok() || times == 1);
      EXPECT_TRUE(!absl::IsUnavailable(statuses[i]) || times == 0);
      EXPECT_TRUE(statuses[i].ok() || absl::IsUnavailable(statuses[i]) ||
                  IsOutcomeUnknown(statuses[i]))
          << statuses[i];
    }
  }
}

// One client asks many peers; those that have gone are forgotten.
TEST(PeerCall, ManyPeers) {
  Two two(9);
  std::vector<std::unique_ptr<TestOwner>> others;
  for (uint16_t i = 0; i < 10; ++i) {
    others.push_back(
        std::make_unique<TestOwner>(&two.world, PeerIdentity{static_cast<uint16_t>(10 + i), 1}));
  }
  for (int round = 0; round < 3; ++round) {
    for (const auto& other : others) {
      two.asker.Spawn([&](OperationContext& context) {
        PeerAnswer answer;
        EXPECT_TRUE(
            two.asker.client->Call(context, other->where(), AddRequest("key"), &answer).ok());
      });
    }
    two.asker.Drain();
  }
  for (const auto& other : others) EXPECT_EQ(other->owner.entries["key"], "111");
  EXPECT_EQ(two.asker.client->counters().links, 10u);
  EXPECT_EQ(two.asker.messages(), 60u);
  others.clear();
  two.RunFor(kMillisecondNs);
  EXPECT_TRUE(two.Call(AddRequest("key"), &two.answer).ok());
}

// Invariant 4: what one asks stays with one session; who comes gets the one of the fewest links,
// also after others have gone.
TEST(PeerCall, SessionsShareTheLinks) {
  sim::SimWorld world({.seed = 10});
  TestOwner owner(&world, kOwner, {}, /*session_count=*/3);
  std::vector<std::unique_ptr<TestAsker>> askers;
  const auto come = [&] {
    const auto id = static_cast<uint16_t>(100 + askers.size());
    askers.push_back(std::make_unique<TestAsker>(&world, PeerIdentity{id, 1}));
  };
  const auto ask = [&] {
    owner.owner.begun_on.clear();
    for (const auto& asker : askers) {
      if (asker == nullptr) continue;
      for (int i = 0; i < 4; ++i) {
        asker->Run([&](OperationContext& context) {
          PeerAnswer answer;
          EXPECT_TRUE(asker->client->Call(context, owner.where(), AddRequest("key"), &answer).ok());
        });
      }
    }
    std::vector<uint64_t> counts;
    for (const auto& [session, count] : owner.owner.begun_on) counts.push_back(count);
    return counts;
  };
  for (int i = 0; i < 6; ++i) come();
  EXPECT_EQ(ask(), std::vector<uint64_t>(3, 8));
  // The first and the fourth were with one session.
  askers[0].reset();
  askers[3].reset();
  world.RunUntil(world.clock().NowNs() + kMillisecondNs);
  EXPECT_EQ(ask(), std::vector<uint64_t>(2, 8));
  come();
  come();
  EXPECT_EQ(ask(), std::vector<uint64_t>(3, 8));
}

}  // namespace
}  // namespace pando

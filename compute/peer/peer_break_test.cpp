// Links that break, peers that die: a write is done at most once, and what is said of it is true
// (rule P3).
#include <gtest/gtest.h>

#include <set>

#include "compute/peer/peer_test_util.h"

namespace pando {
namespace {

// Writes to keys of their own, and what was said of them.
struct Outcomes {
  int done = 0, unknown = 0, unknown_done = 0, without_effect = 0;
  int reads = 0, reads_failed = 0;

  // Of one write that has ended; `times`: how often it was done, in the end.
  void Count(const absl::Status& status, size_t times, uint64_t seed) {
    EXPECT_LE(times, 1u) << "done twice; seed " << seed;
    if (status.ok()) {
      ++done;
      EXPECT_EQ(times, 1u) << "seed " << seed;
    } else if (IsOutcomeUnknown(status)) {
      ++unknown;
      unknown_done += static_cast<int>(times);
    } else {
      ++without_effect;
      EXPECT_EQ(times, 0u) << status << "; seed " << seed;
    }
  }
};

struct KeyWrite {
  std::string key;
  absl::Status status;
};

// Several coroutines that write and read, while `hurt` does something to the world.
void RunHurt(uint64_t seed, const std::function<void(sim::SimWorld&, TestOwner&, TestAsker&)>& hurt,
             Outcomes* outcomes, int64_t timeout_ns = 50 * kMillisecondNs) {
  sim::SimWorld world({.seed = seed, .peer_messages_max = 4});
  TestOwner owner(&world, kOwner);
  TestAsker asker(&world, kAsker, 2);
  Random random(seed);
  owner.owner.delay = [&](const PeerRequest&) {
    return random.Chance(0.5) ? static_cast<int64_t>(random.Uniform(10'000)) : 0;
  };
  owner.owner.entries["read"] = "value";
  std::vector<KeyWrite> writes(60);
  for (size_t i = 0; i < 6; ++i) {
    asker.Spawn(
        [&, i](OperationContext& whole) {
          for (size_t n = 0; n < 10; ++n) {
            PeerAnswer answer;
            OperationContext writing(whole, whole.session.NowNs() + timeout_ns);
            KeyWrite& write = writes[10 * i + n];
            write.key = absl::StrCat("key", i, "-", n);
            write.status =
                asker.client->Call(writing, owner.where(), AddRequest(write.key), &answer);
            EXPECT_TRUE(!write.status.ok() || answer.value == "1");
            OperationContext reading(whole, whole.session.NowNs() + timeout_ns);
            const absl::Status read =
                asker.client->Call(reading, owner.where(), GetRequest("read"), &answer);
            ++outcomes->reads;
            if (read.ok()) {
              EXPECT_EQ(answer.value, "value");
            } else {
              ++outcomes->reads_failed;
              EXPECT_FALSE(IsOutcomeUnknown(read)) << read;
            }
          }
        },
        kSecondNs, static_cast<int>(i % 2));
  }
  hurt(world, owner, asker);
  asker.Drain();
  // What is still under way at the owner ends.
  world.RunUntil(world.clock().NowNs() + kSecondNs);
  for (const KeyWrite& write : writes) {
    const auto found = owner.owner.entries.find(write.key);
    outcomes->Count(write.status, found == owner.owner.entries.end() ? 0 : found->second.size(),
                    seed);
  }
}

TEST(PeerBreak, LinksThatBreakBySeed) {
  Outcomes outcomes;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    RunHurt(
        seed,
        [&](sim::SimWorld& world, TestOwner& owner, TestAsker& asker) {
          world.SetPeerBreakProbability(*asker.fabric, seed % 3 == 0 ? 0.0 : 0.05);
          world.SetPeerBreakProbability(*owner.fabric, seed % 3 == 1 ? 0.0 : 0.05);
        },
        &outcomes);
  }
  EXPECT_EQ(outcomes.reads_failed, 0) << "reads go again";
  EXPECT_EQ(outcomes.without_effect, 0) << "what was not sent goes again";
  EXPECT_GT(outcomes.done, 1000);
  EXPECT_GT(outcomes.unknown, 100);
  EXPECT_GT(outcomes.unknown_done, 30);
  EXPECT_LT(outcomes.unknown_done, outcomes.unknown - 30);
}

// All links break once, at each moment of a short run.
TEST(PeerBreak, LinksThatBreakAtEveryMoment) {
  Outcomes outcomes;
  for (uint64_t step = 0; step < 400; ++step) {
    RunHurt(
        1 + step % 3,
        [&](sim::SimWorld& world, TestOwner& owner, TestAsker& asker) {
          for (uint64_t i = 0; i < step && world.Step(); ++i) {
          }
          world.BreakPeerLinks(step % 2 == 0 ? *asker.fabric : *owner.fabric);
        },
        &outcomes);
  }
  EXPECT_EQ(outcomes.reads_failed, 0);
  EXPECT_GT(outcomes.unknown, 100);
  EXPECT_GT(outcomes.unknown_done, 50);
}

// The owner's process dies at each moment: no call waits longer than it may, and none is wrong.
TEST(PeerBreak, AnOwnerThatDiesAtEveryMoment) {
  Outcomes outcomes;
  for (uint64_t step = 0; step < 300; ++step) {
    RunHurt(
        1 + step % 3,
        [&](sim::SimWorld& world, TestOwner& owner, TestAsker&) {
          for (uint64_t i = 0; i < step && world.Step(); ++i) {
          }
          world.KillFabric(*owner.fabric);
        },
        &outcomes);
  }
  EXPECT_GT(outcomes.done, 100);
  EXPECT_GT(outcomes.unknown, 100);
  EXPECT_GT(outcomes.without_effect, 1000) << "nobody listens there any more";
  EXPECT_GT(outcomes.reads_failed, 1000);
}

// So does the asker's: what he had sent may be done, once.
TEST(PeerBreak, AnAskerThatDiesAtEveryMoment) {
  Outcomes outcomes;
  for (uint64_t step = 0; step < 300; ++step) {
    RunHurt(
        1 + step % 3,
        [&](sim::SimWorld& world, TestOwner&, TestAsker& asker) {
          for (uint64_t i = 0; i < step && world.Step(); ++i) {
          }
          world.KillFabric(*asker.fabric);
          world.RunUntil(world.clock().NowNs() + kMillisecondNs);
        },
        &outcomes);
  }
  EXPECT_GT(outcomes.unknown + outcomes.without_effect, 1000);
}

// The two cannot reach each other for a while: deadlines hold, and then it goes on.
TEST(PeerBreak, ANetworkThatIsCutAndComesBack) {
  Outcomes outcomes;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    RunHurt(
        seed,
        [&](sim::SimWorld& world, TestOwner& owner, TestAsker& asker) {
          world.RunUntil(world.clock().NowNs() + static_cast<int64_t>(seed) * kMicrosecondNs);
          world.CutPeers(*asker.fabric, *owner.fabric, true);
          world.RunUntil(world.clock().NowNs() + 20 * kMillisecondNs);
          world.CutPeers(*asker.fabric, *owner.fabric, false);
        },
        &outcomes);
  }
  EXPECT_GT(outcomes.done, 100);
  EXPECT_GT(outcomes.unknown, 20);
}

// A stopped owner: what was sent may be done when it goes on, long after its deadline.
TEST(PeerBreak, AnOwnerThatIsStoppedForAWhile) {
  Outcomes outcomes;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RunHurt(
        seed,
        [&](sim::SimWorld& world, TestOwner& owner, TestAsker&) {
          world.RunUntil(world.clock().NowNs() + static_cast<int64_t>(seed) * kMicrosecondNs);
          world.PauseFabric(*owner.fabric);
          world.RunUntil(world.clock().NowNs() + 3 * kMillisecondNs);
          world.ResumeFabric(*owner.fabric);
        },
        &outcomes, kMillisecondNs);
  }
  EXPECT_GT(outcomes.done, 500);
  EXPECT_GT(outcomes.unknown, 20);
  EXPECT_GT(outcomes.reads_failed, 20);
}

// The asker hears at each moment that the owner has ended, which is stopped, or only slow: nobody
// waits for it from then on, and what it says late counts for nothing.
TEST(PeerBreak, AnOwnerThatIsSaidToHaveEndedAtEveryMoment) {
  Outcomes outcomes;
  for (uint64_t step = 0; step < 400; ++step) {
    RunHurt(
        1 + step % 3,
        [&](sim::SimWorld& world, TestOwner& owner, TestAsker& asker) {
          for (uint64_t i = 0; i < step && world.Step(); ++i) {
          }
          const bool is_stopped = step % 2 == 0;
          if (is_stopped) world.PauseFabric(*owner.fabric);
          const int64_t begin_ns = world.clock().NowNs();
          asker.client->NoteEnded(owner.me);
          asker.Drain();
          EXPECT_LT(world.clock().NowNs() - begin_ns, kMillisecondNs);
          if (is_stopped) world.ResumeFabric(*owner.fabric);
        },
        &outcomes, kSecondNs);
  }
  EXPECT_GT(outcomes.done, 1000);
  EXPECT_GT(outcomes.unknown, 100);
  EXPECT_GT(outcomes.unknown_done, 50);
  EXPECT_LT(outcomes.unknown_done, outcomes.unknown - 50);
  EXPECT_GT(outcomes.without_effect, 1000);
  EXPECT_GT(outcomes.reads_failed, 1000);
}

// What was asked of an owner that is stopped, and has ended, ends as after a break: but no other
// link is made to it. The next life at its place is another peer.
TEST(PeerBreak, AnEndedOwnerIsAskedNothingMore) {
  sim::SimWorld world({.seed = 1, .peer_messages_max = 1});
  TestOwner owner(&world, kOwner), next(&world, {kOwner.compute_server, kOwner.incarnation + 1});
  TestAsker asker(&world, kAsker);
  owner.owner.entries["read"] = next.owner.entries["read"] = "value";
  absl::Status sent, unsent, read;
  const auto spawn = [&](PeerRequest request, absl::Status* status) {
    asker.Spawn([&, request, status](OperationContext& context) {
      PeerAnswer answer;
      *status = asker.client->Call(context, owner.where(), request, &answer);
    });
  };
  spawn(GetRequest("read"), &read);
  asker.Drain();
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_TRUE(asker.client->Overdue(kNeverNs).empty()) << "nobody waits";
  world.PauseFabric(*owner.fabric);
  spawn(AddRequest("sent"), &sent);
  spawn(GetRequest("read"), &read);
  const int64_t begin_ns = world.clock().NowNs();
  world.RunUntil(begin_ns + kMillisecondNs);
  spawn(AddRequest("unsent"), &unsent);
  world.RunUntil(begin_ns + 20 * kMillisecondNs);
  EXPECT_TRUE(asker.client->Overdue(begin_ns - 1).empty());
  EXPECT_EQ(asker.client->Overdue(begin_ns + kMillisecondNs), std::vector<PeerIdentity>{kOwner});
  EXPECT_EQ(asker.sessions[0]->scheduler().active_tasks(), 3u);
  for (int i = 0; i < 2; ++i) asker.client->NoteEnded(owner.me);
  asker.Drain();
  EXPECT_LT(world.clock().NowNs() - begin_ns, 21 * kMillisecondNs);
  EXPECT_TRUE(IsOutcomeUnknown(sent)) << sent;
  EXPECT_TRUE(absl::IsUnavailable(unsent)) << unsent;
  EXPECT_TRUE(absl::IsUnavailable(read)) << read;
  world.ResumeFabric(*owner.fabric);
  world.RunUntil(world.clock().NowNs() + kSecondNs);
  EXPECT_FALSE(owner.owner.entries.contains("unsent"));
  const uint64_t links = asker.client->counters().links;
  spawn(GetRequest("read"), &read);
  asker.Drain();
  EXPECT_TRUE(absl::IsUnavailable(read)) << read;
  EXPECT_EQ(asker.client->counters().links, links);
  asker.Run([&](OperationContext& context) {
    PeerAnswer answer;
    read = asker.client->Call(context, next.where(), GetRequest("read"), &answer);
  });
  EXPECT_TRUE(read.ok()) << read;
}

}  // namespace
}  // namespace pando

// Counters of an owned tree: four members add to them, and their owner is killed twice on the
// way.
//
// PANDO_UPSERTS: how many, all told.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/owned/owned_world.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

constexpr uint64_t kCounters = 1'000;
constexpr size_t kMembers = 4;
constexpr int kCoroutines = 16;
constexpr size_t kKills = 2;

uint64_t Upserts() {
  const char* const upserts = std::getenv("PANDO_UPSERTS");
  return upserts == nullptr ? 60'000 : std::strtoull(upserts, nullptr, 10);
}

std::string Int64(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}
uint64_t ParseInt64(const std::string& bytes) {
  uint64_t value = 0;
  if (bytes.size() == sizeof(value)) std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// Rules T5, T6, D4.
TEST(OwnedUpserts, CountOnceThoughOwnersAreKilled) {
  const uint64_t upserts = Upserts();
  SimCluster cluster({.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole}});
  std::vector<std::unique_ptr<OwnerProcess>> members;
  for (size_t m = 0; m < kMembers; ++m) {
    members.push_back(std::make_unique<OwnerProcess>(
        &cluster, ClientOptions{.hot_bytes = 1 << 20, .log_bytes = 1 << 20, .spread_ranges = false},
        TreeOptions{.mode = TreeOptions::Mode::kOwned}));
  }
  std::vector<uint64_t> acknowledged(kCounters), unknown(kCounters);
  std::vector<bool> killed(kMembers);
  uint64_t begun = 0, done = 0, failed = 0;
  std::vector<int> at_work(kMembers, 0);
  const std::string one = Int64(1);
  // The first to ask owns all of them.
  ASSERT_TRUE(members[0]->session().Put(members[0]->tree(), KeyOf(0), Int64(0)).ok());
  size_t kills = 0;
  // Where nobody owns them just now, that is when the next upsert is done.
  const auto kill_owner = [&] {
    for (size_t m = 0; m < kMembers && kills < kKills; ++m) {
      if (killed[m] || members[m]->client().Stats().owned.ranges == 0) continue;
      members[m]->KillAt(cluster.world().clock().NowNs() + 1);
      killed[m] = true;
      ++kills;
      return;
    }
  };
  for (size_t m = 0; m < kMembers; ++m) {
    for (int c = 0; c < kCoroutines; ++c) {
      ++at_work[m];
      Session& session = members[m]->session();
      session.Spawn([&, m, &session = session] {
        Random random(100 * m + static_cast<uint64_t>(begun));
        while (begun < upserts && !killed[m]) {
          ++begun;
          const uint64_t n = random.Uniform(kCounters);
          const auto sum = session.Upsert(members[m]->tree(), KeyOf(n), UpsertFunction::kAdd, one);
          if (sum.ok()) {
            ++acknowledged[n];
            ++done;
          } else if (IsOutcomeUnknown(sum.status())) {
            ++unknown[n];
          } else {
            ++failed;  // without effect
            EXPECT_TRUE(killed[m] || members[m]->killed()) << sum.status();
          }
          if (done >= upserts / 3 * (kills + 1)) kill_owner();
        }
        --at_work[m];
      });
      ImplOf(session).scheduler().endpoint().Wake();
    }
  }
  const auto living_at_work = [&] {
    int living = 0;
    for (size_t m = 0; m < kMembers; ++m) living += killed[m] ? 0 : at_work[m];
    return living;
  };
  while (living_at_work() > 0) {
    cluster.world().RunUntil(cluster.world().clock().NowNs() + kMillisecondNs);
  }
  // Of the dead, whatever was under way ends as their handles are closed.
  ASSERT_EQ(kills, kKills);
  size_t survivor = 0;
  for (size_t m = 0; m < kMembers; ++m) {
    if (!killed[m]) survivor = m;
    if (!killed[m]) continue;
    ASSERT_TRUE(members[m]->killed());
    members[m]->session().Run();
    EXPECT_EQ(at_work[m], 0);
  }
  uint64_t misses = 0, adopted = 0, sum_unknown = 0;
  for (const auto& member : members) {
    misses += member->client().Stats().owned.misses;
    adopted += member->client().Stats().owned.adoptions;
  }
  for (size_t m = 0; m < kMembers; ++m) {
    if (killed[m]) members[m]->Close();
  }
  for (uint64_t n = 0; n < kCounters; ++n) {
    const auto sum = members[survivor]->session().Get(members[survivor]->tree(), KeyOf(n));
    const uint64_t found = sum.ok() ? ParseInt64(*sum) : 0;
    EXPECT_TRUE(sum.ok() || absl::IsNotFound(sum.status())) << sum.status();
    EXPECT_GE(found, acknowledged[n]) << "counter " << n;
    EXPECT_LE(found, acknowledged[n] + unknown[n]) << "counter " << n;
    sum_unknown += unknown[n];
  }
  std::printf(
      "%lu acknowledged, %lu unknown, %lu without effect, %lu adoptions, %lu READs: %.5f each\n",
      done, sum_unknown, failed, adopted, misses,
      static_cast<double>(misses) / static_cast<double>(done));
  EXPECT_EQ(adopted, kKills) << "whoever was killed owned all of them";
  EXPECT_LE(sum_unknown, 3u * kMembers * kCoroutines);
  // One a counter and owner, and some whose READ the others had overtaken.
  EXPECT_LE(misses, 4 * kCounters);
}

}  // namespace
}  // namespace pando

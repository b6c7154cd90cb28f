// Ranges that are divided, go to another member and come back, and a member that leaves under way:
// one of the two dies between every two packets of that, or its queue pairs break there, or it is
// stopped there beyond its leases; and both die. Whatever was acknowledged is there afterwards.
//
// Every PANDO_CRASH_STRIDE-th of the worlds is played (1: all of them).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/owned/owned_stage.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr uint64_t kKeys = 30, kBorder = 15;

uint64_t Stride(uint64_t otherwise) {
  const char* const stride = std::getenv("PANDO_CRASH_STRIDE");
  return stride == nullptr ? otherwise : std::strtoull(stride, nullptr, 10);
}
// After a failure, too.
bool GoesOn() { return std::getenv("PANDO_CRASH_GO_ON") != nullptr; }

constexpr int64_t kServingLeaseNs = 8 * kMillisecondNs, kLeaseNs = 24 * kMillisecondNs;

constexpr int64_t kStopStepNs = 500;

enum class How { kKill, kBreak, kBreakLate, kPauseBriefly, kPause };

struct World {
  uint64_t seed = 1;
  // Of who is stopped: steps of time instead.
  uint64_t givers_packets = kNoPacketLimit, takers_packets = kNoPacketLimit;
  How ending = How::kKill;
  bool hurries = false;
  // Others write all the time.
  bool load = false;
};

OwnedStageOptions StageOptions(const World& world) {
  OwnedStageOptions options;
  options.cluster = {.sim = {.seed = world.seed, .mode = sim::DeliveryMode::kLines},
                     .main_bytes = 4 << 20,
                     .lock_words = 1024,
                     .chunk_bytes = 64 << 10};
  options.circumstances.owners_end = true;
  options.circumstances.breaks = world.ending == How::kBreak || world.ending == How::kBreakLate;
  if (world.ending == How::kPause || world.ending == How::kPauseBriefly) {
    options.cluster.lease_ns = kLeaseNs;
    options.cluster.serving_lease_ns = kServingLeaseNs;
    options.circumstances.leases = true;
  }
  return options;
}

class MoveStage : public OwnedStage {
 public:
  explicit MoveStage(const World& world) : OwnedStage(StageOptions(world)), options_(world) {}

  void Play() {
    ClientOptions client = SmallOwner();
    client.spread_ranges = false;
    client.owner = true;
    if (options_.hurries) {
      client.connect_timeout_ms = 20;
      client.operation_timeout_ms = 5;
    }
    giver_ = Join(client, 2);
    taker_ = Join(client, 2);
    if (!Open(giver_, 0) || !Open(taker_, 0)) return Problem("the set-up has failed");
    for (uint64_t k = 1; k <= kKeys; k += 2) Write(giver_, k);
    Flush(giver_, 0);
    for (uint64_t k = 1; k <= kKeys; k += 3) Write(giver_, k);
    Arm(giver_, options_.givers_packets);
    Arm(taker_, options_.takers_packets);
    if (options_.load) {
      Load(giver_);
      Load(taker_);
    }
    Move();
    moves_ = loaded_ = false;
    for (OwnedActor* const actor : {giver_, taker_}) {
      if (!actor->dead) actor->sessions[1]->Run();
    }
    gives_ = GivenBy(giver_) + GivenBy(taker_);
    left_ = !giver_->dead && giver_->client->Stats().owned.ranges == 0;
    LookAtTheEnd();
  }
  bool giver_spent() const { return giver_->spent; }
  bool taker_spent() const { return taker_->spent; }
  uint64_t gives() const { return gives_; }
  bool left() const { return left_; }

 private:
  static uint64_t GivenBy(OwnedActor* actor) {
    return actor->dead ? 0 : actor->client->Stats().owned.given;
  }
  void Arm(OwnedActor* actor, uint64_t packets) {
    if (packets == kNoPacketLimit) return;
    switch (options_.ending) {
      case How::kKill:
        return KillAfter(actor, packets);
      case How::kBreak:
      case How::kBreakLate:
        return BreakAfter(actor, packets, options_.ending == How::kBreakLate);
      case How::kPauseBriefly:
        return StopAfter(actor, packets, kServingLeaseNs + kMillisecondNs);
      case How::kPause:
        return StopAfter(actor, packets, 3 * kLeaseNs);
    }
  }
  // Nothing of what goes on takes less than the time between two stops.
  void StopAfter(OwnedActor* actor, uint64_t steps, int64_t for_ns) {
    const int64_t at_ns = NowNs() + static_cast<int64_t>(steps) * kStopStepNs;
    world().At(at_ns, [this, actor] { actor->spent = moves_; });
    Pause(actor, at_ns, for_ns);
  }
  static bool Acts(const OwnedActor* actor) { return !actor->dead && !actor->client->fenced(); }
  void Write(OwnedActor* actor, uint64_t key) {
    if (Acts(actor)) Do(actor, 0, 0, Make(OperationKind::kPut, KeyOf(key), NewValue()));
  }
  void Read(OwnedActor* actor, uint64_t key) {
    if (Acts(actor)) Do(actor, 0, 0, Make(OperationKind::kGet, KeyOf(key)));
  }
  void ReadAll(OwnedActor* actor) {
    Operation scan = Make(OperationKind::kScan, KeyOf(0));
    scan.limit = SIZE_MAX;
    if (Acts(actor)) Do(actor, 0, 0, std::move(scan));
  }
  // The owner of the key gives it away.
  void GiveTo(OwnedActor* to, uint64_t key) {
    OwnedActor* const from = to == giver_ ? taker_ : giver_;
    if (Acts(from) && !to->closed) (void)Give(from, 0, 0, KeyOf(key), to);
  }
  void Load(OwnedActor* actor) {
    loaded_ = true;
    Spawn(actor, 1, [this, actor] {
      for (uint64_t n = 0; loaded_ && Acts(actor) && n < 200; ++n) {
        const uint64_t key = 1 + random().Uniform(kKeys);
        const bool goes_on =
            Do(actor, 1, 0,
               random().Chance(0.5) ? Make(OperationKind::kGet, KeyOf(key))
                                    : Make(OperationKind::kPut, KeyOf(key), NewValue()));
        if (!goes_on) return;
      }
    });
  }
  void Move() {
    if (Acts(giver_)) (void)Split(giver_, 0, 0, KeyOf(kBorder));
    Write(giver_, 5);
    GiveTo(taker_, 5);
    Write(taker_, 5);
    Read(giver_, 5);
    Write(giver_, 6);
    Write(taker_, 20);
    // And back, with messages of before in the log still.
    GiveTo(giver_, 5);
    Read(giver_, 5);
    Write(giver_, 6);
    Read(taker_, 6);
    GiveTo(taker_, 20);
    Write(taker_, 21);
    ReadAll(giver_);
    if (Acts(taker_)) (void)Split(taker_, 0, 0, KeyOf(22));
    Write(taker_, 23);
    if (Acts(giver_)) (void)Retire(giver_, options_.hurries ? 20 : 1000);
    Write(giver_, 5);
    Read(taker_, 5);
    Write(taker_, 7);
    ReadAll(taker_);
  }

  const World options_;
  OwnedActor* giver_ = nullptr;
  OwnedActor* taker_ = nullptr;
  bool moves_ = true, loaded_ = false;
  uint64_t gives_ = 0;
  bool left_ = false;
};

std::string ToText(const World& world) {
  const auto packets = [](uint64_t n) {
    return n == kNoPacketLimit ? std::string("no end of") : std::to_string(n);
  };
  return "seed " + std::to_string(world.seed) + ", ended as " +
         std::to_string(static_cast<int>(world.ending)) + " after " +
         packets(world.givers_packets) + " packets of the giver, " + packets(world.takers_packets) +
         " of the taker" + (world.load ? ", under load" : "") + (world.hurries ? ", hurried" : "");
}

// Whether somebody ran out of packets; a problem ends it unless all are wanted.
struct Played {
  bool giver = false, taker = false, well = true;
};
Played PlayWorld(const World& world) {
  MoveStage stage(world);
  stage.Play();
  EXPECT_EQ(stage.what(), "") << ToText(world);
  return {stage.giver_spent(), stage.taker_spent(), stage.problems().empty()};
}

TEST(OwnedMoves, GoThereAndBackAndNothingIsRefused) {
  for (const bool load : {false, true}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const World world = {.seed = seed, .load = load};
      MoveStage stage(world);
      stage.Play();
      ASSERT_EQ(stage.what(), "") << ToText(world);
      EXPECT_EQ(stage.gives(), 4u) << "there, back, the other one, and as it left";
      EXPECT_TRUE(stage.left());
      EXPECT_EQ(stage.refused(), 0u);
      EXPECT_EQ(stage.unknown(), 0u);
    }
  }
}

// A range begins right behind a key: who reads downwards from that key on wants its own range.
TEST(OwnedMoves, DownwardsFromAKeyBehindWhichARangeBegins) {
  OwnedStage stage(StageOptions({}));
  ClientOptions client = OwnedStage::SmallOwner();
  client.spread_ranges = false;
  client.owner = true;
  client.operation_timeout_ms = 200;
  OwnedActor* const giver = stage.Join(client);
  OwnedActor* const taker = stage.Join(client);
  ASSERT_TRUE(stage.Open(giver, 0) && stage.Open(taker, 0));
  const std::string key = KeyOf(5), behind = key + '\0';
  for (const std::string& put : {KeyOf(4), key, behind}) {
    stage.Do(giver, 0, 0, OwnedStage::Make(OperationKind::kPut, put, stage.NewValue()));
  }
  ASSERT_TRUE(stage.Split(giver, 0, 0, behind).ok());
  for (const bool divided : {false, true}) {
    ASSERT_TRUE(!divided || stage.Give(giver, 0, 0, behind, taker).ok());
    for (OwnedActor* const actor : {giver, taker}) {
      const auto cursor = actor->sessions[0]->NewCursor(
          *actor->trees[0], {.to = key, .to_inclusive = true, .reverse = true});
      std::vector<std::string> seen;
      while (cursor->Next()) seen.emplace_back(cursor->key());
      EXPECT_TRUE(cursor->status().ok()) << cursor->status();
      EXPECT_EQ(seen, (std::vector<std::string>{key, KeyOf(4)}));
    }
  }
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Its records have no leaves any more: they are no reason to wait, nor to keep the log's base.
TEST(OwnedMoves, ATreeIsClosedThatWasDroppedJustBefore) {
  OwnedStageOptions options = StageOptions({});
  options.trees = 2;
  OwnedStage stage(options);
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const dropper = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(owner, 1) && stage.Open(dropper, 0));
  for (uint64_t k = 1; k <= 60; ++k) {
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(k), stage.NewValue()));
  }
  stage.NoteDropped(0);
  ASSERT_TRUE(dropper->client->DropTree(OwnedStage::TreeName(0)).ok());
  const int64_t closed_ns = stage.NowNs();
  owner->trees[0].reset();
  EXPECT_LT(stage.NowNs() - closed_ns, 2 * kSecondNs);
  // The log goes round, again and again.
  for (uint64_t n = 0; n < 4000; ++n) {
    ASSERT_TRUE(stage.Do(
        owner, 0, 1, OwnedStage::Make(OperationKind::kPut, KeyOf(1 + n % 30), stage.NewValue())));
  }
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Somebody has room in the log, and does not use it in time.
TEST(OwnedMoves, WhoCouldNotLeaveAfterAllOwnsKeysAgain) {
  OwnedStage stage(StageOptions({}));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner(), 2);
  ASSERT_TRUE(stage.Open(owner, 0));
  const auto put = [&](uint64_t key) {
    return owner->sessions[0]->Put(*owner->trees[0], KeyOf(key), "a value");
  };
  ASSERT_TRUE(put(1).ok());
  bool holds = true;
  stage.Spawn(owner, 1, [&] {
    OperationContext context(&ImplOf(*owner->sessions[1]).context(), stage.NowNs() + kSecondNs);
    const auto held = ImplOf(*owner->client).member()->ReserveForWrite(context, 8, 8);
    EXPECT_TRUE(held.ok()) << held.status();
    while (holds) owner->sessions[1]->SleepUntil(stage.NowNs() + kMillisecondNs);
  });
  stage.Quiet(kMillisecondNs);
  const absl::Status left = stage.Retire(owner, 20);
  EXPECT_TRUE(absl::IsDeadlineExceeded(left)) << left;
  const absl::Status again = put(2);
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_EQ(owner->client->Stats().owned.ranges, 1u);
  holds = false;
  owner->sessions[1]->Run();
  EXPECT_TRUE(stage.Retire(owner, 1000).ok());
}

uint64_t PlayAll(How ending, bool taker, uint64_t seed, bool load, uint64_t stride) {
  uint64_t worlds = 0;
  bool spent = true;
  for (uint64_t packets = 0; spent; packets += stride, ++worlds) {
    World world = {.seed = seed, .ending = ending, .hurries = seed % 2 == 0, .load = load};
    (taker ? world.takers_packets : world.givers_packets) = packets;
    const Played played = PlayWorld(world);
    spent = taker ? played.taker : played.giver;
    if (!played.well && !GoesOn()) break;
  }
  return worlds;
}

void PlayAllOf(How ending, uint64_t seeds, uint64_t stride) {
  uint64_t worlds = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const bool taker : {false, true}) {
      for (const bool load : {false, true}) {
        worlds += PlayAll(ending, taker, seed, load, stride);
        if (testing::Test::HasFailure() && !GoesOn()) return;
      }
    }
  }
  std::printf("%lu worlds\n", worlds);
  EXPECT_GT(worlds * stride, 100u * seeds);
}

// Nothing leaves the owner any more, after every number of packets, until it has given up hope;
// then whatever is done next finds out what has become of the split.
enum class Next { kLoad, kClose, kRetire, kGive };

void AfterASplitOfUnknownOutcome(Next next) {
  uint64_t late = 0;  // that have come true
  for (uint64_t packets = 0; packets < 24; ++packets) {
    OwnedStageOptions options = StageOptions({.seed = packets + 1, .ending = How::kBreakLate});
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    OwnedActor* const owner = stage.Join(client, 2);
    OwnedActor* const other = stage.Join(client);
    ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(other, 0));
    const auto put = [&](OwnedActor* actor, uint64_t key) {
      stage.Do(actor, 0, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(key), stage.NewValue()));
    };
    put(owner, 1);
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(1)));
    ASSERT_TRUE(stage.Flush(owner, 0));
    if (next != Next::kLoad) {
      for (uint64_t k = 1; k <= 20; ++k) put(owner, k);
    }
    absl::Status split = absl::CancelledError("under way");
    stage.world().LimitPackets(*owner->fabric, packets);
    stage.Spawn(owner, 1, [&] { split = stage.Split(owner, 1, 0, KeyOf(10)); });
    while (!stage.world().PacketsSpent(*owner->fabric) && absl::IsCancelled(split)) {
      stage.Quiet(kMicrosecondNs);
    }
    for (const ServerId server : {1, 2}) stage.world().CutLink(*owner->fabric, server, true);
    stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
    stage.Quiet(3 * kSecondNs);
    for (const ServerId server : {1, 2}) stage.world().CutLink(*owner->fabric, server, false);
    owner->sessions[1]->Run();
    std::vector<KeyValue> entries;
    switch (next) {
      case Next::kLoad:
        for (uint64_t k = 2; k <= 20; k += 2) entries.push_back({KeyOf(k), stage.NewValue()});
        stage.BulkLoad(owner, 0, entries);
        break;
      case Next::kClose:
        owner->trees[0].reset();
        break;
      case Next::kRetire:
        EXPECT_TRUE(stage.Retire(owner, 10'000).ok());
        break;
      case Next::kGive:
        (void)stage.Give(owner, 0, 0, KeyOf(15), other);
        break;
    }
    late += !split.ok() && owner->client->Stats().owned.splits == 1 ? 1 : 0;
    for (uint64_t k = 1; k <= 20; k += 3) put(other, k);
    Operation scan = OwnedStage::Make(OperationKind::kScan, KeyOf(0));
    scan.limit = SIZE_MAX;
    stage.Do(other, 0, 0, std::move(scan));
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "") << packets << " packets";
  }
  EXPECT_GT(late, 0u) << "or this shows nothing";
}

TEST(OwnedMoves, ALoadAfterASplitOfUnknownOutcome) { AfterASplitOfUnknownOutcome(Next::kLoad); }
TEST(OwnedMoves, AClosedTreeAfterASplitOfUnknownOutcome) {
  AfterASplitOfUnknownOutcome(Next::kClose);
}
TEST(OwnedMoves, LeavingAfterASplitOfUnknownOutcome) { AfterASplitOfUnknownOutcome(Next::kRetire); }
TEST(OwnedMoves, AGiveAfterASplitOfUnknownOutcome) { AfterASplitOfUnknownOutcome(Next::kGive); }

TEST(OwnedMoves, OneDiesBetweenEveryTwoPackets) { PlayAllOf(How::kKill, 2, Stride(5)); }
TEST(OwnedMoves, QueuePairsBreakBetweenEveryTwoPackets) { PlayAllOf(How::kBreak, 2, Stride(7)); }
TEST(OwnedMoves, QueuePairsBreakLateBetweenEveryTwoPackets) {
  PlayAllOf(How::kBreakLate, 2, Stride(7));
}
TEST(OwnedMoves, OneIsStoppedBeyondItsServingLeaseAtEveryMoment) {
  PlayAllOf(How::kPauseBriefly, 1, Stride(41));
}
TEST(OwnedMoves, OneIsStoppedUntilItIsFencedAtEveryMoment) {
  PlayAllOf(How::kPause, 1, Stride(997));
}

TEST(OwnedMoves, BothDie) {
  uint64_t worlds = 0, both = 0;
  const uint64_t stride = Stride(11);
  bool giver_spent = true;
  for (uint64_t givers = 0; giver_spent; givers += stride) {
    bool taker_spent = true;
    giver_spent = false;
    for (uint64_t takers = givers % 5; taker_spent; takers += stride > 1 ? 11 : 1) {
      const Played played =
          PlayWorld({.seed = 5, .givers_packets = givers, .takers_packets = takers});
      ++worlds;
      both += played.giver && played.taker ? 1 : 0;
      giver_spent = giver_spent || played.giver;
      taker_spent = played.taker;
      if (!played.well && !GoesOn()) return;
    }
  }
  std::printf("%lu worlds, in %lu of them both died\n", worlds, both);
  EXPECT_GT(both * stride, 50u);
}

}  // namespace
}  // namespace pando

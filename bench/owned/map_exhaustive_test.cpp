// A member is killed, or its queue pairs break, between every two packets of each change of the
// map, while others claim what they can; then it settles, or is recovered, and everything holds.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "bench/owned/sim_stage.h"

namespace pando {
namespace {

using Act = MapMember::Act;

enum class What { kClaim, kGiveUp, kSplit, kRecover, kLeave };
enum class Ending { kKill, kBreak, kBreakLate };

constexpr size_t kVictim = 0, kOther = 1;
constexpr uint64_t kNoPacketLimit = UINT64_MAX;
constexpr int64_t kVictimsNs = 20 * kMillisecondNs;
constexpr int64_t kHurryNs = 60'000;
constexpr int kOthersSteps = 8;
constexpr int64_t kAfterNs = 10'000;

class ExhaustiveStage final : public SimStage {
 public:
  ExhaustiveStage(const SimStageOptions& options, What what, Ending ending)
      : SimStage(options), what_(what), ending_(ending), hurries_(options.seed % 2 == 0) {}

  // Returns whether the victim ran out of packets.
  bool PlayAt(uint64_t packets) {
    SetUp();
    const uint64_t splits = Splits();
    spent_ = false;
    armed_ = true;
    world().LimitPackets(*server(kVictim).fabric, packets);
    Together([this](size_t i, MapMember& member) { i == kVictim ? ActOut(member) : Meanwhile(i); });
    armed_ = false;
    splits_ = Splits() - splits;
    if (!spent_) world().LimitPackets(*server(kVictim).fabric, kNoPacketLimit);
    if (actors()[kVictim].dead) Fence(kVictim);
    // Once by one alone, so that a recovery is over at once, and once by all.
    Do(&actors()[kOthers], [this](MapMember&, OperationContext&) { RecoverAll(kOthers); });
    SettleAll();
    Look();
    Together([this](size_t i, MapMember&) { Meanwhile(i); });
    SettleAll();
    Look();
    return spent_;
  }
  uint64_t splits() const { return splits_; }

 private:
  static constexpr size_t kOthers = 2;

  void Step(size_t i, MapMember::Act act) {
    Do(&actors()[i],
       [act](MapMember& member, OperationContext& context) { member.Step(context, act); });
  }
  void SetUp() {
    Together([this](size_t i, MapMember& member) {
      OperationContext context(actors()[i].session, world().clock().NowNs() + kSecondNs);
      member.Join(context);
    });
    Step(kVictim, Act::kClaim);
    while (actors()[kVictim].member->own().size() < 5) Step(kVictim, Act::kSplit);
    for (int i = 0; i < 3 && what_ == What::kClaim; ++i) Step(kVictim, Act::kGiveUp);
    if (what_ != What::kRecover) return;
    while (actors()[kOther].member->own().size() < 2) {
      Step(kVictim, Act::kGiveUp);
      Step(kOther, Act::kClaim);
    }
    Kill(kOther);
    Fence(kOther);
  }
  void ActOut(MapMember& member) {
    const int64_t until_ns = world().clock().NowNs() + kVictimsNs;
    const MemberId dead = actors()[kOther].member->id();
    const uint64_t begun = member.begun;
    bool over = false;
    while (!over && !actors()[kVictim].dead && world().clock().NowNs() < until_ns) {
      // In a hurry it does not settle at once what breaks.
      const int64_t hurry_ns = world().clock().NowNs() + kHurryNs;
      OperationContext context(actors()[kVictim].session, hurries_ ? hurry_ns : until_ns);
      switch (what_) {
        case What::kRecover:
          over = member.Recover(context, dead, {dead});
          break;
        case What::kLeave:
          over = member.Leave(context);
          break;
        default:
          member.Step(context, what_ == What::kClaim    ? Act::kClaim
                               : what_ == What::kGiveUp ? Act::kGiveUp
                                                        : Act::kSplit);
          over = member.begun > begun && member.settled();
      }
    }
  }
  // What they begin they may not have settled.
  void Meanwhile(size_t i) {
    SessionContext& session = *actors()[i].session;
    session.scheduler().SleepUntil(session.NowNs() +
                                   static_cast<int64_t>(random().Uniform(kAfterNs)));
    for (int step = 0; step < kOthersSteps; ++step) {
      OperationContext context = Hurried(i);
      actors()[i].member->Step(context, step % 4 == 3 ? Act::kFind : Act::kClaim);
      session.scheduler().SleepUntil(session.NowNs() + kAfterNs);
    }
  }

  void AfterStep() override {
    if (!armed_ || !world().PacketsSpent(*server(kVictim).fabric)) return;
    armed_ = false;
    spent_ = true;
    if (ending_ == Ending::kKill) return Kill(kVictim);
    Fabric& fabric = *server(kVictim).fabric;
    if (ending_ == Ending::kBreakLate) world().LimitPackets(fabric, kNoPacketLimit);
    for (int id = 1; id <= memory_servers(); ++id) {
      world().BreakQueuePairs(fabric, static_cast<ServerId>(id));
    }
    world().LimitPackets(fabric, kNoPacketLimit);
  }
  uint64_t Splits() { return server(kVictim).client->Stats().tree.splits; }

  const What what_;
  const Ending ending_;
  const bool hurries_;
  bool armed_ = false, spent_ = false;
  uint64_t splits_ = 0;
};

struct Tally {
  uint64_t worlds = 0, uncertain = 0, lost = 0;
};

uint64_t PlayAll(SimStageOptions options, What what, Ending ending, Tally* tally) {
  bool spent = true;
  uint64_t packets = 0;
  for (; spent && !testing::Test::HasFailure(); ++packets) {
    ExhaustiveStage stage(options, what, ending);
    spent = stage.PlayAt(packets);
    const MapPlayResult result = stage.result();
    for (const std::string& problem : result.problems) {
      ADD_FAILURE() << "change " << static_cast<int>(what) << ", ended as "
                    << static_cast<int>(ending) << " after " << packets << " packets, seed "
                    << options.seed << ": " << problem;
    }
    ++tally->worlds;
    tally->uncertain += result.uncertain;
    tally->lost += result.lost;
  }
  return packets;
}

constexpr Ending kEndings[] = {Ending::kKill, Ending::kBreak, Ending::kBreakLate};

TEST(MapExhaustive, EveryChangeBetweenEveryTwoPackets) {
  Tally tally;
  for (const What what :
       {What::kClaim, What::kGiveUp, What::kSplit, What::kRecover, What::kLeave}) {
    for (const Ending ending : kEndings) {
      for (const uint64_t seed : {1, 2, 3, 4}) {
        const uint64_t packets =
            PlayAll({.seed = seed, .patience_ns_max = 200'000}, what, ending, &tally);
        EXPECT_GE(packets, 3u) << static_cast<int>(what);
      }
    }
  }
  std::printf("%lu worlds, %lu uncertain, %lu lost\n", tally.worlds, tally.uncertain, tally.lost);
  EXPECT_GT(tally.uncertain, 20u) << "changes that were not decided by their deadline";
  EXPECT_GT(tally.lost, 50u);
}

// The new entry has no room in its leaf.
TEST(MapExhaustive, ADivisionThatSplitsALeaf) {
  for (int entries = 4; entries < 60; ++entries) {
    const SimStageOptions options = {
        .seed = 4, .patience_ns_max = 200'000, .entries_before = entries};
    ExhaustiveStage trial(options, What::kSplit, Ending::kKill);
    trial.PlayAt(kNoPacketLimit);
    if (trial.splits() == 0) continue;
    Tally tally;
    for (const Ending ending : kEndings) {
      EXPECT_GT(PlayAll(options, What::kSplit, ending, &tally), 10u);
    }
    std::printf("%lu worlds, %lu uncertain\n", tally.worlds, tally.uncertain);
    return;
  }
  FAIL() << "no leaf was split";
}

}  // namespace
}  // namespace pando

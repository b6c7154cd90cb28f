// An owner is killed between every two packets of all that owners do, and so is the member that
// recovers it. The next client finds everything that was acknowledged, and nothing is left behind.
//
// The first of the environment's PANDO_CRASH_STRIDE-th worlds are played (1: all of them).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/owned/owned_stage.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr size_t kLoaded = 0, kWritten = 1, kTrees = 2;
constexpr uint64_t kKeys = 40;

uint64_t Stride(uint64_t otherwise) {
  const char* const stride = std::getenv("PANDO_CRASH_STRIDE");
  return stride == nullptr ? otherwise : std::strtoull(stride, nullptr, 10);
}

// After a failure, too.
bool GoesOn() { return std::getenv("PANDO_CRASH_GO_ON") != nullptr; }

enum class How { kKill, kBreak, kBreakLate };

struct World {
  uint64_t seed = 1;
  sim::DeliveryMode mode = sim::DeliveryMode::kLines;
  uint64_t victims_packets = kNoPacketLimit;
  How ending = How::kKill;
  // It does not wait long for anything, and leaves things undecided.
  bool hurries = false;
  uint64_t recoverers_packets = kNoPacketLimit;
  bool large_values = false;  // all of them lie in cells (rules K6 to K8)
};

class CrashStage : public OwnedStage {
 public:
  explicit CrashStage(const World& world) : OwnedStage(OptionsOf(world)), options_(world) {}

  void Play() {
    ClientOptions client = SmallOwner();
    if (options_.hurries) {
      client.connect_timeout_ms = 1;
      client.operation_timeout_ms = 1;
    }
    OwnedActor* const victim = Join(client);
    if (options_.ending == How::kKill) {
      KillAfter(victim, options_.victims_packets);
    } else {
      BreakAfter(victim, options_.victims_packets, options_.ending == How::kBreakLate);
    }
    ActOut(victim);
    victim_died_ = victim->spent;
    Leave(victim);
    OwnedActor* const recoverer = Join(SmallOwner());
    KillAfter(recoverer, options_.recoverers_packets);
    Recover(recoverer);
    recoverer_died_ = recoverer->dead;
    LookAtTheEnd();
  }
  bool victim_died() const { return victim_died_; }
  bool recoverer_died() const { return recoverer_died_; }

 private:
  static OwnedStageOptions OptionsOf(const World& world) {
    OwnedStageOptions options = {.cluster = {.sim = {.seed = world.seed, .mode = world.mode},
                                             .main_bytes = 4 << 20,
                                             .lock_words = 1024,
                                             .chunk_bytes = 64 << 10},
                                 .trees = kTrees,
                                 .circumstances = {.breaks = world.ending != How::kKill}};
    if (world.large_values) options.tree.inline_value_bytes_max = 4;
    return options;
  }
  std::string Value() {
    std::string value = NewValue();
    if (options_.large_values) value.resize(40, '.');
    return value;
  }
  bool Write(OwnedActor* actor, size_t tree, OperationKind kind, uint64_t key) {
    return Do(actor, 0, tree,
              Make(kind, KeyOf(key), kind == OperationKind::kDelete ? "" : Value()));
  }
  bool Scan(OwnedActor* actor, size_t tree) {
    Operation scan = Make(OperationKind::kScan, KeyOf(0));
    scan.limit = SIZE_MAX;
    return Do(actor, 0, tree, std::move(scan));
  }
  bool ActOut(OwnedActor* actor) {
    if (!Open(actor, kLoaded) || !Open(actor, kWritten)) return false;
    std::vector<KeyValue> entries;
    for (uint64_t k = 1; k <= kKeys; ++k) entries.push_back({KeyOf(k), Value()});
    if (!BulkLoad(actor, kLoaded, entries)) return false;
    // New ones and overwritten ones; a leaf is split when they are flushed.
    for (uint64_t k = 1; k <= kKeys; k += 3) {
      if (!Write(actor, kWritten, OperationKind::kInsert, k)) return false;
      if (!Write(actor, kLoaded, OperationKind::kPut, k * 2)) return false;
    }
    Operation upsert = Make(OperationKind::kUpsert, KeyOf(7));
    upsert.upsert = history::UpsertKind::kAppend;
    upsert.operand = "+";
    if (!Do(actor, 0, kLoaded, upsert)) return false;
    if (!Scan(actor, kWritten) || !Flush(actor, kWritten) || !Flush(actor, kLoaded)) return false;
    for (uint64_t k = 1; k <= kKeys; k += 9) {
      if (!Write(actor, kWritten, OperationKind::kUpdate, k)) return false;
      if (!Write(actor, kLoaded, OperationKind::kDelete, k + 1)) return false;
      if (!Write(actor, kWritten, OperationKind::kPut, k + 1)) return false;
    }
    std::vector<std::string> range;
    for (uint64_t k = kKeys / 4; k < kKeys * 3 / 4; ++k) range.push_back(KeyOf(k));
    if (!EraseRange(actor, 0, kLoaded, range) || !Flush(actor, kLoaded)) return false;
    if (!Scan(actor, kLoaded)) return false;
    // In order: it gives up what it has.
    Leave(actor);
    return true;
  }
  bool Recover(OwnedActor* actor) {
    for (const size_t tree : {kWritten, kLoaded}) {
      if (!Open(actor, tree) || !Do(actor, 0, tree, Make(OperationKind::kGet, KeyOf(2)))) {
        return false;
      }
      if (!Write(actor, tree, OperationKind::kPut, 1) || !Scan(actor, tree)) return false;
    }
    Leave(actor);
    return true;
  }

  const World options_;
  bool victim_died_ = false, recoverer_died_ = false;
};

// Whether the world came to a good end.
bool PlayWell(const World& world, bool* victim_died, bool* recoverer_died) {
  CrashStage stage(world);
  stage.Play();
  *victim_died = stage.victim_died();
  *recoverer_died = stage.recoverer_died();
  EXPECT_EQ(stage.what(), "") << "seed " << world.seed << ", mode " << DeliveryModeName(world.mode)
                              << ", the owner dies after " << world.victims_packets
                              << " packets, who recovers it after " << world.recoverers_packets;
  return stage.problems().empty();
}

TEST(OwnedCrash, BetweenEveryTwoPacketsOfAnOwner) {
  uint64_t worlds = 0;
  const uint64_t stride = Stride(1);
  for (const uint64_t seed : {1, 2}) {
    bool died = true, recoverer_died;
    for (uint64_t packets = 0; died; packets += stride) {
      if (!PlayWell({.seed = seed, .victims_packets = packets}, &died, &recoverer_died) &&
          !GoesOn()) {
        break;
      }
      ++worlds;
    }
  }
  std::printf("%lu worlds\n", worlds);
  EXPECT_GT(worlds * stride, 200u);
}

// Every value lies in a cell: none is lost, left behind, or another key's.
TEST(OwnedCrash, BetweenEveryTwoPacketsOfAnOwnerOfLargeValues) {
  uint64_t worlds = 0;
  const uint64_t stride = Stride(1);
  bool died = true, recoverer_died;
  for (uint64_t packets = 0; died && (GoesOn() || !HasFailure()); packets += stride) {
    PlayWell({.seed = 3, .victims_packets = packets, .large_values = true}, &died, &recoverer_died);
    ++worlds;
  }
  std::printf("%lu worlds\n", worlds);
  EXPECT_GT(worlds * stride, 200u);
}

// Its queue pairs break there instead, and it goes on, or gives up what it is at.
TEST(OwnedCrash, BreaksBetweenEveryTwoPacketsOfAnOwner) {
  uint64_t worlds = 0;
  const uint64_t stride = Stride(1);
  for (const How ending : {How::kBreak, How::kBreakLate}) {
    for (const uint64_t seed : {1, 2, 3, 4}) {
      bool spent = true, recoverer_died;
      for (uint64_t packets = 0; spent; packets += stride) {
        const World world = {
            .seed = seed, .victims_packets = packets, .ending = ending, .hurries = seed % 2 == 0};
        if (!PlayWell(world, &spent, &recoverer_died) && !GoesOn()) break;
        ++worlds;
      }
    }
  }
  std::printf("%lu worlds\n", worlds);
  EXPECT_GT(worlds * stride, 400u);
}

TEST(OwnedCrash, BetweenEveryTwoPacketsOfWhoRecoversIt) {
  uint64_t worlds = 0, both = 0;
  const uint64_t stride = Stride(11);
  bool died = true;
  for (uint64_t packets = 0; died && (GoesOn() || !HasFailure()); packets += stride) {
    bool recoverer_died = true;
    for (uint64_t recoverers = packets % 3; recoverer_died && died && (GoesOn() || !HasFailure());
         recoverers += stride > 1 ? 5 : 1) {
      PlayWell({.seed = 3, .victims_packets = packets, .recoverers_packets = recoverers}, &died,
               &recoverer_died);
      ++worlds;
      both += died && recoverer_died;
    }
  }
  std::printf("%lu worlds, in %lu of them both died\n", worlds, both);
  EXPECT_GT(both * stride, 100u);
}

}  // namespace
}  // namespace pando

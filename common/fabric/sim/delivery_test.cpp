#include "common/fabric/sim/delivery.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pando::sim {
namespace {

using Unit = std::pair<uint32_t, uint32_t>;

std::vector<Unit> Units(DeliveryMode mode, VerbKind kind, uint64_t offset, uint32_t bytes,
                        uint64_t seed) {
  Random random(seed);
  Delivery delivery;
  delivery.Start(mode, kind, offset, bytes, &random);
  std::vector<Unit> units;
  while (!delivery.finished()) {
    Unit unit;
    delivery.Next(&unit.first, &unit.second);
    units.push_back(unit);
  }
  EXPECT_EQ(units.size(), delivery.units());
  return units;
}

TEST(Delivery, EveryByteOnceWhateverTheAlignment) {
  Random random(1);
  for (DeliveryMode mode : {DeliveryMode::kLines, DeliveryMode::kWords, DeliveryMode::kShmOrder,
                            DeliveryMode::kWhole}) {
    for (int round = 0; round < 2000; ++round) {
      const uint64_t offset = random.Uniform(300);
      const auto bytes = static_cast<uint32_t>(1 + random.Uniform(400));
      const VerbKind kind = random.Chance(0.5) ? VerbKind::kRead : VerbKind::kWrite;
      std::vector<Unit> units = Units(mode, kind, offset, bytes, random.Next());
      for (const auto& [begin, end] : units) {
        ASSERT_LT(begin, end);
        const uint64_t unit = mode == DeliveryMode::kLines   ? 64
                              : mode == DeliveryMode::kWhole ? 1024
                                                             : 8;
        ASSERT_EQ((offset + begin) / unit, (offset + end - 1) / unit) << "straddles a unit";
      }
      std::sort(units.begin(), units.end());
      uint32_t at = 0;
      for (const auto& [begin, end] : units) {
        ASSERT_EQ(begin, at);
        at = end;
      }
      ASSERT_EQ(at, bytes);
    }
  }
}

TEST(Delivery, LinesComeInEveryOrder) {
  std::set<std::vector<Unit>> orders;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    orders.insert(Units(DeliveryMode::kLines, VerbKind::kRead, 0, 4 * 64, seed));
  }
  EXPECT_EQ(orders.size(), 24u);
}

TEST(Delivery, ShmOrderGoesUpForWritesAndDownForReads) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (VerbKind kind : {VerbKind::kRead, VerbKind::kWrite}) {
      const std::vector<Unit> units = Units(DeliveryMode::kShmOrder, kind, 0, 1024, seed);
      ASSERT_EQ(units.size(), 128u);
      for (size_t i = 1; i < units.size(); ++i) {
        if (units[i].first / 64 != units[i - 1].first / 64) continue;
        if (kind == VerbKind::kWrite) {
          ASSERT_EQ(units[i].first, units[i - 1].first + 8);
        } else {
          ASSERT_EQ(units[i].first + 8, units[i - 1].first);
        }
      }
    }
  }
}

TEST(Delivery, PiecesAreGatheredInOrder) {
  std::vector<std::byte> memory(64), first(5, std::byte{1}), second(7, std::byte{2}),
      third(4, std::byte{3});
  Chain chain(1);
  const LocalBuffer pieces[] = {{first.data(), 5, 0}, {second.data(), 7, 0}, {third.data(), 4, 0}};
  Verb& verb = chain.WriteGather(MemorySpace::kMain, 10, pieces);
  // In two moves that cut the second piece.
  MoveBytes(verb, memory.data(), 8, 16);
  MoveBytes(verb, memory.data(), 0, 8);
  for (int i = 0; i < 64; ++i) {
    const int want = i < 10 ? 0 : i < 15 ? 1 : i < 22 ? 2 : i < 26 ? 3 : 0;
    ASSERT_EQ(static_cast<int>(memory[i]), want) << i;
  }
}

}  // namespace
}  // namespace pando::sim

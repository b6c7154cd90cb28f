#include "memory/extent_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/wire/node_glance.h"
#include "gtest/gtest.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

constexpr auto kNobodyIsOver = [](const ClientId&) { return false; };

class ExtentTableTest : public testing::Test {
 protected:
  static constexpr ClientId kAnna = {1, 1}, kBert = {2, 2};
  static constexpr uint32_t kTree = 100, kNode = 1024;
  static constexpr auto kFull = absl::StatusCode::kResourceExhausted;

  ExtentGrant Allocate(const ClientId& holder, uint64_t chunks) {
    const auto grant = extents_.Allocate(holder, chunks * chunk_bytes_, kNobodyIsOver);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant.value_or(ExtentGrant{});
  }
  absl::Status Refusal(uint64_t bytes) {
    return extents_.Allocate(kBert, bytes, kNobodyIsOver).status();
  }
  void Fill(const ExtentGrant& extent) {
    std::memset(memory_.main() + extent.offset, 0x5a, extent.bytes);
  }
  bool IsZero(const ExtentGrant& extent) {
    for (uint64_t i = 0; i < extent.bytes; ++i) {
      if (memory_.main()[extent.offset + i] != std::byte{0}) return false;
    }
    return true;
  }
  std::vector<ListedExtent> List(uint64_t after_offset = 0, uint32_t max = 100) {
    return extents_.List({after_offset, max}, [](const ClientId&) { return ClientLiveness::kDead; })
        .extents;
  }

  PlainMemory memory_{4 << 20};
  ManualClock clock_;
  Region region_ = *Region::Format(memory_.memory(), {});
  NodeLedger nodes_{&region_, &clock_, {}};
  ExtentTable extents_{&region_, &nodes_, &clock_, {}, /*life=*/77, /*spares=*/0};
  const uint64_t chunk_bytes_ = region_.superblock().chunk_bytes;
  const uint32_t chunk_count_ = region_.superblock().chunk_count;
};

TEST_F(ExtentTableTest, AreWholeChunksSideBySideAndNobodyElses) {
  const auto grant = extents_.Allocate(kAnna, 2 * chunk_bytes_ + 1, kNobodyIsOver);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(grant->life, 77u);
  EXPECT_EQ(grant->bytes, 3 * chunk_bytes_);
  EXPECT_EQ((grant->offset - region_.superblock().chunk_offset) % chunk_bytes_, 0u);
  EXPECT_LE(grant->offset + grant->bytes, region_.superblock().region_bytes);
  EXPECT_EQ(nodes_.used_bytes(), 3 * chunk_bytes_);
  EXPECT_EQ(extents_.extents(), 1u);
  EXPECT_EQ(extents_.bytes(), 3 * chunk_bytes_);
  uint64_t node_bytes = 0;
  for (auto nodes = nodes_.Allocate(kBert, {kTree, kNode, 64}); nodes.ok();
       nodes = nodes_.Allocate(kBert, {kTree, kNode, 64})) {
    for (const NodeRun& run : nodes->runs) {
      EXPECT_TRUE(run.offset + run.bytes <= grant->offset ||
                  run.offset >= grant->offset + grant->bytes);
      node_bytes += run.bytes;
    }
  }
  EXPECT_EQ(node_bytes, (chunk_count_ - 3) * chunk_bytes_);
  EXPECT_EQ(nodes_.free_bytes(), 0u);
}

TEST_F(ExtentTableTest, SaysHowMuchWouldFit) {
  const ExtentGrant all = Allocate(kAnna, chunk_count_);
  EXPECT_EQ(all.bytes, chunk_count_ * chunk_bytes_);
  EXPECT_EQ(Refusal(1).code(), kFull);
  extents_.Free(all.id);
  clock_.now_ns += kSecondNs;
  const ExtentGrant low = Allocate(kAnna, chunk_count_ / 2);
  const ExtentGrant middle = Allocate(kAnna, 1);
  extents_.Free(low.id);
  const absl::Status full = Refusal(chunk_count_ / 2 * chunk_bytes_ + 1);
  EXPECT_EQ(full.code(), kFull);
  EXPECT_NE(full.message().find(absl::StrCat(chunk_count_ / 2 * chunk_bytes_, " bytes would fit")),
            absl::string_view::npos)
      << full << ", beside " << middle.offset;
  EXPECT_EQ(Refusal(kExtentBytesMax).code(), kFull);
}

TEST_F(ExtentTableTest, WhatWasFreedRestsAndIsZeroedForWhateverComesNext) {
  const ExtentGrant first = Allocate(kAnna, chunk_count_);
  Fill(first);
  extents_.Free(first.id);
  EXPECT_EQ(extents_.HolderOf(first.id), nullptr);
  EXPECT_EQ(nodes_.Allocate(kBert, {kTree, kNode, 64}).status().code(), kFull) << "rests";
  ASSERT_TRUE(nodes_.AllocateLater(kBert, kTree).has_value());
  const ExtentGrant later = Allocate(kBert, 1);
  EXPECT_EQ(later.id, 0u);
  EXPECT_EQ(later.ask_again_ns, kSecondNs);
  clock_.now_ns += kSecondNs;
  const auto nodes = nodes_.Allocate(kBert, {kTree, kNode, 64});
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_EQ(nodes->runs.at(0).life, 1u) << "a log says nothing of the lives of nodes";
  EXPECT_EQ(nodes->runs.at(0).recycled, 0);
  const ExtentGrant second = Allocate(kBert, chunk_count_ - 1);
  ASSERT_NE(second.id, 0u);
  EXPECT_NE(second.id, first.id);
  EXPECT_TRUE(IsZero(second));
}

TEST_F(ExtentTableTest, LivesOfNodesGoOnAfterAnExtentWasInTheirMemory) {
  const auto nodes = nodes_.Allocate(kAnna, {kTree, kNode, 64});
  ASSERT_TRUE(nodes.ok());
  std::array<std::byte, 64> line;
  WriteLifeStamp(line.data(), 40, false);
  region_.Write(nodes->runs.at(0).offset, line.data(), line.size());
  nodes_.FreeTree(kTree);
  clock_.now_ns += kSecondNs;
  const ExtentGrant extent = Allocate(kAnna, chunk_count_);
  ASSERT_TRUE(IsZero(extent)) << "no life stamps either";
  Fill(extent);
  extents_.Free(extent.id);
  clock_.now_ns += kSecondNs;
  uint32_t newest = 0;
  for (auto more = nodes_.Allocate(kBert, {kTree + 1, kNode, 64}); more.ok();
       more = nodes_.Allocate(kBert, {kTree + 1, kNode, 64})) {
    for (const NodeRun& run : more->runs) {
      EXPECT_LE(run.life, 41u);
      newest = std::max(newest, run.life);
    }
  }
  EXPECT_EQ(newest, 41u);
}

TEST_F(ExtentTableTest, LeaveOthersALongRun) {
  const ExtentGrant first = Allocate(kAnna, 2);
  const auto nodes = nodes_.Allocate(kBert, {kTree, kNode, 64});
  ASSERT_TRUE(nodes.ok());
  EXPECT_EQ(first.offset + first.bytes, region_.ChunkOffset(chunk_count_ - 1) + chunk_bytes_);
  EXPECT_EQ(nodes->runs.at(0).offset, region_.ChunkOffset(0));
  EXPECT_NE(Allocate(kAnna, chunk_count_ - 3).id, 0u);
}

TEST_F(ExtentTableTest, AreListedInParts) {
  const ExtentGrant a = Allocate(kAnna, 1);
  const ExtentGrant b = Allocate(kBert, 2);
  const auto all = List();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (ListedExtent{b.id, b.offset, b.bytes, 2, 2, ClientLiveness::kDead}));
  EXPECT_EQ(all[1], (ListedExtent{a.id, a.offset, a.bytes, 1, 1, ClientLiveness::kDead}));
  EXPECT_EQ(List(0, 1), std::vector<ListedExtent>{all[0]});
  EXPECT_EQ(List(all[0].offset, 1), std::vector<ListedExtent>{all[1]});
  EXPECT_TRUE(List(all[1].offset).empty());
}

// 16 MiB a call: others are answered in between.
TEST_F(ExtentTableTest, ALargeOneIsZeroedStepByStepAndGivenUpForAnother) {
  PlainMemory memory(uint64_t{66} << 20);
  ManualClock clock;
  Region region = *Region::Format(memory.memory(), {.chunk_bytes = 1 << 20});
  NodeLedger nodes(&region, &clock, {});
  ExtentTable extents(&region, &nodes, &clock, {}, 1, /*spares=*/0);
  const auto first = extents.Allocate(kAnna, 40 << 20, kNobodyIsOver);
  ASSERT_TRUE(first.ok() && first->id != 0) << "memory that was never used is zero";
  std::memset(memory.main() + first->offset, 0x5a, first->bytes);
  extents.Free(first->id);
  clock.now_ns += kSecondNs;

  const uint64_t bytes = 60 << 20;
  int calls = 1;
  absl::StatusOr<ExtentGrant> grant = extents.Allocate(kAnna, bytes, kNobodyIsOver);
  for (; grant.ok() && grant->id == 0; ++calls) {
    EXPECT_GT(grant->ask_again_ns, 0);
    EXPECT_EQ(extents.Allocate(kBert, bytes, kNobodyIsOver).status().code(), kFull)
        << "it is promised";
    grant = extents.Allocate(kAnna, bytes, kNobodyIsOver);
  }
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(calls, 3);
  for (uint64_t i = 0; i < grant->bytes; ++i) {
    ASSERT_EQ(memory.main()[grant->offset + i], std::byte{0}) << i;
  }
  extents.Free(grant->id);
  clock.now_ns += kSecondNs;

  ASSERT_EQ(extents.Allocate(kAnna, bytes, kNobodyIsOver)->id, 0u);
  EXPECT_EQ(extents.extents(), 1u) << "a promise is listed, too";
  EXPECT_NE(extents.Allocate(kAnna, 1 << 20, kNobodyIsOver)->id, 0u);
  EXPECT_EQ(extents.extents(), 1u);
  EXPECT_EQ(extents.bytes(), uint64_t{1} << 20);
}

// Extents and chunks of trees come and go in any order: no two meet, each extent is zero, and in
// the end everything is free.
TEST_F(ExtentTableTest, NeverMeetEachOtherOrNodes) {
  Random random(5);
  std::map<uint64_t, uint64_t> taken;  // offset -> bytes, of extents and of runs of nodes
  const auto take = [&](uint64_t offset, uint64_t bytes) {
    const auto after = taken.lower_bound(offset);
    ASSERT_TRUE(after == taken.end() || offset + bytes <= after->first) << offset;
    ASSERT_TRUE(after == taken.begin() ||
                std::prev(after)->first + std::prev(after)->second <= offset)
        << offset;
    taken[offset] = bytes;
    std::memset(memory_.main() + offset, 0x5a, bytes);
  };
  std::vector<ExtentGrant> held;
  std::map<uint32_t, std::vector<uint64_t>> trees;  // tree -> offsets of its runs
  uint64_t granted = 0, later = 0, refused = 0;
  uint32_t next_tree = kTree;
  for (int i = 0; i < 4000; ++i) {
    clock_.now_ns += random.Uniform(kSecondNs / 5);
    const uint64_t what = random.Uniform(10);
    if (what < 4) {
      const ClientId holder = {1, static_cast<uint32_t>(1 + random.Uniform(3))};
      const auto grant =
          extents_.Allocate(holder, (1 + random.Uniform(20)) * chunk_bytes_ - 7, kNobodyIsOver);
      ++(!grant.ok() ? refused : grant->id == 0 ? later : granted);
      if (!grant.ok() || grant->id == 0) continue;
      ASSERT_TRUE(IsZero(*grant));
      ASSERT_NO_FATAL_FAILURE(take(grant->offset, grant->bytes));
      held.push_back(*grant);
    } else if (what < 7 && !held.empty()) {
      std::swap(held[random.Uniform(held.size())], held.back());
      taken.erase(held.back().offset);
      extents_.Free(held.back().id);
      held.pop_back();
    } else if (what < 9) {
      const uint32_t tree = random.Chance(0.5) ? ++next_tree : next_tree;
      const auto nodes = nodes_.Allocate(kBert, {tree, kNode, 1000});
      if (!nodes.ok()) continue;
      for (const NodeRun& run : nodes->runs) {
        ASSERT_NO_FATAL_FAILURE(take(run.offset, run.bytes));
        trees[tree].push_back(run.offset);
      }
    } else if (!trees.empty()) {
      const auto [tree, runs] = *trees.begin();
      for (const uint64_t offset : runs) taken.erase(offset);
      nodes_.FreeTree(tree);
      trees.erase(tree);
    }
  }
  EXPECT_GT(granted, 50u);
  EXPECT_GT(later, 50u);
  EXPECT_GT(refused, 50u);
  for (const ExtentGrant& extent : held) extents_.Free(extent.id);
  for (const auto& [tree, runs] : trees) nodes_.FreeTree(tree);
  EXPECT_EQ(extents_.bytes(), 0u);
  EXPECT_EQ(nodes_.used_bytes(), 0u);
  clock_.now_ns += kSecondNs;
  EXPECT_NE(Allocate(kAnna, chunk_count_).id, 0u);
}

// Rule W7. Anna has a log when everything else is given to nodes.
class SpareLogTest : public testing::Test {
 protected:
  static constexpr ClientId kAnna = {1, 1}, kBert = {2, 2}, kCarl = {3, 3};
  static constexpr uint32_t kTree = 100;
  static constexpr auto kFull = absl::StatusCode::kResourceExhausted;

  // NotFound: later. Fills it, as its user does.
  absl::StatusOr<ExtentGrant> Ask(const ClientId& holder, uint64_t chunks) {
    const auto grant =
        extents_.Allocate(holder, chunks * chunk_bytes_, [&](const ClientId& client) {
          return std::find(ended_.begin(), ended_.end(), client) != ended_.end();
        });
    if (!grant.ok() || grant->id == 0) {
      return grant.ok() ? absl::NotFoundError("later") : grant.status();
    }
    for (uint64_t i = 0; i < grant->bytes; ++i) {
      EXPECT_EQ(memory_.main()[grant->offset + i], std::byte{0});
    }
    std::memset(memory_.main() + grant->offset, 0x5a, grant->bytes);
    return grant;
  }
  void FillWithNodes() {
    clock_.now_ns += kSecondNs;
    while (nodes_.Allocate(kBert, {kTree, 1024, 1000}).ok()) {
    }
    EXPECT_EQ(nodes_.free_bytes(), 0u);
  }
  uint64_t SpareChunks() const { return extents_.spare_bytes() / chunk_bytes_; }

  PlainMemory memory_{4 << 20};
  ManualClock clock_;
  Region region_ = *Region::Format(memory_.memory(), {});
  NodeLedger nodes_{&region_, &clock_, {}};
  ExtentTable extents_{&region_, &nodes_, &clock_, {}, /*life=*/77};
  std::vector<ClientId> ended_;
  const uint64_t chunk_bytes_ = region_.superblock().chunk_bytes;
  const uint32_t chunk_count_ = region_.superblock().chunk_count;
};

TEST_F(SpareLogTest, IsForWhoeverComesWhenAHolderHasEnded) {
  const auto annas = Ask(kAnna, 3);
  ASSERT_TRUE(annas.ok()) << annas.status();
  EXPECT_EQ(SpareChunks(), 3u);
  FillWithNodes();
  EXPECT_EQ(Ask(kBert, 3).status().code(), kFull) << "Anna lives";
  EXPECT_EQ(Ask(kBert, 1).status().code(), kFull);
  ended_ = {kAnna};
  EXPECT_EQ(Ask(kBert, 4).status().code(), kFull) << "so much was not kept";
  const auto berts = Ask(kBert, 1);
  ASSERT_TRUE(berts.ok()) << berts.status();
  EXPECT_EQ(berts->bytes, 3 * chunk_bytes_) << "all that was kept";
  EXPECT_EQ(SpareChunks(), 0u);
  EXPECT_EQ(Ask(kCarl, 3).status().code(), kFull) << "the first has it";
  extents_.Free(annas->id);  // Bert has taken over
  EXPECT_EQ(SpareChunks(), 3u);
  FillWithNodes();
  ended_ = {kAnna, kBert};
  EXPECT_TRUE(Ask(kCarl, 3).ok()) << "and so on";
}

TEST_F(SpareLogTest, RestsAndIsZeroedAsAllMemory) {
  const auto annas = Ask(kAnna, 2);
  ASSERT_TRUE(annas.ok());
  FillWithNodes();
  ended_ = {kAnna};
  ASSERT_TRUE(Ask(kBert, 2).ok());
  extents_.Free(annas->id);
  ended_ = {kBert};
  EXPECT_EQ(Ask(kCarl, 2).status().code(), absl::StatusCode::kNotFound) << "it rests";
  clock_.now_ns += kSecondNs;
  const auto carls = Ask(kCarl, 2);  // which looks for zeros
  ASSERT_TRUE(carls.ok()) << carls.status();
  EXPECT_EQ(carls->offset, annas->offset);
}

TEST_F(SpareLogTest, AreTwoWhereNobodyHasALogAnyMore) {
  const auto annas = Ask(kAnna, 2);
  ASSERT_TRUE(annas.ok());
  extents_.Free(annas->id);
  EXPECT_EQ(SpareChunks(), 4u);
  FillWithNodes();
  EXPECT_EQ(Ask(kBert, 3).status().code(), kFull);
  ASSERT_TRUE(Ask(kBert, 2).ok());
  EXPECT_EQ(SpareChunks(), 2u);
  EXPECT_EQ(Ask(kCarl, 2).status().code(), kFull);
  ended_ = {kBert};
  EXPECT_TRUE(Ask(kCarl, 2).ok());
}

TEST_F(SpareLogTest, IsAsLongAsTheLongestLogOrThatIsNotGranted) {
  ASSERT_TRUE(Ask(kAnna, 2).ok());
  const auto longer = Ask(kBert, 5);
  ASSERT_TRUE(longer.ok());
  EXPECT_EQ(SpareChunks(), 5u);
  clock_.now_ns += kSecondNs;
  // Beside the piece that was kept at first, too.
  const uint64_t left = chunk_count_ - 2 - 2 * 5 - 2;
  EXPECT_EQ(Ask(kCarl, left / 2 + 1).status().code(), kFull) << "with no spare beside it";
  EXPECT_NE(Ask(kCarl, left)
                .status()
                .message()
                .find(absl::StrCat(left / 2 * chunk_bytes_, " bytes would fit")),
            absl::string_view::npos);
  ASSERT_TRUE(Ask(kCarl, left / 2).ok());
  EXPECT_EQ(SpareChunks(), left / 2);
}

TEST_F(SpareLogTest, IsLengthenedWhenMemoryComesBack) {
  const auto annas = Ask(kAnna, 8);
  ASSERT_TRUE(annas.ok());
  FillWithNodes();
  ended_ = {kAnna};
  const auto berts = Ask(kBert, 1);
  ASSERT_TRUE(berts.ok());
  nodes_.FreeTree(kTree);
  EXPECT_EQ(SpareChunks(), 0u);
  clock_.now_ns += kSecondNs;
  ASSERT_TRUE(Ask(kCarl, 1).ok());
  EXPECT_EQ(SpareChunks(), 8u);
  extents_.Free(annas->id);
  EXPECT_EQ(SpareChunks(), 8u);
}

}  // namespace
}  // namespace pando::memory

#include "memory/catalog.h"

#include <cstring>
#include <set>

#include "common/wire/node_image.h"
#include "gtest/gtest.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

class CatalogTest : public testing::TestWithParam<bool> {
 protected:
  // 512 chunks: more than trees.
  PlainMemory memory_{33 << 20};
  ManualClock clock_;
  Region region_ =
      *Region::Format(memory_.memory(), {.chunk_bytes = 64 << 10, .needs_crc = GetParam()});
  NodeLedger nodes_{&region_, &clock_, {}};
  IdSource ids_{1};
  Catalog catalog_{&region_, &nodes_, &ids_, 77};

  absl::StatusOr<CatalogEntry> Create(const std::string& name,
                                      const TreeShape& shape = Shape(8, 8)) {
    return catalog_.Create({name, shape});
  }
  RootRecord RecordOf(const CatalogEntry& entry, RootVerdict expected = RootVerdict::kAccepted) {
    RootRecord record;
    EXPECT_EQ(DecodeRootRecord(memory_.main() + entry.root_record.offset(), entry.tree_id,
                               region_.crc(), &record),
              expected);
    return record;
  }
};

TEST_P(CatalogTest, ANewTreeHasARootRecordAndAnEmptyRootLeaf) {
  const auto entry = Create("words", Shape(60, 8));
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->created, 1);
  EXPECT_EQ(entry->root_record.server(), 1);
  EXPECT_LT(entry->root_lock_index, kRootRecordsMax);
  EXPECT_EQ(entry->shape.packet_bytes, 4096u);
  const RootRecord record = RecordOf(*entry);
  EXPECT_EQ(record.level, 0);
  EXPECT_FALSE(record.dropped);

  const auto layout = NodeLayout::Create(60, 8, entry->shape.node_bytes);
  ASSERT_TRUE(layout.ok());
  alignas(64) std::array<std::byte, kNodeBytesMax> image;
  std::memcpy(image.data(), memory_.main() + record.root.address.offset(), layout->node_bytes());
  const NodeExpectation expectation = {
      .tree_id = entry->tree_id, .level = 0, .life = record.root.life, .key = "any"};
  LeafMatch match;
  ASSERT_EQ(Classify(image.data(), *layout, expectation, region_.crc(), &match),
            NodeVerdict::kAccepted);
  EXPECT_EQ(match.slot, -1);
  const NodeHeader header = ReadHeader(image.data(), *layout);
  EXPECT_EQ(header.state, NodeState::kLive);
  EXPECT_TRUE(header.low.empty());
  EXPECT_TRUE(header.high.empty());
  EXPECT_TRUE(header.right.is_null());
  EXPECT_EQ(header.reserve, std::string(NodeHeader::kReserveBytes, '\0'));
}

TEST_P(CatalogTest, CreateIsCreateIfAbsent) {
  const auto first = Create("a", Shape(8, 8));
  const auto second = Create("a", Shape(8, 8, first->shape.node_bytes));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->created, 0);
  EXPECT_EQ(second->tree_id, first->tree_id);
  EXPECT_EQ(catalog_.Open("a")->created, 0);
  EXPECT_EQ(catalog_.created(), 1u);
  const auto other = Create("a", Shape(16, 8));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.status().message().find("keys of 8,"), absl::string_view::npos) << other.status();
  EXPECT_NE(other.status().message().find("keys of 16,"), absl::string_view::npos)
      << other.status();
  EXPECT_FALSE(Create("a", Shape(8, 9)).ok());
  EXPECT_FALSE(Create("a", Shape(8, 8, 2048)).ok());
}

TEST_P(CatalogTest, PacketsOfATreeAreNoLargerThanItsClientsCanSend) {
  TreeShape small = Shape(8, 8);
  small.packet_bytes = 1024;
  TreeShape large = Shape(8, 8);
  large.packet_bytes = 8192;
  EXPECT_EQ(Create("large", large)->shape.packet_bytes, 4096u) << "the server's";
  EXPECT_EQ(Create("large", small).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Create("small", small)->shape.packet_bytes, 1024u);
  EXPECT_TRUE(Create("small", large).ok());
  TreeShape tiny = Shape(255, 255);
  tiny.packet_bytes = 64;
  EXPECT_EQ(Create("tiny", tiny).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(CatalogTest, RefusesBadNamesAndShapes) {
  for (const std::string& name :
       {std::string(), std::string(kTreeNameBytesMax + 1, 'x'), std::string("a\nb"),
        std::string("a\0b", 3), std::string("\x7f")}) {
    EXPECT_EQ(Create(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(catalog_.Open(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(Create(std::string(kTreeNameBytesMax, 'x')).ok());
  EXPECT_TRUE(Create("W\u00f6rter und Zahlen").ok());
  for (const TreeShape& shape : {Shape(0, 8), Shape(256, 8), Shape(8, 256), Shape(8, 8, 1000),
                                 Shape(8, 8, 1 << 20), Shape(UINT32_MAX, UINT32_MAX, UINT32_MAX)}) {
    EXPECT_EQ(Create("bad", shape).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(catalog_.Open("bad").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(CatalogTest, ADroppedNameIsFreeAtOnceButItsRecordOnlyAfterRelease) {
  const auto first = Create("a");
  catalog_.Drop(first->tree_id);
  EXPECT_FALSE(catalog_.Contains(first->tree_id));
  EXPECT_EQ(catalog_.Open("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(RecordOf(*first).dropped) << "clients that have it open go on";
  const auto second = Create("a", Shape(16, 16));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT(second->tree_id, first->tree_id);
  EXPECT_NE(second->root_record, first->root_record);
  memory_.lock_words()[first->root_lock_index] = 77;  // its holder is gone
  catalog_.Release(first->tree_id);
  EXPECT_TRUE(RecordOf(*first).dropped);
  EXPECT_EQ(memory_.lock_words()[first->root_lock_index], 0u);
  const auto third = Create("b");
  EXPECT_EQ(third->root_record, first->root_record);
  EXPECT_EQ(third->root_lock_index, first->root_lock_index);
  RecordOf(*first, RootVerdict::kStale);
  EXPECT_FALSE(RecordOf(*third).dropped);
}

TEST_P(CatalogTest, ListsByNameAndIsBounded) {
  std::set<uint32_t> tree_ids;
  std::set<uint64_t> records;
  for (uint32_t i = 0; i + 1 < kRootRecordsMax; ++i) {
    const auto entry = Create("tree " + std::to_string(1000 - i));
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_TRUE(tree_ids.insert(entry->tree_id).second);
    EXPECT_TRUE(records.insert(entry->root_record.raw()).second);
  }
  EXPECT_EQ(Create("one more").status().code(), absl::StatusCode::kResourceExhausted);
  const auto owners = Create(std::string(kClusterTreeName));
  ASSERT_TRUE(owners.ok()) << owners.status();
  EXPECT_EQ(Create("one more").status().code(), absl::StatusCode::kResourceExhausted);
  (void)catalog_.Drop(owners->tree_id);
  catalog_.Release(owners->tree_id);
  EXPECT_EQ(Create("one more").status().code(), absl::StatusCode::kResourceExhausted)
      << "the owners' place is theirs";
  ASSERT_TRUE(Create(std::string(kClusterTreeName)).ok());
  const auto list = catalog_.List();
  ASSERT_EQ(list.size(), kRootRecordsMax);
  EXPECT_EQ(list.front().name, kClusterTreeName);
  EXPECT_EQ(list[1].name, "tree 1000");
  EXPECT_EQ(list[2].name, "tree 746");
  EXPECT_LE(EncodeCatalogList(list).size(), kControlBodyBytesMax);
}

// Rule N1, with the nodes of rule N4.
TEST_P(CatalogTest, ATreeHasWindowsForEverOrNever) {
  const auto narrow = catalog_.Create({"n", Shape(24, 8), TreeMode::kShared, /*windows=*/true});
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_TRUE(narrow->windows());
  EXPECT_EQ(narrow->shape.node_bytes, 1664u);
  EXPECT_GT(narrow->Layout()->window_groups(), 0u);
  EXPECT_TRUE(catalog_.Open("n")->windows());
  EXPECT_FALSE(catalog_.Create({"n", Shape(24, 8), TreeMode::kShared, true})->created);
  const absl::Status other = Create("n", Shape(24, 8)).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.message().find("with windows for its keys"), absl::string_view::npos) << other;
  ASSERT_TRUE(Create("w", Shape(24, 8)).ok());
  EXPECT_EQ(catalog_.Create({"w", Shape(24, 8), TreeMode::kShared, true}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(CatalogTest, ATreeHasOneModeForEver) {
  const auto owned = catalog_.Create({"o", Shape(8, 8), TreeMode::kOwned});
  ASSERT_TRUE(owned.ok()) << owned.status();
  EXPECT_EQ(owned->mode(), TreeMode::kOwned);
  EXPECT_FALSE(owned->windows());
  EXPECT_EQ(owned->features.incompatible,
            region_.superblock().features.incompatible | kIncompatibleOwned);
  EXPECT_EQ(catalog_.Open("o")->mode(), TreeMode::kOwned);
  EXPECT_EQ(Create("s")->mode(), TreeMode::kShared);
  const absl::Status other = Create("o").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.message().find("is owned; asked for was a tree that is shared"),
            absl::string_view::npos)
      << other;
  EXPECT_EQ(catalog_.Create({"s", Shape(8, 8), TreeMode::kOwned}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(catalog_.Create({"longest", Shape(240, 8), TreeMode::kOwned}).ok());
  // Rule K6: whoever knows of owners and of cells need not know of both.
  TreeShape cells = Shape(8, 1000);
  cells.has_cells = true;
  cells.inline_value_bytes_max = 20;
  const auto large = catalog_.Create({"large", cells, TreeMode::kOwned});
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->features.incompatible, region_.superblock().features.incompatible |
                                              kIncompatibleOwned | kIncompatibleCells |
                                              kIncompatibleOwnedCells);
  EXPECT_EQ(catalog_.Create({"longer", Shape(241, 8), TreeMode::kOwned}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(catalog_.Create({std::string(kClusterTreeName), Shape(8, 8), TreeMode::kOwned})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(CatalogTest, AFullServerCreatesNothing) {
  while (nodes_.Allocate({1, 1}, {1'000'000, 1024, 1}).ok()) {
  }
  EXPECT_EQ(Create("a").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(catalog_.Open("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(catalog_.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Checksums, CatalogTest, testing::Bool());

}  // namespace
}  // namespace pando::memory

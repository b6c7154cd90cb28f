// The walker finds what it is meant to find: a good tree passes, each kind of damage is reported.
#include "compute/check/tree_check.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "common/wire/root_record.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kTreeId = 9;
constexpr uint64_t kRootRecordAt = 4096;

// A tree of two levels: three leaves [, "h"), ["h", "p"), ["p", ) under one root.
class TreeCheckTest : public testing::Test {
 protected:
  static constexpr uint64_t kNodeBytes = 1024;

  TreeCheckTest() : memory_(64 * 1024) {
    entry_.tree_id = kTreeId;
    entry_.shape = {8, 8, kNodeBytes, 4096};
    entry_.root_record = RemoteAddress(1, kRootRecordAt);
    layout_ = NodeLayout::Create(8, 8, kNodeBytes).value();
    PutLeaf(1, "", "h", 2, {{"a", "1"}, {"c", "2"}});
    PutLeaf(2, "h", "p", 3, {{"k", "3"}});
    PutLeaf(3, "p", "", 0, {{"p", "4"}, {"z", "5"}});
    root_.header = Header(1, "", "", 0);
    root_.header.leftmost = Node(1);
    root_.entries = {{"h", Node(2)}, {"p", Node(3)}};
    PutRoot();
    PutRecord({kTreeId, Node(0), 1, false});
  }

  static uint64_t At(uint64_t node) { return 8192 + node * kNodeBytes; }
  static Reference Node(uint64_t node) { return {RemoteAddress(1, At(node)), 1}; }
  std::byte* Image(uint64_t node) { return memory_.data() + At(node); }

  NodeHeader Header(uint8_t level, std::string low, std::string high, uint64_t right) {
    NodeHeader header;
    header.tree_id = kTreeId;
    header.level = level;
    header.state = NodeState::kLive;
    header.life = 1;
    header.low = std::move(low);
    header.high = std::move(high);
    header.reserve.assign(NodeHeader::kReserveBytes, '\0');
    if (right != 0) header.right = Node(right);
    return header;
  }
  void PutLeaf(uint64_t node, std::string low, std::string high, uint64_t right,
               const std::vector<LeafEntry>& entries) {
    WriteHeader(Image(node), layout_, Header(0, std::move(low), std::move(high), right));
    FillLeaf(Image(node), layout_, entries);
    SealNodeLevel(Image(node), Image(node), layout_, false);
  }
  void ChangeHeader(uint64_t node, const std::function<void(NodeHeader*)>& change) {
    NodeHeader header = ReadHeader(Image(node), layout_);
    change(&header);
    WriteHeader(Image(node), layout_, header);
    SealNodeLevel(Image(node), Image(node), layout_, false);
  }
  void PutRoot() { EncodeInternal(root_, layout_, Image(0), false, Image(0)); }
  void PutRecord(const RootRecord& record) {
    std::byte* line = memory_.data() + kRootRecordAt;
    EncodeRootRecord(record, line, false, line);
  }

  TreeCheckResult Check() {
    return CheckTree(entry_, {.nodes_max = 100, .keep_entries = true, .look_again = look_again_},
                     [this](RemoteAddress from, std::span<std::byte> into) -> absl::Status {
                       if (from.server() != 1 || from.offset() + into.size() > memory_.size()) {
                         return absl::OutOfRangeError("no such memory");
                       }
                       std::memcpy(into.data(), memory_.data() + from.offset(), into.size());
                       return absl::OkStatus();
                     });
  }
  void ExpectProblem(const std::string& text) {
    EXPECT_THAT(Check().problems, Contains(HasSubstr(text)));
  }

  std::vector<std::byte> memory_;
  CatalogEntry entry_;
  NodeLayout layout_;
  InternalNode root_;
  std::function<bool(int)> look_again_;  // none: a quiet tree
};

TEST_F(TreeCheckTest, AGoodTreePasses) {
  const TreeCheckResult result = Check();
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.nodes_per_level, (std::vector<size_t>{3, 1}));
  EXPECT_EQ(result.missing_separators, 0u);
  const std::vector<std::pair<std::string, std::string>> want = {
      {"a", "1"}, {"c", "2"}, {"k", "3"}, {"p", "4"}, {"z", "5"}};
  EXPECT_EQ(result.entries, want);
}

TEST_F(TreeCheckTest, AMissingSeparatorIsCountedNotBlamed) {
  root_.entries.erase(root_.entries.begin());
  PutRoot();
  const TreeCheckResult result = Check();
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.missing_separators, 1u);
  EXPECT_EQ(result.entries.size(), 5u);
}

TEST_F(TreeCheckTest, RootRecord) {
  PutRecord({kTreeId + 1, Node(0), 1, false});
  ExpectProblem("root record");
}

TEST_F(TreeCheckTest, WrongLevel) {
  PutRecord({kTreeId, Node(0), 2, false});
  ExpectProblem("not the node meant");
}

TEST_F(TreeCheckTest, GapBetweenSiblings) {
  ChangeHeader(1, [](NodeHeader* h) { h->high = "g"; });
  ExpectProblem("does not cover its left neighbour's high fence");
}

TEST_F(TreeCheckTest, OverlappingSiblings) {
  ChangeHeader(1, [](NodeHeader* h) { h->high = "m"; });
  ExpectProblem("is not its left neighbour's high fence");
}

TEST_F(TreeCheckTest, ChainThatEndsEarly) {
  ChangeHeader(2, [](NodeHeader* h) { h->right = {}; });
  ExpectProblem("but no right sibling");
  ExpectProblem("which is not on level 0");
}

TEST_F(TreeCheckTest, ChainThatGoesRound) {
  ChangeHeader(3, [](NodeHeader* h) {
    h->high = "zz";
    h->right = Node(1);
  });
  ExpectProblem("is met twice");
}

TEST_F(TreeCheckTest, WrongLife) {
  root_.entries[0].child.life = 7;
  PutRoot();
  ExpectProblem("refers to node 1:10240 life 7");
}

TEST_F(TreeCheckTest, SeparatorThatIsNotItsChildsLowFence) {
  root_.entries[0].key = "i";
  PutRoot();
  ExpectProblem("separator 69 refers to");
}

TEST_F(TreeCheckTest, SeparatorOfNobody) {
  root_.entries.push_back({"x", Node(5)});
  PutRoot();
  ExpectProblem("separator 78 refers to");
}

TEST_F(TreeCheckTest, NodeThatIsNotLive) {
  ChangeHeader(2, [](NodeHeader* h) { h->state = NodeState::kDead; });
  ExpectProblem("not the node meant");
  ChangeHeader(2, [](NodeHeader* h) { h->state = NodeState::kMerging; });
  ExpectProblem("is not live");
}

TEST_F(TreeCheckTest, AMarkerOfAMerge) {
  ChangeHeader(2, [](NodeHeader* h) { h->peer = Node(3); });
  ExpectProblem("has a merge's marker: node 1:11264 life 1");
}

TEST_F(TreeCheckTest, WhatLiesBehindDamageIsCheckedToo) {
  Image(2)[5 * kLineBytes] ^= std::byte{1};
  ChangeHeader(3, [](NodeHeader* h) { h->high = "zz"; });
  ExpectProblem("is inconsistent");
  ExpectProblem("has the high fence 7a7a, but no right sibling");
}

// A tree that is being changed: what looks wrong at first may be gone at the next look.
TEST_F(TreeCheckTest, WhatDoesNotLastIsNotBlamed) {
  Image(2)[5 * kLineBytes] ^= std::byte{1};
  look_again_ = [this](int) {
    Image(2)[5 * kLineBytes] ^= std::byte{1};
    look_again_ = nullptr;
    return true;
  };
  const TreeCheckResult result = Check();
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.looked_again, 1u);
  EXPECT_EQ(result.entries.size(), 5u);
}

TEST_F(TreeCheckTest, WhatLastsIsBlamedAfterAWhile) {
  Image(2)[5 * kLineBytes] ^= std::byte{1};
  int looks = 0;
  look_again_ = [&](int tries) {
    ++looks;
    return tries < 3;
  };
  ExpectProblem("is inconsistent");
  EXPECT_EQ(looks, 4);
}

// Its right sibling went into the second leaf between the READs of the two.
TEST_F(TreeCheckTest, AMergeUnderTheWalk) {
  ChangeHeader(3, [](NodeHeader* h) { h->state = NodeState::kDead; });
  look_again_ = [this](int tries) {
    if (tries == 0) {
      root_.entries.pop_back();
      PutRoot();
      PutLeaf(2, "h", "", 0, {{"k", "3"}, {"p", "4"}, {"z", "5"}});
    }
    return tries < 3;
  };
  EXPECT_THAT(Check().problems, IsEmpty());
}

TEST_F(TreeCheckTest, TornNode) {
  Image(2)[5 * kLineBytes] ^= std::byte{1};
  ExpectProblem("is inconsistent");
}

TEST_F(TreeCheckTest, KeyTwiceInALeaf) {
  PutLeaf(2, "h", "p", 3, {{"k", "3"}, {"l", "4"}});
  std::byte* const slots = Image(2) + layout_.header_lines() * kLineBytes;
  std::byte* const other = std::find(slots, Image(2) + kNodeBytes, std::byte{'l'});
  ASSERT_NE(other, Image(2) + kNodeBytes);
  *other = std::byte{'k'};
  SealNodeLevel(Image(2), Image(2), layout_, false);
  ExpectProblem("twice");
}

// Rule F5: it would come back with a merge.
TEST_F(TreeCheckTest, SlotOutsideTheFences) {
  PutLeaf(2, "h", "p", 3, {{"k", "3"}, {"q", "gone"}});
  ExpectProblem("has a slot whose key is outside its fences");
}

TEST_F(TreeCheckTest, MalformedInternalNode) {
  std::swap(root_.entries[0], root_.entries[1]);
  PutRoot();
  EXPECT_FALSE(Check().ok());
}

TEST_F(TreeCheckTest, ReferenceOutOfTheRegion) {
  root_.header.leftmost = {RemoteAddress(2, 64), 1};
  PutRoot();
  ExpectProblem("no such memory");
}

TEST_F(TreeCheckTest, ImpossibleShape) {
  entry_.shape.key_bytes_max = 0;
  ExpectProblem("shape is impossible");
}

TEST(CheckLocksFreeTest, NamesTheHolder) {
  std::vector<std::byte> table(8 * 300);
  EXPECT_THAT(CheckLocksFree(1, table), IsEmpty());
  const uint64_t word = LockWord{3, 77, LockWord::kExclusive}.Encode();
  std::memcpy(table.data() + 8 * 270, &word, 8);
  EXPECT_THAT(CheckLocksFree(1, table),
              testing::ElementsAre(
                  "lock word 270 of server 1 is held by compute server 3, incarnation 77"));
}

}  // namespace
}  // namespace pando

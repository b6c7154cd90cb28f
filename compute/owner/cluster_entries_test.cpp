#include "compute/owner/cluster_entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace pando {
namespace {

constexpr Stamp kStamp = {7, 9};

template <typename Entry>
void ExpectRoundTrip(const Entry& entry) {
  const std::string bytes = Encode(entry);
  EXPECT_LE(bytes.size(), kClusterValueBytesMax);
  Entry parsed;
  ASSERT_TRUE(Parse(bytes, &parsed).ok()) << Parse(bytes, &parsed);
  EXPECT_TRUE(parsed == entry);
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_TRUE(absl::IsDataLoss(Parse(bytes.substr(0, i), &parsed))) << i;
  }
  EXPECT_TRUE(absl::IsDataLoss(Parse(bytes + '\0', &parsed)));
  std::string other = bytes;
  other[1] = 2;
  EXPECT_TRUE(absl::IsDataLoss(Parse(other, &parsed))) << "of another format";
  other = bytes;
  other[0] = 'x';
  EXPECT_TRUE(absl::IsDataLoss(Parse(other, &parsed))) << "of another kind";
}

TEST(ClusterEntries, ValuesComeBack) {
  ExpectRoundTrip(MemberEntry{kStamp, MemberEntry::State::kLeaving, "10.0.0.1:7000"});
  ExpectRoundTrip(MemberEntry{kStamp, MemberEntry::State::kJoining, ""});
  ExpectRoundTrip(
      MemberEntry{kStamp, MemberEntry::State::kServing, std::string(kServiceAddressBytesMax, '/')});
  ExpectRoundTrip(LogEntry{kStamp, {3, 4, 5, 6, 7}, 8});
  ExpectRoundTrip(LogEntry{kStamp, {3, 4, std::numeric_limits<uint64_t>::max() - 6, 6, 7}, 8});
  ExpectRoundTrip(RecoveryEntry{kStamp, {1, 2}});
  ExpectRoundTrip(RecoveryEntry{kStamp, {}});
  ExpectRoundTrip(RangeEntry{kStamp, {1, 2}, 3, {}});
  ExpectRoundTrip(RangeEntry{kStamp, {}, kNoLsn, {4, 5}});
  ExpectRoundTrip(RangeEntry{kStamp, {}, kNoLsn, {}});
}

TEST(ClusterEntries, WhatMakesNoSenseIsRefused) {
  RangeEntry range;
  EXPECT_TRUE(absl::IsDataLoss(Parse(Encode(RangeEntry{kStamp, {1, 2}, kNoLsn, {}}), &range)));
  EXPECT_TRUE(absl::IsDataLoss(Parse(Encode(RangeEntry{kStamp, {}, 3, {}}), &range)));
  EXPECT_TRUE(absl::IsDataLoss(Parse(Encode(RangeEntry{kStamp, {1, 2}, 3, {4, 5}}), &range)));
  EXPECT_TRUE(absl::IsDataLoss(Parse(Encode(RangeEntry{kStamp, {1, 0}, kNoLsn, {}}), &range)));
  EXPECT_TRUE(absl::IsDataLoss(Parse(Encode(RangeEntry{{}, {1, 2}, 3, {}}), &range)));
  LogEntry log;
  EXPECT_TRUE(absl::IsDataLoss(Parse(Encode(LogEntry{kStamp, {3, 4, 5, 0, 7}, 8}), &log)));
  EXPECT_TRUE(absl::IsDataLoss(Parse(
      Encode(LogEntry{kStamp, {3, 4, std::numeric_limits<uint64_t>::max(), 6, 7}, 8}), &log)));
  MemberEntry member;
  for (const int state : {0, 4, 255}) {
    EXPECT_TRUE(absl::IsDataLoss(
        Parse(Encode(MemberEntry{kStamp, static_cast<MemberEntry::State>(state), ""}), &member)));
  }
}

TEST(ClusterEntries, KeysComeBackAndFit) {
  const std::string longest(kBorderBytesMax, '\xff');
  for (const std::string& high : {std::string(), std::string("m"), std::string(1, '\0'), longest}) {
    const std::string bytes = RangeKey(0x01020304, high);
    EXPECT_LE(bytes.size(), kClusterKeyBytesMax);
    const auto key = ParseClusterKey(bytes);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(*key, (ClusterKey{'r', {}, 0x01020304, high}));
  }
  EXPECT_EQ(RangeKey(1, longest).size(), kClusterKeyBytesMax);
  for (const char kind : {'m', 'l', 'd'}) {
    const auto key = ParseClusterKey(MemberKey(kind, {0x0102, 0x03040506}));
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(*key, (ClusterKey{kind, {0x0102, 0x03040506}, 0, ""}));
  }
  for (const std::string& none :
       {std::string(), std::string("x"), std::string("m"), MemberKey('m', {1, 1}) + "x",
        RangePrefix(1), RangePrefix(1) + '\0', RangePrefix(1) + "\1x", RangePrefix(1) + '\2',
        RangePrefix(1) + '\0' + longest + 'x', std::string("m\0\1\0\0\0\0", 7)}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseClusterKey(none).status())) << none;
  }
}

// One scan upwards from a key finds the range that has it, and one downwards the border before.
TEST(ClusterEntries, KeysSortAsScansNeedThem) {
  std::vector<std::string> in_order;
  for (const uint32_t tree : {1u, 2u, 255u, 256u, 0x10000u}) {
    in_order.push_back(RangePrefix(tree));
    for (const std::string& high :
         {std::string(1, '\0'), std::string("\0\0", 2), std::string(1, '\1'), std::string("a"),
          std::string("a\0", 2), std::string("ab"), std::string("b"), std::string("\xff"),
          std::string(kBorderBytesMax, '\xff'), std::string()}) {
      in_order.push_back(RangeKey(tree, high));
    }
  }
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_LT(MemberKey('m', {1, 0x100}), MemberKey('m', {1, 0x10000}));
  EXPECT_LT(MemberKey('m', {0xff, 7}), MemberKey('m', {0x100, 1}));
}

TEST(ClusterEntries, NoTwoStampsAreEqual) {
  StampSource mine(7), others(8);
  std::set<Stamp> stamps;
  for (int i = 0; i < 100; ++i) {
    stamps.insert(mine.Next());
    stamps.insert(others.Next());
  }
  EXPECT_EQ(stamps.size(), 200u);
}

TEST(ClusterEntries, MessagesNameWhatTheyAreAbout) {
  EXPECT_EQ(DescribeKey(RangeKey(3, "ab")), "'r' of tree 3 up to ab");
  EXPECT_EQ(DescribeKey(RangeKey(3, "")), "'r' of tree 3 up to its end");
  EXPECT_EQ(DescribeKey(MemberKey('d', {4, 5})), "'d' of compute server 4, incarnation 5");
  EXPECT_EQ(DescribeKey("x"), "key x");
  EXPECT_EQ(ToText({}), "nobody");
}

}  // namespace
}  // namespace pando

#include "common/wire/owner_messages.h"

#include <gtest/gtest.h>

#include "common/wire/test_messages.h"

namespace pando {
namespace {

const ListedExtent kOneExtent = {7, 1 << 20, 2 << 20, 3, 4, ClientLiveness::kJoined};
const ListedExtent kNextExtent = {8, 3 << 20, 1 << 20, 5, 6, ClientLiveness::kDead};

TEST(OwnerMessagesTest, EveryBodyHasItsLength) {
  ExpectExactLength(EncodeExtentRequest({1 << 20}), ParseExtentRequest);
  ExpectExactLength(EncodeExtentGrant({1, 2, 1 << 20, 2 << 20, 0}), ParseExtentGrant);
  ExpectExactLength(EncodeExtentFree({1, 2, 3}), ParseExtentFree);
  ExpectExactLength(EncodeExtentFreed(true), ParseExtentFreed);
  ExpectExactLength(EncodeExtentQuery({1 << 20, 9}), ParseExtentQuery);
  ExpectExactLength(EncodeExtentList({9, 1, {kOneExtent, kNextExtent}}), ParseExtentList);
  ExpectExactLength(EncodeFenceReply({0, 5}), ParseFenceReply);
  ExpectExactLength(EncodePendingDeletes({7, 8}), ParsePendingDeletes);
  ExpectExactLength(EncodeServingLease(1'000'000), ParseServingLease);
}

TEST(OwnerMessagesTest, FieldsRoundTrip) {
  EXPECT_EQ(ParseExtentRequest(EncodeExtentRequest({77}))->bytes, 77u);
  const auto grant = ParseExtentGrant(EncodeExtentGrant({1, 2, 1 << 20, 2 << 20, 0}));
  EXPECT_EQ(grant->life, 1u);
  EXPECT_EQ(grant->id, 2u);
  EXPECT_EQ(grant->offset, uint64_t{1} << 20);
  EXPECT_EQ(grant->bytes, uint64_t{2} << 20);
  const auto later = ParseExtentGrant(EncodeExtentGrant({.life = 1, .ask_again_ns = 9}));
  EXPECT_EQ(later->id, 0u);
  EXPECT_EQ(later->ask_again_ns, 9);
  const auto freed = ParseExtentFree(EncodeExtentFree({1, 2, 3}));
  EXPECT_EQ(freed->life, 1u);
  EXPECT_EQ(freed->id, 2u);
  EXPECT_EQ(freed->incarnation, 3u);
  EXPECT_TRUE(*ParseExtentFreed(EncodeExtentFreed(true)));
  EXPECT_FALSE(*ParseExtentFreed(EncodeExtentFreed(false)));
  EXPECT_EQ(ParseExtentQuery(EncodeExtentQuery({5, 6}))->after_offset, 5u);
  EXPECT_EQ(ParseExtentQuery(EncodeExtentQuery({5, 6}))->max, 6u);
  const auto list = ParseExtentList(EncodeExtentList({9, 1, {kOneExtent, kNextExtent}}));
  EXPECT_EQ(list->life, 9u);
  EXPECT_EQ(list->more, 1);
  EXPECT_EQ(list->extents, (std::vector<ListedExtent>{kOneExtent, kNextExtent}));
  EXPECT_EQ(ParseFenceReply(EncodeFenceReply({0, 5}))->ask_again_ns, 5);
  EXPECT_EQ(ParseFenceReply(EncodeFenceReply({1, 0}))->confirmed, 1);
  EXPECT_EQ(ParsePendingDeletes(EncodePendingDeletes({7, 8}))->tombstones, 7u);
  EXPECT_EQ(ParsePendingDeletes(EncodePendingDeletes({7, 8}))->oldest_ms, 8u);
  EXPECT_EQ(*ParseServingLease(EncodeServingLease(3)), 3u);
}

TEST(OwnerMessagesTest, ValuesOutOfRangeAreRefused) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  EXPECT_EQ(ParseExtentRequest(EncodeExtentRequest({0})).status().code(), kInvalid);
  EXPECT_EQ(ParseExtentRequest(EncodeExtentRequest({kExtentBytesMax + 1})).status().code(),
            kInvalid);
  const auto grant = [](const ExtentGrant& grant) {
    return ParseExtentGrant(EncodeExtentGrant(grant)).status().code();
  };
  EXPECT_EQ(ParsePendingDeletes(EncodePendingDeletes({1, kPendingDeleteMsMax + 1})).status().code(),
            kLoss);
  EXPECT_EQ(grant({0, 2, 1 << 20, 64, 0}), kLoss) << "no life";
  EXPECT_EQ(grant({1, 2, 0, 64, 0}), kLoss) << "the superblock";
  EXPECT_EQ(grant({1, 2, (1 << 20) + 8, 64, 0}), kLoss) << "no line starts there";
  EXPECT_EQ(grant({1, 2, uint64_t{1} << 47, uint64_t{1} << 47, 0}), kLoss) << "over the end";
  EXPECT_EQ(grant({1, 2, 1 << 20, 64, 5}), kLoss) << "now or later";
  EXPECT_EQ(grant({1, 0, 0, 0, 0}), kLoss) << "neither now nor later";
  EXPECT_EQ(grant({1, 0, 0, 0, kAskAgainNsMax + 1}), kLoss);
  EXPECT_EQ(grant({1, 0, 1 << 20, 64, 5}), kLoss);
  EXPECT_EQ(ParseExtentFree(EncodeExtentFree({0, 2, 3})).status().code(), kLoss);
  EXPECT_EQ(ParseExtentFree(EncodeExtentFree({1, 0, 3})).status().code(), kLoss);
  EXPECT_EQ(ParseExtentFree(EncodeExtentFree({1, 2, 0})).status().code(), kLoss);
  EXPECT_EQ(ParseExtentFreed("\2").status().code(), kLoss);
  const auto list = [](const ExtentList& list) {
    return ParseExtentList(EncodeExtentList(list)).status().code();
  };
  EXPECT_EQ(list({9, 0, {kNextExtent, kOneExtent}}), kLoss) << "not in order";
  EXPECT_EQ(list({9, 0, {kOneExtent, kOneExtent}}), kLoss) << "one over the other";
  EXPECT_EQ(list({9, 1, {}}), kLoss) << "who asked again would ask for ever";
  EXPECT_EQ(list({0, 0, {}}), kLoss);
  EXPECT_EQ(ParseExtentList(std::string(13, '\xff')).status().code(), kLoss);
  EXPECT_EQ(ParseFenceReply(EncodeFenceReply({0, 0})).status().code(), kLoss);
  EXPECT_EQ(ParseFenceReply(EncodeFenceReply({0, -1})).status().code(), kLoss);
  EXPECT_EQ(ParseFenceReply(EncodeFenceReply({1, 1})).status().code(), kLoss);
  EXPECT_EQ(ParseFenceReply(EncodeFenceReply({2, 1})).status().code(), kLoss);
  EXPECT_EQ(ParseServingLease(EncodeServingLease(kLeaseUsMax + 1)).status().code(), kLoss);
}

TEST(OwnerMessagesTest, AFullListFitsOneMessage) {
  ExtentList list = {.life = 1, .more = 1, .extents = {}};
  for (uint64_t i = 1; i <= kListedExtentsMax; ++i) {
    list.extents.push_back({i, i << 20, 1 << 20, 1, 1, ClientLiveness::kLeft});
  }
  const std::string body = EncodeExtentList(list);
  EXPECT_LE(body.size(), kControlBodyBytesMax);
  EXPECT_TRUE(ParseExtentList(body).ok());
}

}  // namespace
}  // namespace pando

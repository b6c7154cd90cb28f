#include "memory/reply_cache.h"

#include "gtest/gtest.h"

namespace pando::memory {
namespace {

ControlHeader Header(uint32_t sequence, uint32_t first_incomplete = 0) {
  ControlHeader header;
  header.opcode = static_cast<uint16_t>(ControlOpcode::kAllocateNodes);
  header.sender = 3;
  header.incarnation = 4;
  header.sequence = sequence;
  header.first_incomplete = first_incomplete;
  return header;
}

std::string Found(const ReplyCache& cache, const ControlHeader& header, std::string_view body) {
  const auto reply = cache.Find(header, body);
  if (!reply.ok()) return "error";
  return *reply == nullptr ? "none" : **reply;
}

TEST(ReplyCacheTest, RepeatsTheReplyOfTheSameRequestOnly) {
  ReplyCache cache;
  cache.Insert(Header(1), "body", "reply");
  EXPECT_EQ(Found(cache, Header(1), "body"), "reply");
  EXPECT_EQ(Found(cache, Header(2), "body"), "none");
  EXPECT_EQ(Found(cache, Header(1), "other"), "error");
  ControlHeader other_life = Header(1);
  other_life.incarnation = 5;
  EXPECT_EQ(Found(cache, other_life, "body"), "none");
  ControlHeader other_opcode = Header(1);
  other_opcode.opcode = static_cast<uint16_t>(ControlOpcode::kReturnNodes);
  EXPECT_EQ(Found(cache, other_opcode, "body"), "none");
}

TEST(ReplyCacheTest, UnnumberedAndOversizedRequestsAreNotKept) {
  ReplyCache cache;
  cache.Insert(Header(0), "body", "reply");
  EXPECT_EQ(Found(cache, Header(0), "body"), "none");
  const std::string large(ReplyCache::kBodyBytesMax + 1, 'x');
  cache.Insert(Header(1), large, "reply");
  EXPECT_EQ(Found(cache, Header(1), large), "none");
}

// Clients repeat a call after half as many others (ControlChannel::kRepeatWithin).
TEST(ReplyCacheTest, RemembersAReplyWhileThereIsRoomForOthers) {
  ReplyCache cache;
  cache.Insert(Header(7, 7), "body", "reply");
  for (uint32_t i = 1; i < 7; ++i) cache.Insert(Header(i, 1), "", "other");  // begun before
  for (uint32_t i = 8; i <= kRepliesKept; ++i) cache.Insert(Header(i, 7), "", "other");
  EXPECT_EQ(Found(cache, Header(7), "body"), "reply");
}

TEST(ReplyCacheTest, ForgetsTheOldestAndWhatWasAcknowledged) {
  ReplyCache cache;
  for (uint32_t i = 1; i <= ReplyCache::kRepliesMax + 10; ++i) cache.Insert(Header(i), "", "reply");
  EXPECT_EQ(Found(cache, Header(1), ""), "none");
  EXPECT_EQ(Found(cache, Header(10), ""), "none");
  EXPECT_EQ(Found(cache, Header(11), ""), "reply");
  EXPECT_EQ(Found(cache, Header(ReplyCache::kRepliesMax + 10), ""), "reply");
  const uint32_t next = ReplyCache::kRepliesMax + 11;
  cache.Insert(Header(next, 100), "", "reply");
  EXPECT_EQ(Found(cache, Header(99), ""), "none");
  EXPECT_EQ(Found(cache, Header(100), ""), "reply");
}

}  // namespace
}  // namespace pando::memory

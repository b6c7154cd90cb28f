#include "compute/peer/message_thrift.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

TEST(MessageThriftTest, MessagesThatCostAreAlwaysShared) {
  MessageThrift thrift(/*cheap_messages=*/false);
  for (const size_t in_flight : {0u, 1u, 24u, 100u}) {
    thrift.Observe(in_flight);
    EXPECT_EQ(thrift.unanswered_max(), 2u);
    EXPECT_EQ(thrift.share(), 1.0);
  }
}

TEST(MessageThriftTest, CheapOnesAreSharedTheMoreTheMoreAreInFlight) {
  size_t unanswered_max = 9;
  double share = -0.1;
  for (size_t in_flight = 20; in_flight <= 28; ++in_flight) {
    MessageThrift thrift(/*cheap_messages=*/true);
    thrift.Observe(in_flight);
    EXPECT_LE(thrift.unanswered_max(), unanswered_max) << in_flight << " in flight";
    EXPECT_GT(thrift.share(), share) << in_flight << " in flight";
    unanswered_max = thrift.unanswered_max();
    share = thrift.share();
    if (in_flight == 20) {
      EXPECT_EQ(unanswered_max, 8u);
      EXPECT_EQ(share, 0.0);
    }
    if (in_flight == 24) {
      EXPECT_EQ(unanswered_max, 5u);
      EXPECT_EQ(share, 0.5);
    }
  }
  EXPECT_EQ(unanswered_max, 2u);
  EXPECT_EQ(share, 1.0);
}

// Half of 32 callers have just got their answers.
TEST(MessageThriftTest, AMomentOfFewIsNotFew) {
  MessageThrift thrift(/*cheap_messages=*/true);
  thrift.Observe(32);
  thrift.Observe(2);
  EXPECT_EQ(thrift.share(), 1.0);
  int messages = 0;
  for (; thrift.share() > 0; ++messages) {
    ASSERT_LT(messages, 100);
    thrift.Observe(2);
  }
  EXPECT_GT(messages, 20);
}

}  // namespace
}  // namespace pando

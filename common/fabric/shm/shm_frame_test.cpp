#include "common/fabric/shm/shm_frame.h"

#include <cstring>

#include "common/base/random.h"
#include "common/fabric/body.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string WithHeader(void (*change)(FrameStart*)) {
  std::string bytes = EncodeShmFrame(ShmFrameType::kCall, 7, "body");
  FrameStart header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  change(&header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

TEST(ShmFrame, ComesBackAsItWas) {
  const std::string bytes = EncodeShmFrame(ShmFrameType::kCall, 7, "body");
  const auto frame = ParseShmFrame(bytes);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->type, ShmFrameType::kCall);
  EXPECT_EQ(frame->sequence, 7u);
  EXPECT_EQ(frame->body, "body");
  EXPECT_TRUE(ParseShmFrame(EncodeShmFrame(ShmFrameType::kHello, 0, "")).ok());
  const std::string longest(kShmBodyBytesMax, 'x');
  EXPECT_TRUE(ParseShmFrame(EncodeShmFrame(ShmFrameType::kCallReply, 1, longest)).ok());
}

TEST(ShmFrame, NamesBothVersions) {
  const auto frame = ParseShmFrame(WithHeader([](FrameStart* h) { h->version = 93; }));
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(frame.status().message()),
              AllOf(HasSubstr("version 93"), HasSubstr("version 1")));
}

TEST(ShmFrame, RefusesWhatIsNoFrame) {
  const std::vector<std::string> no_frames = {
      "",
      "x",
      std::string(15, '\0'),
      std::string(16, '\0'),
      std::string(100, '\xff'),
      WithHeader([](FrameStart* h) { ++h->magic; }),
      WithHeader([](FrameStart* h) { h->type = 0; }),
      WithHeader([](FrameStart* h) { h->type = 11; }),
      WithHeader([](FrameStart* h) { h->length = 5; }),
      WithHeader([](FrameStart* h) { h->length = 3; }),
      WithHeader([](FrameStart* h) { h->length = UINT32_MAX; }),
  };
  for (const std::string& bytes : no_frames) {
    EXPECT_EQ(ParseShmFrame(bytes).status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(ShmFrame, BodiesComeBackAsTheyWere) {
  const auto geometry = ShmGeometry::Create(1 << 20, 4096, 1024, 9);
  ASSERT_TRUE(geometry.ok());
  const auto reply = ParseShmHelloReply(EncodeShmHelloReply({65535, *geometry}));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->server_id, 65535);
  EXPECT_EQ(reply->geometry, *geometry);
  const auto open = ParseShmOpenSlot(EncodeShmOpenSlot({17, 4'000'000'000u}));
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->compute_server, 17);
  EXPECT_EQ(open->incarnation, 4'000'000'000u);
  EXPECT_EQ(*ParseShmSlot(EncodeShmSlot(1023)), 1023u);
}

TEST(ShmFrame, RefusesImpossibleBodies) {
  EXPECT_EQ(ParseShmSlot("123").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseShmOpenSlot("").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseShmHelloReply(std::string(31, '\1')).status().code(), absl::StatusCode::kDataLoss);
  // Sizes that no server has.
  EXPECT_EQ(ParseShmHelloReply(std::string(32, '\xff')).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseShmHelloReply(std::string(32, '\0')).status().code(), absl::StatusCode::kDataLoss);
}

// Any bytes at all: the sanitizers watch.
TEST(ShmFrame, ParsersTakeAnyBytes) {
  Random random(11);
  const auto geometry = ShmGeometry::Create(1 << 20, 4096, 1024, 9);
  const std::string seeds[] = {
      EncodeShmFrame(ShmFrameType::kHelloReply, 0, EncodeShmHelloReply({1, *geometry})),
      EncodeShmFrame(ShmFrameType::kOpenSlot, 1, EncodeShmOpenSlot({1, 2})),
      EncodeShmFrame(ShmFrameType::kSlotReply, 1, EncodeShmSlot(3)),
      EncodeShmFrame(ShmFrameType::kError, 1, EncodeStatus(absl::NotFoundError("x"))),
  };
  int parsed = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes = seeds[random.Uniform(std::size(seeds))];
    for (uint64_t flips = random.Uniform(4); flips > 0; --flips) {
      bytes[random.Uniform(bytes.size())] = static_cast<char>(random.Next());
    }
    if (random.Chance(0.2)) bytes.resize(random.Uniform(bytes.size() + 8));
    // A copy of its own, so that reading past the end is seen.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto frame = ParseShmFrame({exact.data(), exact.size()});
    if (!frame.ok()) continue;
    ++parsed;
    EXPECT_FALSE(ParseStatus(frame->body).ok());
    const auto reply = ParseShmHelloReply(frame->body);
    EXPECT_TRUE(!reply.ok() || reply->geometry.total_bytes() > reply->geometry.main_bytes);
    EXPECT_EQ(ParseShmSlot(frame->body).ok(), frame->body.size() == 4);
    EXPECT_EQ(ParseShmOpenSlot(frame->body).ok(), frame->body.size() == 8);
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace pando

#include "common/fabric/verbs/verbs_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace pando {
namespace {

using testing::HasSubstr;

// A frame whose header was changed, with a checksum that fits again or not.
std::string Changed(std::string frame, size_t at, char to) {
  frame[at] = to;
  return frame;
}

absl::StatusOr<std::optional<VerbsFrame>> Read(std::string_view bytes) {
  VerbsFrameReader reader;
  reader.Append(bytes);
  return reader.Next();
}

VerbsMemory GoodMemory() {
  VerbsMemory reply;
  reply.main_bytes = 1 << 20;
  reply.main_address = 0x7f0000001000;
  reply.lock_bytes = 4096;
  reply.lock_address = 0;
  reply.main_key = 7;
  reply.lock_key = 8;
  reply.packet_bytes = 1024;
  reply.mtu_bytes = 4096;
  return reply;
}

QueuePairAddress GoodAddress() {
  QueuePairAddress address;
  address.number = 17;
  address.sequence = 0xffffff;
  address.mtu_bytes = 4096;
  address.responder_depth = 16;
  return address;
}

TEST(VerbsFrame, FramesComeOutOfAnyPartsOfTheStream) {
  std::string stream;
  for (int i = 0; i < 20; ++i) {
    stream += EncodeVerbsFrame(VerbsFrameType::kCall, static_cast<uint32_t>(i + 1),
                               std::string(static_cast<size_t>(i) * 1000, 'a'));
  }
  for (const size_t part : {size_t{1}, size_t{7}, size_t{24}, size_t{5000}, stream.size()}) {
    VerbsFrameReader reader;
    uint32_t found = 0;
    for (size_t at = 0; at < stream.size(); at += part) {
      reader.Append(std::string_view(stream).substr(at, part));
      for (;;) {
        const auto frame = reader.Next();
        ASSERT_TRUE(frame.ok()) << frame.status();
        if (!frame->has_value()) break;
        EXPECT_EQ((*frame)->sequence, ++found);
        EXPECT_EQ((*frame)->body.size(), (found - 1) * 1000u);
      }
    }
    EXPECT_EQ(found, 20u);
  }
}

TEST(VerbsFrame, EveryChangedByteIsNoticed) {
  const std::string good = EncodeVerbsFrame(VerbsFrameType::kCall, 5, "request");
  ASSERT_TRUE(Read(good).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      const auto frame = Read(Changed(good, i, static_cast<char>(good[i] ^ (1 << bit))));
      EXPECT_FALSE(frame.ok() && frame->has_value()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(VerbsFrame, AnotherVersionIsToldApartFromRubbish) {
  const std::string good = EncodeVerbsFrame(VerbsFrameType::kHello, 0, "");
  const auto version = Read(Changed(good, 4, 9));
  EXPECT_EQ(version.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(version.status().message()), HasSubstr("version 9"));
  EXPECT_EQ(Read("GET / HTTP/1.1\r\nHost: pando\r\n\r\n").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(VerbsFrame, LengthsHaveALimit) {
  VerbsFrameHeader header;
  header.start.type = static_cast<uint16_t>(VerbsFrameType::kCall);
  header.start.length = kVerbsBodyBytesMax + 1;
  const auto frame = Read({reinterpret_cast<const char*>(&header), sizeof(header)});
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kDataLoss);
}

TEST(VerbsFrame, AReaderMayTakeLess) {
  VerbsFrameReader reader;
  reader.Append(EncodeVerbsFrame(VerbsFrameType::kHello, 1, std::string(1024, 'x')) +
                EncodeVerbsFrame(VerbsFrameType::kHello, 2, std::string(1025, 'x')));
  const auto small = reader.Next(1024);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_TRUE(small->has_value());
  EXPECT_TRUE(absl::IsDataLoss(reader.Next(1024).status()));
}

TEST(VerbsFrame, BodiesComeBack) {
  const auto hello = ParseVerbsHello(EncodeBody<VerbsFeatures>({.compatible = 5}));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->compatible, 5u);
  const auto reply = ParseVerbsHelloReply(EncodeBody<VerbsHelloReply>({.server_id = 3}));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->server_id, 3);
  const auto memory = ParseVerbsMemory(EncodeBody<VerbsMemory>(GoodMemory()));
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->main_address, 0x7f0000001000u);
  const auto open =
      ParseVerbsOpen(EncodeBody<VerbsOpen>({.address = GoodAddress(), .replaces = 9}));
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->address.number, 17u);
  EXPECT_EQ(open->replaces, 9u);
  const auto opened = ParseVerbsOpenReply(EncodeBody<VerbsOpenReply>({GoodAddress(), 4}));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->handle, 4u);
  EXPECT_EQ(*ParseVerbsHandle(EncodeBody<uint32_t>(77)), 77u);
}

TEST(VerbsFrame, UnknownFeaturesAreRefusedAndNotTakenForDamage) {
  const auto hello = ParseVerbsHello(EncodeBody<VerbsFeatures>({.incompatible = 1}));
  EXPECT_EQ(hello.status().code(), absl::StatusCode::kFailedPrecondition);
  VerbsHelloReply reply;
  reply.features.incompatible = 2;
  EXPECT_EQ(ParseVerbsHelloReply(EncodeBody<VerbsHelloReply>(reply)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(VerbsFrame, ImpossibleSizesAndAddressesAreDataLoss) {
  const auto refused = [](auto change) {
    VerbsMemory memory = GoodMemory();
    change(&memory);
    return absl::IsDataLoss(ParseVerbsMemory(EncodeBody<VerbsMemory>(memory)).status());
  };
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->main_bytes = 0; }));
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->main_bytes = (uint64_t{1} << 48) + 64; }));
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->main_address = UINT64_MAX - 63; }));
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->lock_bytes = 7; }));
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->packet_bytes = 100; }));
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->mtu_bytes = 8192; }));
  EXPECT_TRUE(refused([](VerbsMemory* r) { r->lines_atomic = 2; }));
  EXPECT_TRUE(absl::IsDataLoss(ParseVerbsMemory("short").status()));
  EXPECT_TRUE(absl::IsDataLoss(ParseVerbsHelloReply("short").status()));

  for (int field = 0; field < 4; ++field) {
    QueuePairAddress address = GoodAddress();
    if (field == 0) address.number = 0;
    if (field == 1) address.sequence = 1 << 24;
    if (field == 2) address.mtu_bytes = 1500;
    if (field == 3) address.responder_depth = 0;
    EXPECT_TRUE(
        absl::IsDataLoss(ParseVerbsOpen(EncodeBody<VerbsOpen>({.address = address})).status()));
    EXPECT_TRUE(
        absl::IsDataLoss(ParseVerbsOpenReply(EncodeBody<VerbsOpenReply>({address, 1})).status()));
  }
}

}  // namespace
}  // namespace pando

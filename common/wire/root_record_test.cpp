#include "common/wire/root_record.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/base/random.h"
#include "common/wire/line.h"

namespace pando {
namespace {

const RootRecord kRecord = {7, {RemoteAddress(3, 4096), 9}, 2, false};

TEST(RootRecordTest, RoundTripsInPlaceAndOverAnything) {
  Random random(9);
  for (const bool crc : {false, true}) {
    alignas(64) std::byte line[kLineBytes] = {};
    for (int round = 0; round < 1000; ++round) {
      std::byte old_line[kLineBytes];
      if (round % 3 == 0) {  // any bytes
        for (std::byte& byte : line) byte = static_cast<std::byte>(random.Next());
      }
      std::memcpy(old_line, line, kLineBytes);
      RootRecord record = kRecord;
      record.level = static_cast<uint8_t>(round);
      record.dropped = round % 2 == 0;
      EncodeRootRecord(record, line, crc, line);
      EXPECT_NE(wire::FrontEv(line), wire::FrontEv(old_line));
      EXPECT_NE(wire::FrontEv(line), wire::RearEv(old_line));
      EXPECT_TRUE(wire::SeriallyNewer(wire::Nv(line), wire::Nv(old_line)));
      RootRecord decoded;
      ASSERT_EQ(DecodeRootRecord(line, 7, crc, &decoded), RootVerdict::kAccepted);
      EXPECT_EQ(decoded.tree_id, 7u);
      EXPECT_EQ(decoded.root, record.root);
      EXPECT_EQ(decoded.level, record.level);
      EXPECT_EQ(decoded.dropped, record.dropped);
    }
  }
}

TEST(RootRecordTest, Verdicts) {
  std::byte line[kLineBytes] = {};
  RootRecord record;
  EXPECT_EQ(DecodeRootRecord(line, 7, false, &record), RootVerdict::kStale);  // fresh memory
  EXPECT_EQ(DecodeRootRecord(line, 0, true, &record), RootVerdict::kStale);
  EncodeRootRecord(kRecord, line, true, line);
  EXPECT_EQ(DecodeRootRecord(line, 8, true, &record), RootVerdict::kStale);
  for (uint32_t i = 0; i < kLineBytes; ++i) {
    line[i] ^= std::byte{1};
    EXPECT_EQ(DecodeRootRecord(line, 7, true, &record), RootVerdict::kTorn) << i;
    line[i] ^= std::byte{1};
  }
  line[0] ^= std::byte{1};
  EXPECT_EQ(DecodeRootRecord(line, 7, false, &record), RootVerdict::kTorn);
  EncodeRootRecord({7, {}, 0, false}, line, false, line);
  EXPECT_EQ(DecodeRootRecord(line, 7, false, &record), RootVerdict::kStale);  // no root
}

}  // namespace
}  // namespace pando

// What lies where in a memory server's shared memory: [main | locks | intents], each page-aligned.
// Both sides compute it from the same few sizes and refuse each other where they differ. Plain
// data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace pando {

struct ShmGeometry {
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kHugePageBytes = 2 << 20;
  static constexpr uint64_t kMainBytesMax = uint64_t{1} << 48;  // offsets of remote addresses
  static constexpr uint64_t kLockBytesMax = uint64_t{1} << 32;
  static constexpr uint32_t kPacketBytesMax = 64 << 10;
  static constexpr uint32_t kEndpointsMax = 64 << 10;
  static constexpr uint32_t kIntentHeaderBytes = 64;

  uint64_t main_bytes = 0;
  uint64_t lock_bytes = 0;
  uint32_t packet_bytes = 0;
  uint32_t endpoints_max = 0;

  // InvalidArgument: says which size is wrong and what it may be.
  static absl::StatusOr<ShmGeometry> Create(uint64_t main_bytes, uint64_t lock_bytes,
                                            uint32_t packet_bytes, uint32_t endpoints_max);

  uint64_t locks_offset() const { return RoundUp(main_bytes); }
  uint64_t intents_offset() const { return locks_offset() + RoundUp(lock_bytes); }
  uint64_t intent_stride() const { return kIntentHeaderBytes + packet_bytes; }
  uint64_t IntentOffset(uint32_t slot) const { return intents_offset() + slot * intent_stride(); }
  // A multiple of the huge page, so that either kind of page can back it.
  uint64_t total_bytes() const {
    return (intents_offset() + endpoints_max * intent_stride() + kHugePageBytes - 1) /
           kHugePageBytes * kHugePageBytes;
  }

  friend bool operator==(const ShmGeometry&, const ShmGeometry&) = default;

 private:
  static uint64_t RoundUp(uint64_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
};

}  // namespace pando

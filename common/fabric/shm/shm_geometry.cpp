#include "common/fabric/shm/shm_geometry.h"

#include "absl/strings/str_cat.h"

namespace pando {

absl::StatusOr<ShmGeometry> ShmGeometry::Create(uint64_t main_bytes, uint64_t lock_bytes,
                                                uint32_t packet_bytes, uint32_t endpoints_max) {
  if (main_bytes == 0 || main_bytes % kPageBytes != 0 || main_bytes > kMainBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("main_bytes is ", main_bytes,
                                                   ", has to be a multiple of ", kPageBytes,
                                                   " up to ", kMainBytesMax));
  }
  if (lock_bytes == 0 || lock_bytes % 64 != 0 || lock_bytes > kLockBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lock_bytes is ", lock_bytes, ", has to be a multiple of 64 up to ", kLockBytesMax));
  }
  if (packet_bytes == 0 || packet_bytes % 64 != 0 || packet_bytes > kPacketBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "packet_bytes is ", packet_bytes, ", has to be a multiple of 64 up to ", kPacketBytesMax));
  }
  if (endpoints_max == 0 || endpoints_max > kEndpointsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("endpoints_max is ", endpoints_max, ", has to be 1 to ", kEndpointsMax));
  }
  ShmGeometry geometry;
  geometry.main_bytes = main_bytes;
  geometry.lock_bytes = lock_bytes;
  geometry.packet_bytes = packet_bytes;
  geometry.endpoints_max = endpoints_max;
  return geometry;
}

}  // namespace pando

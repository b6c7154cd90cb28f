// Fuzz target: whatever stands in a memcached is an entry, an index or a status, and what is one is
// written again as the same bytes. The checksum keeps mutations out, so that they are also tried
// with the right one.
#include <cstring>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/registry/entry.h"
#include "common/wire/crc32c.h"

namespace pando {
namespace {

constexpr size_t kLengthOffset = 8, kChecksumOffset = 12, kHeaderBytes = 16;

void Check(std::string_view bytes) {
  const auto entry = ParseEntry(bytes);
  if (entry.ok()) PANDO_CHECK(EncodeEntry(*entry) == bytes);
  const auto index = ParseIndex(bytes);
  if (index.ok()) PANDO_CHECK(EncodeIndex(*index) == bytes);
  PANDO_CHECK(!entry.ok() || !index.ok());
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  RegistryEntry entry;
  entry.location = {.id = 3, .address = "10.0.0.1:7000", .fabric = "verbs"};
  entry.incarnation = 0x123456789abcdef;
  entry.host = {"host", "8a6dbb8a-0dcb-4e3c-a5a3-3c7d3f2d8f44", 4026531836};
  entry.process = {4711, 99};
  return {EncodeEntry(entry), EncodeIndex({}), EncodeIndex({0, 3, 65535})};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pando::Check(bytes);
  if (size < pando::kHeaderBytes) return 0;
  std::string mended(bytes);
  const auto length = static_cast<uint32_t>(size - pando::kHeaderBytes);
  const uint32_t checksum = pando::Crc32c(data + pando::kHeaderBytes, length);
  std::memcpy(mended.data() + pando::kLengthOffset, &length, sizeof(length));
  std::memcpy(mended.data() + pando::kChecksumOffset, &checksum, sizeof(checksum));
  pando::Check(mended);
  return 0;
}

// What stands in a registry, as bytes, for registries whose values anybody may write: a server's
// entry, and the index of the servers that may have one. Both are a header (magic, version, length,
// CRC32C) and a body of little-endian fields.
//
// Encoders and parsers are pure; parsers take any bytes. FailedPrecondition: another version (says
// both). DataLoss: anything else that is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/registry/process_identity.h"
#include "common/registry/server_location.h"

namespace pando {

inline constexpr uint32_t kEntryMagic = 0x47455250;  // "PREG"
inline constexpr uint32_t kIndexMagic = 0x58444950;  // "PIDX"
inline constexpr uint16_t kEntryVersion = 1;

inline constexpr size_t kAddressBytesMax = 1024;
inline constexpr size_t kFabricNameBytesMax = 32;

struct RegistryEntry {
  ServerLocation location;   // its host is not written: `host` says where it is
  uint64_t incarnation = 0;  // drawn by each announcement: tells two of one id apart
  HostIdentity host;
  ProcessIdentity process;

  friend bool operator==(const RegistryEntry&, const RegistryEntry&) = default;
};

// InvalidArgument: the address has not 1 to kAddressBytesMax bytes, the fabric's name not 1 to
// kFabricNameBytesMax, or either has a line break or a zero byte.
absl::Status CheckEntryText(const ServerLocation& location);

// The texts are within bounds (CHECKed): CheckEntryText() is Ok.
std::string EncodeEntry(const RegistryEntry& entry);
absl::StatusOr<RegistryEntry> ParseEntry(std::string_view bytes);

// Ids ascending, each once (CHECKed).
std::string EncodeIndex(const std::vector<ServerId>& servers);
absl::StatusOr<std::vector<ServerId>> ParseIndex(std::string_view bytes);

}  // namespace pando

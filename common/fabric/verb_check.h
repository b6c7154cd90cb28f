// Which verbs may touch a memory server's memory, and how errors name them. shm and verbs check
// before a chain is executed or posted; shm's server checks intents, too.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/fabric/chain.h"
#include "common/wire/remote_address.h"

namespace pando {

// Why [offset, offset + bytes) is no run of words inside a space; nullptr: it is one.
inline const char* CheckRange(uint64_t space_bytes, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return "nothing to copy";
  if (bytes > space_bytes || offset > space_bytes - bytes) return "out of bounds";
  if (((offset | bytes) & 7) != 0) return "not a run of aligned 8-byte words";
  return nullptr;
}

// Why the verb must not be executed; nullptr: it may.
inline const char* CheckVerb(const Verb& verb, uint64_t space_bytes, uint32_t packet_bytes) {
  if (verb.kind == VerbKind::kWrite && verb.bytes > packet_bytes) {
    return "over the packet size of this fabric";
  }
  return CheckRange(space_bytes, verb.offset, verb.bytes);
}

const char* VerbName(VerbKind kind);  // "READ", "WRITE", "CAS", "FAA"

// "WRITE of 128 bytes at main+4096".
std::string DescribeVerb(const Verb& verb);

// InvalidArgument that names server, verb and reason.
absl::Status VerbError(ServerId server, const Verb& verb, absl::string_view reason);

// UnknownServerError() (server_index.h) for the chain's first verb.
absl::Status UnknownServerError(const Chain& chain);

}  // namespace pando

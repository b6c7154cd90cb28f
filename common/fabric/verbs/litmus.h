// Litmus tests of a device: what its verbs do to one word and to one line at the same moment, as
// seen by queue pairs of this process that are connected over loopback. They tell what may hold for
// `write_unlock` and `lines_atomic` (fabric.h); litmus_verdict.h says so in words.
//
// A test that sees something has disproved it. One that sees nothing proves nothing, on hardware
// above all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fabric/verbs/device_choice.h"

namespace pando {

class DeviceMemoryCalls;

struct LitmusOptions {
  VerbsDeviceOptions device;
  int64_t test_ms = 2'000;  // each test; there are five, and three more where the NIC has memory
  int rivals = 2;           // threads whose CAS fail while the holder releases; readers of lines
  DeviceMemoryCalls* device_memory_calls = nullptr;  // nullptr: the library's; tests have a fake
};

enum class ReleaseVerb : uint8_t { kWrite, kCompareSwap };

// One lock word, taken and released again and again by one queue pair while CAS of others fail.
struct LockLitmus {
  bool on_chip = false;  // the word lies in the NIC's memory, else in the host's
  ReleaseVerb release = ReleaseVerb::kWrite;
  uint64_t releases = 0;
  uint64_t undone = 0;      // releases after which the word showed the old owner again
  uint64_t failed_cas = 0;  // of the others, meanwhile
  uint64_t wrong_cas = 0;   // CAS that succeeded though the word had another value, or the reverse
};

// Lines of one repeated byte, overwritten by one queue pair while others READ them.
struct LinesLitmus {
  uint32_t bytes = 64;  // of a WRITE, and of a READ
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t mixed = 0;  // READs that met more than one WRITE; between lines everybody expects it
  uint64_t lines = 0;  // that were read
  uint64_t torn = 0;   // of these, had parts of more than one WRITE
};

// Data in host memory, each write of it followed by the release of its lock in one chain: who takes
// the lock READs the data behind his CAS, from another queue pair (rules L3, L4).
struct ReleaseLitmus {
  bool on_chip = false;  // the lock lies in the NIC's memory, the data never do
  ReleaseVerb release = ReleaseVerb::kWrite;
  uint64_t taken = 0;  // times that the lock was
  uint64_t stale = 0;  // of these, the data were not what had been written before its release
};

struct LitmusResult {
  std::string device;  // "rxe0 port 1, GID 10.77.0.1, MTU 4096"
  bool is_software = false;
  bool on_chip_refused = false;  // the NIC has memory of its own, and gave none
  std::vector<LockLitmus> locks;
  std::vector<ReleaseLitmus> releases;
  std::vector<LinesLitmus> lines;
};

// Blocks for as long as the tests take. As VerbsDevice::Open(), and ResourceExhausted: memory or
// queue pairs; Unavailable: a verb failed.
absl::StatusOr<LitmusResult> RunLitmus(const LitmusOptions& options);

}  // namespace pando

// The fabric contract (memory-server side): the memory a server offers and the handler of its
// control calls. The same handler runs behind every backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/wire/remote_address.h"

namespace pando {

// One connection of a compute-server process to this memory server. Ids are never reused within a
// run.
using PeerId = uint64_t;

// Implemented by memory::MemoryServer. All methods are called from one thread at a time.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  // `request` is whatever arrived: validate it. The reply is always a well-formed control message.
  virtual std::string Handle(PeerId peer, std::string_view request) = 0;
  // Whether the peer has an identity, or needs none. A peer without one is a stranger to the
  // backend: its connection has its time, and goes where there are many (strangers.h).
  virtual bool IsKnown(PeerId peer) const {
    (void)peer;
    return true;
  }
  // The peer's process has exited or closed its last connection, and every WRITE it had begun is
  // whole or absent.
  virtual void OnPeerGone(PeerId peer) = 0;
  // For work that nobody calls for. Called after the two above, and again once the time that it
  // returned last has come (kNeverNs: not of itself). `now_ns`: the backend's monotonic clock.
  virtual int64_t OnTimer(int64_t now_ns) {
    (void)now_ns;
    return kNeverNs;
  }
};

// How a memory server cuts a living peer off (rule C2), where the fabric can: it destroys the
// peer's queue pairs and refuses new ones.
class PeerFence {
 public:
  virtual ~PeerFence() = default;
  // ControlHandler::OnPeerGone() follows, not from inside this call, when nothing of the peer is in
  // flight any more. Its calls still arrive, so that it can be told; once its connection ends, too,
  // OnPeerGone() follows again. False: it had ended already, and the one OnPeerGone() that was to
  // come is the last.
  virtual bool CutOff(PeerId peer) = 0;
};

// The server's own access to its lock words, where a processor's loads and stores are none: words
// may lie on the NIC, and a NIC's atomics are not atomic against a processor's. One thread at a
// time. Unavailable: the device failed; nothing is known of the words.
class LockTable {
 public:
  virtual ~LockTable() = default;
  virtual uint64_t words() const = 0;
  virtual absl::Status Read(uint64_t first, std::span<uint64_t> into) = 0;
  // The value found.
  virtual absl::StatusOr<uint64_t> CompareSwap(uint64_t word, uint64_t compare, uint64_t swap) = 0;
};

// Memory offered to remote verbs. Spans stay valid and in place for the server's life.
struct ServerMemory {
  std::span<std::byte> main;        // 4096-byte aligned, zero at start
  std::span<std::byte> locks;       // 64-byte aligned, zero at start; empty if not host memory
  LockTable* lock_table = nullptr;  // nullptr: `locks` is accessed as it is

  uint64_t lock_words() const {
    return lock_table != nullptr ? lock_table->words() : locks.size() / sizeof(uint64_t);
  }
};

}  // namespace pando

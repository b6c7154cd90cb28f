// Verbs and chains: what a session posts to one memory server in one go.
//
// A Chain is owned by its poster and must stay alive and unmoved until done() is true. It has room
// for kMaxVerbs verbs and never allocates. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/wire/remote_address.h"

namespace pando {

// The two memory spaces of a memory server: its region, and its lock table (on-chip where the NIC
// has it).
enum class MemorySpace : uint8_t { kMain, kLocks };

enum class VerbKind : uint8_t { kRead, kWrite, kCompareSwap, kFetchAdd };

// Registered local memory that verbs may read from and write to. A view: Endpoint owns the memory.
struct LocalBuffer {
  std::byte* data = nullptr;
  uint32_t bytes = 0;
  uint32_t key = 0;  // the provider's local key; meaningless on shm and sim

  LocalBuffer Slice(uint32_t offset, uint32_t length) const { return {data + offset, length, key}; }
};

struct Verb {
  static constexpr int kMaxPieces = 3;

  VerbKind kind = VerbKind::kRead;
  MemorySpace space = MemorySpace::kMain;
  // A WRITE or atomic that follows a READ or atomic of the same chain is ordered behind it only
  // with the fence, which costs a round trip (and is metered as one).
  bool fence = false;
  uint8_t piece_count = 0;  // READ: 1; WRITE: 1..kMaxPieces, gathered in order; atomics: 0
  uint64_t offset = 0;      // in `space`; atomics: 8-byte aligned
  uint32_t bytes = 0;       // sum of the pieces; atomics: 8
  std::array<LocalBuffer, kMaxPieces> pieces;
  uint64_t compare = 0;      // CAS
  uint64_t swap_or_add = 0;  // CAS: new value; FAA: addend
  uint64_t old_value = 0;    // atomics: the value found, valid once the chain is done and ok

  bool is_atomic() const { return kind == VerbKind::kCompareSwap || kind == VerbKind::kFetchAdd; }
  bool swapped() const { return old_value == compare; }
};

// How many verbs of each kind a chain has, and their bytes. By VerbKind.
struct ChainTally {
  uint32_t verbs[4] = {};
  uint32_t bytes[4] = {};
  uint32_t round_trips = 1;  // and one for each fence

  uint32_t all_verbs() const { return verbs[0] + verbs[1] + verbs[2] + verbs[3]; }
  uint32_t count(VerbKind kind) const { return verbs[static_cast<int>(kind)]; }
  uint32_t bytes_read() const { return bytes[static_cast<int>(VerbKind::kRead)]; }
  uint32_t bytes_written() const {
    return bytes[0] + bytes[1] + bytes[2] + bytes[3] - bytes_read();
  }
};

class Chain {
 public:
  static constexpr int kMaxVerbs = 16;

  Chain() = default;
  explicit Chain(ServerId server) : server_(server) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // Builders. CHECK-fail when the chain is full: a chain's builder knows its size.
  Verb& Read(MemorySpace space, uint64_t offset, LocalBuffer into) {
    Verb& verb = Append(VerbKind::kRead, space, offset);
    verb.piece_count = 1;
    verb.pieces[0] = into;
    verb.bytes = into.bytes;
    return verb;
  }
  Verb& Write(MemorySpace space, uint64_t offset, LocalBuffer from);
  Verb& WriteGather(MemorySpace space, uint64_t offset, std::span<const LocalBuffer> from);
  Verb& CompareSwap(MemorySpace space, uint64_t offset, uint64_t compare, uint64_t swap);
  Verb& FetchAdd(MemorySpace space, uint64_t offset, uint64_t add);

  // Empties the chain for another use. Not while posted.
  void Reset(ServerId server) {
    server_ = server;
    count_ = 0;
    done_ = false;
    status_ = absl::OkStatus();
    posted_ns_ = started_ns_ = completed_ns_ = 0;
    start_by_ns_ = start_within_ns_ = kNeverNs;
    on_done_ = nullptr;
    on_done_context_ = nullptr;
  }

  ServerId server() const { return server_; }
  std::span<Verb> verbs() { return {verbs_.data(), count_}; }
  std::span<const Verb> verbs() const { return {verbs_.data(), count_}; }
  Verb& verb(size_t i) { return verbs_[i]; }
  size_t size() const { return count_; }
  // 1 + the number of fences.
  int round_trips() const { return static_cast<int>(Tally().round_trips); }
  // As it was posted.
  const ChainTally& tally() const { return tally_; }
  ChainTally Tally() const {
    ChainTally tally;
    for (const Verb& verb : verbs()) {
      ++tally.verbs[static_cast<int>(verb.kind)];
      tally.bytes[static_cast<int>(verb.kind)] += verb.bytes;
      tally.round_trips += verb.fence ? 1 : 0;
    }
    return tally;
  }

  bool done() const { return done_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  int64_t posted_ns() const { return posted_ns_; }
  // When the NIC was told of it (the doorbell): no earlier than posted_ns(), later where the chain
  // had to wait. Nothing of it happened before.
  int64_t started_ns() const { return started_ns_; }
  int64_t completed_ns() const { return completed_ns_; }

  // How long the chain may wait where it cannot be started at once (fabric.h): up to `by_ns`, and
  // for `within_ns` from Post() on. Then it is done with DeadlineExceeded, and nothing of it has
  // happened. Set before Post(); Reset() forgets it.
  void LimitWait(int64_t by_ns, int64_t within_ns) {
    start_by_ns_ = by_ns;
    start_within_ns_ = within_ns;
  }

  // --- For the scheduler: who is told. Called on the posting endpoint's own thread, from Post()
  // (of this chain when it finishes at once, or of a later one) or from Poll(). Set before Post().
  using OnDone = void (*)(Chain* chain, void* context);
  void set_on_done(OnDone fn, void* context) {
    on_done_ = fn;
    on_done_context_ = context;
  }

  // --- For backends.
  const ChainTally& KeepTally() { return tally_ = Tally(); }
  void MarkPosted(int64_t now_ns) {
    done_ = false;
    posted_ns_ = started_ns_ = now_ns;
  }
  void MarkStarted(int64_t now_ns) { started_ns_ = now_ns; }
  // LimitWait(), or `within_ns` after Post() where nobody set a limit.
  int64_t StartByNs(int64_t within_ns) const {
    if (start_within_ns_ != kNeverNs) return std::min(start_by_ns_, posted_ns_ + start_within_ns_);
    return start_by_ns_ != kNeverNs ? start_by_ns_ : posted_ns_ + within_ns;
  }
  // Sets the outcome and calls on_done. The chain may be destroyed by that call.
  void Complete(absl::Status status, int64_t now_ns);

 private:
  Verb& Append(VerbKind kind, MemorySpace space, uint64_t offset) {
    if (count_ >= kMaxVerbs) [[unlikely]]
      CheckRoom();
    Verb& verb = verbs_[count_++];
    verb.kind = kind;
    verb.space = space;
    verb.fence = false;
    verb.piece_count = 0;
    verb.offset = offset;
    verb.bytes = 0;
    return verb;
  }
  void CheckRoom() const;

  ServerId server_ = 0;
  uint8_t count_ = 0;
  bool done_ = false;
  absl::Status status_;
  int64_t posted_ns_ = 0;
  int64_t started_ns_ = 0;
  int64_t completed_ns_ = 0;
  int64_t start_by_ns_ = kNeverNs, start_within_ns_ = kNeverNs;
  OnDone on_done_ = nullptr;
  void* on_done_context_ = nullptr;
  ChainTally tally_;
  std::array<Verb, kMaxVerbs> verbs_;
};

}  // namespace pando

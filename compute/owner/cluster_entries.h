// The entries of the cluster tree, as bytes (rule O2).
//
//   m <member>             the member's service, and what it is doing
//   l <member>             its log
//   d <member>             the recovery of one that has ended
//   r <tree> <upper end>   who owns the keys from the border before it up to this one
//
// A member is (compute server, incarnation), so that one that has ended and its successor of the
// same number have entries of their own. Keys sort as their fields do, and the upper end of a tree
// that has no border sorts behind all that have one. Every value begins with its writer's stamp: no
// two are equal, so that a client that finds its own value knows that it wrote it itself, and
// nothing that comes back is taken for what was there before.
//
// Pure and thread-safe, but for StampSource, which is thread-safe. Parsers take any bytes, and what
// they accept is encoded as the same bytes again. DataLoss: anything else.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/log_extent.h"
#include "common/wire/lsn.h"
#include "common/wire/remote_address.h"

namespace pando {

// The shape of the cluster tree.
inline constexpr uint32_t kClusterKeyBytesMax = 246;
inline constexpr uint32_t kClusterValueBytesMax = 128;
// Of keys of an owned tree, and so of borders.
inline constexpr uint32_t kBorderBytesMax = 240;
// The path of a socket fits.
inline constexpr size_t kServiceAddressBytesMax = 108;

struct MemberId {
  uint16_t compute_server = 0;
  uint32_t incarnation = 0;  // each is issued once (rule C0); 0: nobody

  bool nobody() const { return incarnation == 0; }
  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};
// "compute server 3, incarnation 17", or "nobody".
std::string ToText(MemberId member);

// Who wrote a value, and how-manieth of his it is.
struct Stamp {
  uint32_t incarnation = 0;
  uint64_t counter = 0;
  friend auto operator<=>(const Stamp&, const Stamp&) = default;
};

// One a client. Any thread.
class StampSource {
 public:
  explicit StampSource(uint32_t incarnation) : incarnation_(incarnation) {}
  Stamp Next() { return {incarnation_, next_.fetch_add(1, std::memory_order_relaxed)}; }

 private:
  const uint32_t incarnation_;
  std::atomic<uint64_t> next_{1};
};

struct MemberEntry {
  static constexpr char kKind = 'm';
  // Members write kServing; of one that says otherwise, as another release may, nothing is asked.
  enum class State : uint8_t { kJoining = 1, kServing = 2, kLeaving = 3 };
  Stamp stamp;
  State state = State::kJoining;
  std::string address;  // of its service; at most kServiceAddressBytesMax (CHECKed)
  friend bool operator==(const MemberEntry&, const MemberEntry&) = default;
};

struct LogEntry {
  static constexpr char kKind = 'l';
  Stamp stamp;
  LogExtent extent;  // of more than 0 bytes
  uint32_t epoch = 0;
  friend bool operator==(const LogEntry&, const LogEntry&) = default;
};

struct RecoveryEntry {
  static constexpr char kKind = 'd';
  Stamp stamp;
  MemberId claimant;  // nobody: handed back
  friend bool operator==(const RecoveryEntry&, const RecoveryEntry&) = default;
};

// A term (owner and since), or nobody with a wished owner.
struct RangeEntry {
  static constexpr char kKind = 'r';
  Stamp stamp;
  MemberId owner;
  // The first of the owner's messages that belong to the term; none without an owner.
  Lsn since = kNoLsn;
  MemberId wished;  // whoever should claim it, maybe nobody; nobody where there is an owner
  friend bool operator==(const RangeEntry&, const RangeEntry&) = default;
};

// --- Keys.

// `kind`: m, l or d.
std::string MemberKey(char kind, MemberId member);
// `high`: 1 to kBorderBytesMax bytes, or empty, where the range has no upper border (CHECKed).
std::string RangeKey(uint32_t tree_id, std::string_view high);
// All keys of a kind, or of a tree's ranges, begin with it; none is equal to it.
inline std::string KindPrefix(char kind) { return std::string(1, kind); }
std::string RangePrefix(uint32_t tree_id);

struct ClusterKey {
  char kind = 0;
  MemberId member;       // m, l, d
  uint32_t tree_id = 0;  // r
  std::string high;      // r
  friend bool operator==(const ClusterKey&, const ClusterKey&) = default;
};
absl::StatusOr<ClusterKey> ParseClusterKey(std::string_view bytes);
// For messages: "'r' of tree 3 up to \x01ab".
std::string DescribeKey(std::string_view bytes);

// --- Values.

std::string Encode(const MemberEntry& entry);
std::string Encode(const LogEntry& entry);
std::string Encode(const RecoveryEntry& entry);
std::string Encode(const RangeEntry& entry);

absl::Status Parse(std::string_view bytes, MemberEntry* entry);
absl::Status Parse(std::string_view bytes, LogEntry* entry);
absl::Status Parse(std::string_view bytes, RecoveryEntry* entry);
absl::Status Parse(std::string_view bytes, RangeEntry* entry);

}  // namespace pando

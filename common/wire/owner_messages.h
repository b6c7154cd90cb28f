// Bodies of the control messages that owned trees need: memory for redo logs (rule W1), the end of
// a life (rule D2), serving leases (rule O5). Encoders and parsers are pure; parsers take any bytes
// (fuzzed: control_fuzz).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/wire/control.h"

namespace pando {

inline constexpr uint64_t kExtentBytesMax = uint64_t{1} << 40;
inline constexpr size_t kListedExtentsMax = 1024;  // a reply stays within one control message
inline constexpr int64_t kAskAgainNsMax = static_cast<int64_t>(kLeaseUsMax) * kMicrosecondNs;

struct ExtentRequest {  // kAllocateExtent
  uint64_t bytes = 0;   // at least so many, contiguous; at most kExtentBytesMax
};
struct ExtentGrant {
  uint64_t life = 0;  // of the server
  // 0: nothing yet, but memory that rests or is being zeroed will do. The same client asks for the
  // same number of bytes again, after `ask_again_ns`; else that is 0.
  uint64_t id = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // all zero; whole chunks
  int64_t ask_again_ns = 0;
};
// kFreeExtent -> whether it took effect. An extent that is gone already, with a life of the server
// or by an earlier free, is no error.
struct ExtentFree {
  uint64_t life = 0;  // of the server, when it was allocated
  uint64_t id = 0;
  uint32_t incarnation = 0;  // of the holder
};
struct ExtentQuery {          // kListExtents: by ascending offset, a part a call
  uint64_t after_offset = 0;  // 0: from the start; else the last one of the reply before
  uint32_t max = 0;           // wanted; at most kListedExtentsMax come
};
struct ListedExtent {
  uint64_t id = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint16_t compute_server = 0;  // the holder
  uint32_t incarnation = 0;
  // Of the holder, here. kJoined: something of it may still be in flight.
  ClientLiveness holder = ClientLiveness::kJoined;
  friend bool operator==(const ListedExtent&, const ListedExtent&) = default;
};
struct ExtentList {
  uint64_t life = 0;  // of the server
  uint8_t more = 0;   // 1: ask again after the last one
  std::vector<ListedExtent> extents;
};

// kFence; the request is an identity without proof, as of kClientState.
struct FenceReply {
  // 1: that life has ended here, for ever: nothing of it is in flight to this server, none of its
  // lock words is left, it is introduced nowhere on it any more. Of the catalog's server, too: its
  // serving lease is over.
  uint8_t confirmed = 0;
  int64_t ask_again_ns = 0;  // above 0 where it is not confirmed yet
};

// kNoteDeletes, without a reply's body: erases of the sender that are not in their leaves yet.
struct PendingDeletes {
  uint64_t tombstones = 0;
  uint64_t oldest_ms = 0;  // for how long; at most kPendingDeleteMsMax
};
inline constexpr uint64_t kPendingDeleteMsMax = uint64_t{10} * 365 * 24 * 3600 * 1000;

std::string EncodeExtentRequest(const ExtentRequest& request);
absl::StatusOr<ExtentRequest> ParseExtentRequest(std::string_view body);  // InvalidArgument: bytes
std::string EncodeExtentGrant(const ExtentGrant& grant);
absl::StatusOr<ExtentGrant> ParseExtentGrant(std::string_view body);
std::string EncodeExtentFree(const ExtentFree& freed);
absl::StatusOr<ExtentFree> ParseExtentFree(std::string_view body);
std::string EncodeExtentFreed(bool took_effect);
absl::StatusOr<bool> ParseExtentFreed(std::string_view body);
std::string EncodeExtentQuery(const ExtentQuery& query);
absl::StatusOr<ExtentQuery> ParseExtentQuery(std::string_view body);
std::string EncodeExtentList(const ExtentList& list);
absl::StatusOr<ExtentList> ParseExtentList(std::string_view body);
std::string EncodeFenceReply(const FenceReply& reply);
absl::StatusOr<FenceReply> ParseFenceReply(std::string_view body);
std::string EncodePendingDeletes(const PendingDeletes& deletes);
absl::StatusOr<PendingDeletes> ParsePendingDeletes(std::string_view body);
// The reply to kServe: how long the lease that has begun is. 0: only the end of its process takes
// the right to serve from a client here.
std::string EncodeServingLease(uint64_t lease_us);
absl::StatusOr<uint64_t> ParseServingLease(std::string_view body);

}  // namespace pando

// The last replies to one connection, so that a request that is repeated because its reply was lost
// takes effect once (rule R4). Not thread-safe. Invariants:
//   1. At most kRepliesMax replies; the oldest go first, those the client has acknowledged before
//      their time.
//   2. Requests with sequence 0 are not numbered, those over kBodyBytesMax are never well-formed:
//      neither is kept.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/wire/control.h"

namespace pando::memory {

class ReplyCache {
 public:
  static constexpr size_t kRepliesMax = kRepliesKept;
  static constexpr size_t kBodyBytesMax = 1024;

  // The reply that was given; nullptr: new. InvalidArgument: the number was used for another
  // request.
  absl::StatusOr<const std::string*> Find(const ControlHeader& header, std::string_view body) const;
  void Insert(const ControlHeader& header, std::string_view body, std::string reply);

 private:
  // sender, incarnation, session, sequence, opcode
  using Key = std::tuple<uint16_t, uint32_t, uint32_t, uint32_t, uint16_t>;
  struct Entry {
    std::string body;
    std::string reply;
  };
  static Key KeyOf(const ControlHeader& header);
  void DropAcknowledged(const ControlHeader& header);

  absl::flat_hash_map<Key, Entry> replies_;
  std::deque<Key> oldest_first_;
};

}  // namespace pando::memory

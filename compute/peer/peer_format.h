// Requests to the owners of keys, and their answers, as the bytes of messages between compute
// servers (rules P1 to P4). Pure.
//
// A message has a header and one or more requests, or answers. All fields are little-endian and
// unaligned; strings are a byte of length and their bytes, texts two bytes of length.
//
//   header   kind 'Q' or 'A' 1, version 1, count 2; sender 2 + 4 and receiver 2 + 4 (compute server
//            and incarnation)
//   request  number 4, microseconds left 8 (all ones: no deadline), tree 4, operation 1; then
//            get: key; put, insert, update: key, value; erase: key; replace: key, value, expected;
//            erase if: key, expected; upsert: key, function 4, operand;
//            scan: down 1, rows 2, and two cuts (key, after 1): where it begins and where it ends;
//            erase range: two cuts, where it begins and where it ends;
//            take: key, value; load, lend: key (of these it may be empty: the tree's first)
//   answer   number 4, outcome 1; then
//            done, not owner: nothing; value: value; condition failed: value, text;
//            error: code 1, text; rows: more 1, if so the cut that it has reached, rows 2, and for
//            each its key and value; erased: more 1, if so the cut that it has reached, keys 8;
//            lent: whether it is 1, and the borders of the range, each of 0 to 240 bytes
//
// Invariants:
//   1. Any bytes are parsed: as a message, or DataLoss. What is parsed is written as the same bytes
//      again, and nothing of it is longer than it may be.
//   2. One request, and one answer, always fits a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/fabric/peer.h"
#include "pando/upsert.h"
#include "pando/write.h"

namespace pando {

inline constexpr size_t kPeerKeyBytesMax = 240;
inline constexpr size_t kPeerValueBytesMax = 255;
// Of an error; what is longer is cut.
inline constexpr size_t kPeerTextBytesMax = 512;
inline constexpr uint64_t kPeerNoDeadline = UINT64_MAX;

// A place between keys; a view. As KeyCut.
struct PeerCut {
  std::string_view key;  // up to kPeerKeyBytesMax
  bool after = false;
  friend bool operator==(const PeerCut&, const PeerCut&) = default;
};

// An operation on a key, or a piece of a scan, or of a range that is erased. A view.
struct PeerRequest {
  enum class Operation : uint8_t {
    kGet,
    kWrite,
    kScan,
    kTake,  // claim the key's range, if you may (rule O12)
    kLoad,  // say how much you have to do, and what of it in the key's range (rule O13)
    kEraseRange,
    kLend,  // whether the key's range may be read from its leaves for a while (rule O15)
  };

  Operation operation = Operation::kGet;
  Write::Kind write = Write::Kind::kPut;  // kWrite
  uint32_t tree_id = 0;
  std::string_view key;  // 1 to kPeerKeyBytesMax; kTake, kLoad, kLend: from 0
  // What is written, or the operand; kTake: what comes with the range. Up to kPeerValueBytesMax.
  std::string_view value;
  std::string_view expected;                       // kReplace, kEraseIf; up to kPeerValueBytesMax
  UpsertFunction function = UpsertFunction::kAdd;  // kUpsert
  // kScan, kEraseRange: the keys from the first cut to the second, which is the lower one where a
  // scan goes down.
  PeerCut at, end;
  bool down = false;
  uint16_t rows_max = 0;  // at least 1

  // Done twice it is as good as done once.
  bool is_read() const {
    return operation != Operation::kWrite && operation != Operation::kEraseRange;
  }
};

// What the owner says. A plain value; used again its strings keep their memory.
struct PeerAnswer {
  // Nothing happened: the one who was asked does not own the key. Nothing else below counts.
  bool not_owner = false;
  absl::Status status;
  // Get and upsert that are OK: the value; IsConditionFailed(status): the one that is there.
  std::string value;

  // --- Of a scan, or an erasing, that is OK: all keys from where it began to `reached`, if there
  // is `more`, else to where it was to end.
  bool is_scan = false, is_erasing = false;
  bool more = false;
  std::string reached_key;
  bool reached_after = false;
  uint16_t row_count = 0;
  std::string rows;     // PeerRowReader
  uint64_t erased = 0;  // keys

  // --- Of a request to lend: the borders of the range ("": none), which is lent or not.
  bool is_lending = false, lent = false;
  std::string lent_low, lent_high;

  void Reset();
  // In the scan's order. False: no room, nothing was added.
  bool AddRow(std::string_view key, std::string_view value);
  // There is more: it has come so far, which is further than where it began.
  void SetReached(PeerCut cut);
};

// The rows of an answer, one by one.
class PeerRowReader {
 public:
  explicit PeerRowReader(std::string_view rows) : rest_(rows) {}
  // False: that was all. The views are of the rows.
  bool Next(std::string_view* key, std::string_view* value);

 private:
  std::string_view rest_;
};

struct PeerMessageHeader {
  PeerIdentity from, to;
  friend bool operator==(const PeerMessageHeader&, const PeerMessageHeader&) = default;
};

// Puts requests, or answers, into a message as long as there is room. The buffer is used again.
class PeerMessageWriter {
 public:
  void StartRequests(const PeerMessageHeader& header) { Start('Q', header); }
  void StartAnswers(const PeerMessageHeader& header) { Start('A', header); }
  // False: no room, the message is as before. Lengths as PeerRequest and PeerAnswer say (CHECKed);
  // the first always has room.
  bool Add(uint32_t number, uint64_t left_us, const PeerRequest& request);
  bool Add(uint32_t number, const PeerAnswer& answer);

  size_t count() const { return count_; }
  // With one at least.
  std::string_view bytes();

 private:
  void Start(char kind, const PeerMessageHeader& header);
  bool Keep(size_t before);

  std::string bytes_;
  uint16_t count_ = 0;
};

// What its request takes in a message, at most.
size_t PeerRequestBytes(const PeerRequest& request);

struct PeerNumberedRequest {
  uint32_t number = 0;
  uint64_t left_us = 0;
  PeerRequest request;
};
// The views are of `message`. DataLoss: it is none.
absl::Status ParsePeerRequests(std::string_view message, PeerMessageHeader* header,
                               std::vector<PeerNumberedRequest>* requests);

// An answer in a message; a view.
struct PeerAnswerView {
  uint32_t number = 0;
  bool not_owner = false;
  bool has_value = false;
  bool condition_failed = false;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string_view text, value;
  bool is_scan = false, is_erasing = false, is_lending = false, more = false, lent = false;
  std::string_view lent_low, lent_high;
  PeerCut reached;
  uint64_t erased = 0;
  uint16_t row_count = 0;
  std::string_view rows;

  void CopyTo(PeerAnswer* answer) const;
};
absl::Status ParsePeerAnswers(std::string_view message, PeerMessageHeader* header,
                              std::vector<PeerAnswerView>* answers);

// Whether it answers this: a scan's rows are in its order, between its cuts, as many as it wants at
// most, and where there is more it has got on, as an erasing has. Else DataLoss.
absl::Status CheckPeerAnswer(const PeerRequest& request, const PeerAnswerView& answer);

}  // namespace pando

// The history of an index: what every client asked for, when, and what it was told.
//
// Times are nanoseconds on one clock. Keys and values are raw bytes here; in files both are hex
// (history_io.h). Every value written in a history should be unique: repeated values hide stale
// reads and make checking slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pando::history {

enum class OperationKind : uint8_t {
  kGet,
  kPut,
  kInsert,
  kUpdate,
  kDelete,
  kScan,
  kReplace,
  kEraseIf,
  kUpsert,
  kClear  // it was absent at some moment, whatever was there before: perhaps it was erased then
};

const char* OperationKindName(OperationKind kind);  // as in files: "get", ..., "upsert"

// What an upsert does with the present value and its operand. Numbers are 8 bytes, little-endian.
enum class UpsertKind : uint8_t { kAdd, kAppend };

// Replace, erase if, upsert.
inline bool IsConditional(OperationKind kind) {
  return kind == OperationKind::kReplace || kind == OperationKind::kEraseIf ||
         kind == OperationKind::kUpsert;
}

// The return time of an operation whose outcome is unknown: it took effect at any time after its
// call, or never.
inline constexpr int64_t kNeverReturned = INT64_MAX;
// Of such an operation: nobody knows by when it has happened, if it does.
inline constexpr int64_t kAtAnyTime = INT64_MAX;

struct Operation {
  int32_t client = 0;
  OperationKind kind = OperationKind::kGet;
  // get: present. insert: refused, the key was there. update, delete: it was there. put, scan:
  // ignored. replace, erase if, upsert: it was done.
  bool found = false;
  std::string key;       // scan: from
  std::string value;     // get that found: what was read; put, insert, update, replace: what was or
                         // would have been stored; upsert that was done: the result
  std::string expected;  // replace, erase if
  UpsertKind upsert = UpsertKind::kAdd;
  std::string operand;  // upsert
  // replace, erase if, upsert that were refused: what was there; nothing: the key was absent.
  std::optional<std::string> actual;
  int64_t call_ns = 0;
  int64_t return_ns = kNeverReturned;
  int64_t latest_ns = kAtAnyTime;  // outcome unknown: it took effect by then, or never
  std::optional<std::string> to;   // scan: keys below it; none: to the end
  size_t limit = 0;                // scan
  std::vector<std::pair<std::string, std::string>> rows;  // scan
  uint32_t line = 0;                                      // in the file it came from; 0: none

  bool unknown() const { return return_ns == kNeverReturned; }
};

// The whole content of an index at one moment: keys and values, in the order in which they were
// found.
using State = std::vector<std::pair<std::string, std::string>>;

// Collects operations in memory, to be checked or written at the end. Not thread-safe: one recorder
// a thread or process, appended to each other afterwards.
class HistoryRecorder {
 public:
  void Add(Operation operation) { operations_.push_back(std::move(operation)); }
  void Append(HistoryRecorder other) {
    for (Operation& operation : other.operations_) operations_.push_back(std::move(operation));
  }
  const std::vector<Operation>& operations() const { return operations_; }

 private:
  std::vector<Operation> operations_;
};

}  // namespace pando::history

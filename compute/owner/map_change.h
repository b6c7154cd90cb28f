// One change to one entry of the map, until it is known whether it has happened (rule O3).
//
// A write of unknown outcome may have landed, or land later, whatever a READ shows meanwhile. So
// the change is repeated: each repetition is decided under the lock of the entry's leaf, which is
// kept until nothing of the write before is in flight any more (rule L5). It finds the own value:
// done; what it expected: the write before has not happened, and never will, and this one is
// decided now; anything else: somebody has gone on, from `expected` or from the own value.
//
// Not thread-safe; may be moved. Invariants:
//   1. Decided once, by an operation that was decided under the lock, never by a READ.
//   2. While it is undecided its member changes nothing else of that tree's map (rule O4), and does
//      not forget it: the caller keeps it, and settles it with another deadline.
//   3. `desired` has a stamp of its own (cluster_entries.h): another value is somebody else's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/owner/map_store.h"

namespace pando {

class MapChange {
 public:
  enum class Decision {
    kDone,   // by this change; of an erase: it is gone, whoever it was
    kOther,  // the entry is another one: actual()
    kGone,   // of a Replace: there is no such entry
  };

  // There is no such entry.
  static MapChange Insert(std::string key, std::string desired);
  static MapChange Replace(std::string key, std::string expected, std::string desired);
  static MapChange EraseIf(std::string key, std::string expected);

  // Repeats it to the context's deadline. Ok: decided, and stays so. IsOutcomeUnknown(): not yet;
  // call again. FailedPrecondition: this client has been cut off, nothing more comes of it. Any
  // other: nothing has happened, and nothing will; it may be tried again, or dropped.
  absl::Status Settle(OperationContext& context, MapStore& store);

  bool decided() const { return decision_.has_value(); }
  // It may have happened, or happen yet.
  bool uncertain() const { return !decided() && uncertain_; }
  // Once decided (CHECKed).
  Decision decision() const;
  const std::string& actual() const { return actual_; }

  const std::string& key() const { return key_; }
  const std::string& desired() const { return desired_; }

 private:
  MapChange(WriteKind kind, std::string key, std::string expected, std::string desired)
      : kind_(kind),
        key_(std::move(key)),
        expected_(std::move(expected)),
        desired_(std::move(desired)) {}

  // Once more; what it is decided by this.
  absl::Status Try(OperationContext& context, MapStore& store);
  // Of an insert that met an entry: whose it is, under the lock.
  absl::Status LookAtPresent(OperationContext& context, MapStore& store);
  absl::Status Decide(Decision decision);
  absl::Status DecideBy(std::string actual);
  // The broken variant: settles what may still land.
  absl::Status SettleByRead(OperationContext& context, MapStore& store);
  absl::Status Undecided(const absl::Status& why) const;

  WriteKind kind_;
  std::string key_, expected_, desired_;
  bool uncertain_ = false;
  std::optional<Decision> decision_;
  std::string actual_;
};

}  // namespace pando

// The functions that a client's upserts may name: those that are built in, and the program's own.
//
// Thread-safe. Invariant: what Find() returned stays as it is for as long as the table lives, also
// in the hands of other sessions that execute what waits for a leaf.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>

#include "absl/status/status.h"
#include "pando/upsert.h"

namespace pando {

class UpsertTable {
 public:
  UpsertTable();

  // InvalidArgument: a number below kFirstRegistered, or no function. AlreadyExists.
  absl::Status Register(uint32_t number, UpsertCallback function);

  // What runs under the lock: throws nothing, and every error of it is one of IsConditionFailed().
  // Null: there is no such function.
  const UpsertCallback* Find(UpsertFunction function) const;

 private:
  std::map<uint32_t, UpsertCallback> built_in_;  // as it was made: found without a lock
  mutable std::shared_mutex mutex_;
  std::map<uint32_t, UpsertCallback> registered_;  // only grows
};

// InvalidArgument: the function takes no such operand, or needs longer values than the tree's.
absl::Status CheckOperand(UpsertFunction function, std::string_view operand,
                          uint32_t value_bytes_max);

}  // namespace pando

// The writes of Session::WriteMany(), and the result of each.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "pando/upsert.h"

namespace pando {

// One write of many: does what Session's operation of that name does. A plain value.
struct Write {
  enum class Kind : uint8_t { kPut, kInsert, kUpdate, kErase, kReplace, kEraseIf, kUpsert };
  Kind kind = Kind::kPut;
  std::string key = {};
  std::string value = {};     // kReplace: the desired value, kUpsert: the operand; unused by erases
  std::string expected = {};  // kReplace, kEraseIf
  UpsertFunction function = UpsertFunction::kAdd;  // kUpsert
};

struct WriteResult {
  // As Session's operation of that name returns it.
  absl::Status status;
  // A kUpsert that is OK: the new value. IsConditionFailed(status): the present value. Else empty.
  std::string value;
};

}  // namespace pando

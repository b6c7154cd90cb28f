// The writes of Session::WriteMany(), and what came of each.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "pando/upsert.h"

namespace pando {

// One write of many, as Session's operation of that name. Any thread's; a plain value.
struct Write {
  enum class Kind : uint8_t { kPut, kInsert, kUpdate, kErase, kReplace, kEraseIf, kUpsert };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;     // kReplace: what is desired, kUpsert: the operand; no matter for erasing
  std::string expected;  // kReplace, kEraseIf
  UpsertFunction function = UpsertFunction::kAdd;  // kUpsert
};

struct WriteResult {
  // As Session's operation of that name says it.
  absl::Status status;
  // kUpsert that is OK: the new value; IsConditionFailed(status): the present one; else empty.
  std::string value;
};

}  // namespace pando

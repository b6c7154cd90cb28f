// What a write makes of its key, given what is there: the semantics of all kinds of writes (rule
// U4), in one place for both callers: under a leaf's lock (leaf_batch.h), and under the mutex of a
// partition in an owned tree.
//
// Pure. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/index/write_operation.h"

namespace pando {

enum class WriteEffect {
  kNone,   // nothing changes, whatever the result says
  kStore,  // the key gets the value
  kErase,
};

// Of an upsert whose function has been applied: OK or a failed condition. `computed` gets the new
// value where the effect is kStore; `answer` (may be null) the present value where a condition
// failed, and the new one where it is the present one.
WriteEffect DecideUpsert(const WriteOperation& operation, std::optional<std::string_view> present,
                         uint32_t value_bytes_max, std::string* computed, absl::Status* result,
                         std::string* answer);

// Every other kind. `present()` is the key's value, asked for only where the decision needs it.
// `result`: OK, AlreadyExists, NotFound, or a failed condition, whose present value goes to
// `answer` (may be null), as does the one before a write that wants it. kStore stores
// `operation.value`.
template <typename Present>
[[gnu::always_inline]] inline WriteEffect DecideWrite(const WriteOperation& operation,
                                                      bool is_present, const Present& present,
                                                      absl::Status* result, std::string* answer) {
  *result = absl::OkStatus();
  if (operation.wants_previous && answer != nullptr) [[unlikely]] {
    answer->assign(is_present ? present() : std::string_view());
  }
  switch (operation.kind) {
    case WriteKind::kPut:
      return WriteEffect::kStore;
    case WriteKind::kInsert:
      if (!is_present) return WriteEffect::kStore;
      *result = KeyExists();
      return WriteEffect::kNone;
    case WriteKind::kUpdate:
      if (is_present) return WriteEffect::kStore;
      break;
    case WriteKind::kErase:
      if (is_present) return WriteEffect::kErase;
      break;
    case WriteKind::kReplace:
    case WriteKind::kEraseIf: {
      if (!is_present) break;
      const std::string_view value = present();
      if (value == operation.expected) {
        return operation.kind == WriteKind::kReplace ? WriteEffect::kStore : WriteEffect::kErase;
      }
      *result = ValueDiffers();
      if (answer != nullptr) answer->assign(value);
      return WriteEffect::kNone;
    }
    case WriteKind::kUpsert:
      break;  // DecideUpsert()
  }
  *result = KeyNotFound();
  return WriteEffect::kNone;
}

}  // namespace pando

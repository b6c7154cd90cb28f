#include "compute/index/write_decision.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {

absl::Status KeyNotFound() { return absl::NotFoundError("no such key"); }
absl::Status KeyExists() { return absl::AlreadyExistsError("the key is already there"); }
absl::Status ValueDiffers() {
  static const absl::Status* const status =
      new absl::Status(ConditionFailedError("the key holds another value"));
  return *status;
}

WriteEffect DecideUpsert(const WriteOperation& operation, std::optional<std::string_view> present,
                         uint32_t value_bytes_max, std::string* computed, absl::Status* result,
                         std::string* answer) {
  absl::StatusOr<std::string> value =
      (*operation.function)(operation.key, present, operation.value);
  if (value.ok() && value->size() > value_bytes_max) {
    value = ConditionFailedError(absl::StrCat("the new value is of ", value->size(),
                                              " bytes; the tree takes 0..", value_bytes_max));
  }
  *result = value.status();
  if (!value.ok()) {
    if (answer != nullptr) answer->assign(present.value_or(std::string_view()));
    return WriteEffect::kNone;
  }
  if (present == *value) {
    if (answer != nullptr) answer->assign(*value);
    return WriteEffect::kNone;
  }
  *computed = *std::move(value);
  return WriteEffect::kStore;
}

}  // namespace pando

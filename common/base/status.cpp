#include "common/base/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace pando {

absl::Status OutcomeUnknownError(std::string_view message) {
  return absl::UnknownError(absl::string_view(message.data(), message.size()));
}

bool IsOutcomeUnknown(const absl::Status& status) { return absl::IsUnknown(status); }

namespace {
constexpr absl::string_view kConditionFailed = "pando.condition_failed";
}  // namespace

absl::Status ConditionFailedError(std::string_view message) {
  absl::Status status =
      absl::FailedPreconditionError(absl::string_view(message.data(), message.size()));
  status.SetPayload(kConditionFailed, absl::Cord());
  return status;
}

bool IsConditionFailed(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && status.GetPayload(kConditionFailed).has_value();
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok() || context.empty()) return status;
  absl::Status annotated(
      status.code(),
      absl::StrCat(absl::string_view(context.data(), context.size()), ": ", status.message()));
  status.ForEachPayload([&annotated](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

}  // namespace pando

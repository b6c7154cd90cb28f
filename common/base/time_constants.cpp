#include "common/base/time_constants.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

constexpr std::array kAll = {
    &TimeConstants::freed_rest_ns,    &TimeConstants::rest_grain_ns,
    &TimeConstants::rest_ask_min_ns,  &TimeConstants::fence_again_ns,
    &TimeConstants::read_max_ns,      &TimeConstants::sweep_interval_ns,
    &TimeConstants::free_flush_ns,    &TimeConstants::allocator_look_ns,
    &TimeConstants::call_attempt_ns,  &TimeConstants::ping_max_ns,
    &TimeConstants::lock_recovery_ns, &TimeConstants::lock_recovery_poll_ns,
    &TimeConstants::sweep_wait_ns,    &TimeConstants::cells_again_ns,
    &TimeConstants::cell_rest_ns,     &TimeConstants::read_lease_ns,
};
static_assert(sizeof(TimeConstants) == kAll.size() * sizeof(int64_t), "one is not listed");

}  // namespace

absl::Status TimeConstants::Validate() const {
  const auto refuse = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("time constants: ", why));
  };
  for (const auto member : kAll) {
    if (this->*member < kMicrosecondNs) return refuse("each must be at least a microsecond");
  }
  if (read_max_ns > freed_rest_ns / 2) {
    return refuse("a READ may take half of what freed memory rests (rule R3)");
  }
  if (std::max({rest_grain_ns, rest_ask_min_ns, allocator_look_ns}) > freed_rest_ns / 2) {
    return refuse("who waits for memory that rests must look several times a rest");
  }
  if (cell_rest_ns > freed_rest_ns) return refuse("cells rest no longer than nodes");
  if (std::max(lock_recovery_poll_ns, call_attempt_ns) > lock_recovery_ns / 2) {
    return refuse("who recovers a lock must ask more than once");
  }
  return absl::OkStatus();
}

TimeConstants TimeConstants::DividedBy(int64_t divisor) const {
  TimeConstants divided = *this;
  for (const auto member : kAll) {
    divided.*member = std::max(divided.*member / divisor, kMicrosecondNs);
  }
  return divided;
}

}  // namespace pando

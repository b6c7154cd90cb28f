// What a member says of its load (rule O13), as the value of a peer's answer. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "compute/owner/cluster_entries.h"

namespace pando {

struct LoadReport {
  uint64_t member_operations_per_s = 0;  // of all its ranges, of all trees
  enum Takes : uint64_t { kNothing, kWhenAsked, kItsShare };
  uint64_t takes = kNothing;  // it leaves; it does not spread; it does
  // Of the range of the key that was asked for; where it is not this member's: 0 all of it.
  uint64_t is_owner = 0;
  uint64_t operations_per_s = 0;
  uint64_t dirty_records = 0, dirty_bytes = 0;  // that leaves do not have yet
};
static_assert(sizeof(LoadReport) == 48 && std::is_trivially_copyable_v<LoadReport>);

inline std::string Encode(const LoadReport& report) {
  return {reinterpret_cast<const char*>(&report), sizeof(report)};
}
// Nothing: it is none.
inline std::optional<LoadReport> ParseLoadReport(std::string_view bytes) {
  LoadReport report;
  if (bytes.size() != sizeof(report)) return std::nullopt;
  std::memcpy(&report, bytes.data(), sizeof(report));
  return report;
}

// Another member, with what it has said.
struct OtherMember {
  MemberId id;
  std::string address;
  double operations_per_s = 0;
  bool spreads = false;
};

// What comes with a range that its member is asked to take: operations per second.
inline std::string EncodeRate(uint64_t operations_per_s) {
  return {reinterpret_cast<const char*>(&operations_per_s), sizeof(operations_per_s)};
}
inline uint64_t ParseRate(std::string_view bytes) {
  constexpr uint64_t kMost = 1'000'000'000;  // more is no load
  uint64_t rate = 0;
  if (bytes.size() == sizeof(rate)) std::memcpy(&rate, bytes.data(), sizeof(rate));
  return std::min(rate, kMost);
}

}  // namespace pando

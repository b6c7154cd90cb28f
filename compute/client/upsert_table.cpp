#include "compute/client/upsert_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/client/thrown.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr auto kFirstRegistered = static_cast<uint32_t>(UpsertFunction::kFirstRegistered);

// A built-in function of two numbers.
template <typename Combine>
UpsertCallback OfNumbers(Combine combine) {
  return [combine](std::string_view, std::optional<std::string_view> present,
                   std::string_view operand) -> absl::StatusOr<std::string> {
    if (!present.has_value()) return std::string(operand);
    const std::optional<int64_t> number = ParseInt64Value(*present);
    if (!number.has_value()) return ConditionFailedError("the present value is not of 8 bytes");
    return Int64Value(combine(*number, *ParseInt64Value(operand)));
  };
}

absl::StatusOr<std::string> Append(std::string_view, std::optional<std::string_view> present,
                                   std::string_view operand) {
  std::string value(present.value_or(std::string_view()));
  value.append(operand);
  return value;
}

// The program's function, so that nothing but an answer comes out of it.
UpsertCallback Contained(uint32_t number, UpsertCallback function) {
  return [number, function = std::move(function)](
             std::string_view key, std::optional<std::string_view> present,
             std::string_view operand) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> value;
    const auto thrown = CallContained([&] { value = function(key, present, operand); });
    if (!thrown.has_value() && value.ok()) return value;
    const std::string why =
        thrown.has_value() ? absl::StrCat("threw: ", *thrown) : value.status().ToString();
    return ConditionFailedError(absl::StrCat("upsert function ", number, ": ", why));
  };
}

}  // namespace

std::string Int64Value(int64_t number) {
  std::string value(sizeof(number), '\0');
  std::memcpy(value.data(), &number, sizeof(number));
  return value;
}

std::optional<int64_t> ParseInt64Value(std::string_view value) {
  int64_t number;
  if (value.size() != sizeof(number)) return std::nullopt;
  std::memcpy(&number, value.data(), sizeof(number));
  return number;
}

UpsertTable::UpsertTable() {
  const auto put = [this](UpsertFunction function, UpsertCallback callback) {
    built_in_.emplace(static_cast<uint32_t>(function), std::move(callback));
  };
  put(UpsertFunction::kAdd, OfNumbers([](int64_t a, int64_t b) {
        return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      }));
  put(UpsertFunction::kMin, OfNumbers([](int64_t a, int64_t b) { return std::min(a, b); }));
  put(UpsertFunction::kMax, OfNumbers([](int64_t a, int64_t b) { return std::max(a, b); }));
  put(UpsertFunction::kAppend, Append);
}

absl::Status UpsertTable::Register(uint32_t number, UpsertCallback function) {
  if (number < kFirstRegistered || function == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("upsert function ", number,
                                                   ": give a function, and a number from ",
                                                   kFirstRegistered, " on"));
  }
  std::unique_lock lock(mutex_);
  const bool is_new =
      registered_.try_emplace(number, Contained(number, std::move(function))).second;
  if (is_new) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("upsert function ", number, " is registered"));
}

const UpsertCallback* UpsertTable::Find(UpsertFunction function) const {
  const auto look = [number = static_cast<uint32_t>(function)](const auto& functions) {
    const auto found = functions.find(number);
    return found == functions.end() ? nullptr : &found->second;
  };
  if (function < UpsertFunction::kFirstRegistered) return look(built_in_);
  std::shared_lock lock(mutex_);
  return look(registered_);
}

absl::Status CheckOperand(UpsertFunction function, std::string_view operand,
                          uint32_t value_bytes_max) {
  const bool of_numbers = function == UpsertFunction::kAdd || function == UpsertFunction::kMin ||
                          function == UpsertFunction::kMax;
  if (!of_numbers || (operand.size() == sizeof(int64_t) && value_bytes_max >= sizeof(int64_t))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("an operand of ", operand.size(), " bytes in a tree with values of 0..",
                   value_bytes_max, ": kAdd, kMin and kMax take 8 bytes (Int64Value())"));
}

}  // namespace pando

// Values that say who wrote them: no two writes of a run have the same one, so that a history can
// be checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/check.h"

namespace pando::bench {

// The values of one writer. Not thread-safe. Printable ASCII, exactly value_bytes long.
class Values {
 public:
  // Writers are numbered [0, writer_count). Values repeat after capacity() writes.
  Values(uint32_t value_bytes, uint64_t writer, uint64_t writer_count)
      : value_bytes_(value_bytes), writer_(writer), writer_count_(writer_count) {
    PANDO_CHECK_LT(writer, writer_count);
  }

  // From now on no value is one of the first `count` of all writers.
  void Skip(uint64_t count) { skipped_ = count; }

  void Next(std::string* value) { Make(written_++, value); }
  // The value of this writer's write number `n`.
  void Make(uint64_t n, std::string* value) const {
    value->assign(value_bytes_, kDigits[0]);
    uint64_t number = skipped_ + n * writer_count_ + writer_;
    for (size_t i = value_bytes_; i > 0 && number > 0; --i, number >>= 6) {
      (*value)[i - 1] = kDigits[number & 63];
    }
  }

  uint64_t written() const { return written_; }
  // Writes that one of `writer_count` writers can make with values that all differ, where so many
  // are skipped.
  static uint64_t Capacity(uint32_t value_bytes, uint64_t writer_count, uint64_t skipped = 0) {
    const uint64_t all = value_bytes > 10 ? UINT64_MAX : uint64_t{1} << (6 * value_bytes);
    return skipped >= all ? 0 : (all - skipped) / writer_count;
  }
  // Which value that is, among those of its length: with so many and one more skipped nobody makes
  // it. Nothing: nobody makes it anyway.
  static std::optional<uint64_t> NumberOf(std::string_view value) {
    uint64_t number = 0;
    for (const char digit : value) {
      const char* const found = digit == '\0' ? nullptr : std::strchr(kDigits, digit);
      if (found == nullptr || number >> 58 != 0) return std::nullopt;
      number = number << 6 | static_cast<uint64_t>(found - kDigits);
    }
    return number;
  }

 private:
  static constexpr char kDigits[] =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

  const uint32_t value_bytes_;
  const uint64_t writer_;
  const uint64_t writer_count_;
  uint64_t skipped_ = 0;
  uint64_t written_ = 0;
};

}  // namespace pando::bench

// Values that say who wrote them: no two writes of a run have the same one, so that a history can
// be checked.
#pragma once

#include <cstdint>
#include <string>

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

  void Next(std::string* value) { Make(written_++, value); }
  // The value of this writer's write number `n`.
  void Make(uint64_t n, std::string* value) const {
    value->assign(value_bytes_, kDigits[0]);
    uint64_t number = n * writer_count_ + writer_;
    for (size_t i = value_bytes_; i > 0 && number > 0; --i, number >>= 6) {
      (*value)[i - 1] = kDigits[number & 63];
    }
  }

  uint64_t written() const { return written_; }
  // Writes that one of `writer_count` writers can make with values that all differ.
  static uint64_t Capacity(uint32_t value_bytes, uint64_t writer_count) {
    if (value_bytes >= 10) return UINT64_MAX / writer_count;
    return (uint64_t{1} << (6 * value_bytes)) / writer_count;
  }

 private:
  static constexpr char kDigits[] =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

  const uint32_t value_bytes_;
  const uint64_t writer_;
  const uint64_t writer_count_;
  uint64_t written_ = 0;
};

}  // namespace pando::bench

// Appending and taking little-endian fields. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/base/check.h"

namespace pando::wire {

class ByteWriter {
 public:
  template <typename T>
  ByteWriter& Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  // Each field of std::tie(...), in order.
  template <typename... Fields>
  ByteWriter& PutFields(const std::tuple<Fields&...>& fields) {
    std::apply([this](const auto&... field) { (Put(field), ...); }, fields);
    return *this;
  }
  // Two bytes of length, then the bytes.
  ByteWriter& PutString(std::string_view text) {
    PANDO_CHECK_LE(text.size(), std::numeric_limits<uint16_t>::max());
    Put(static_cast<uint16_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Every Take is false, and everything after it too, once the bytes have run out.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  bool Take(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (rest_.size() < sizeof(T)) return Fail();
    std::memcpy(value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return true;
  }
  // Each field of std::tie(...), in order.
  template <typename... Fields>
  bool TakeFields(const std::tuple<Fields&...>& fields) {
    return std::apply([this](auto&... field) { return (Take(&field) && ...); }, fields);
  }
  bool TakeString(size_t bytes_max, std::string* text) {
    uint16_t bytes = 0;
    if (!Take(&bytes)) return false;
    if (bytes > bytes_max || bytes > rest_.size()) return Fail();
    text->assign(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return true;
  }
  size_t remaining() const { return rest_.size(); }
  // All fields were there and nothing is left.
  bool Done() const { return ok_ && rest_.empty(); }

 private:
  bool Fail() {
    ok_ = false;
    rest_ = {};
    return false;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace pando::wire

// Addresses and references of remote memory. Local pointers are never stored in remote memory and
// remote addresses are never dereferenced, so they are types of their own.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

namespace pando {

using ServerId = uint16_t;

// 16-bit memory-server id, 48-bit byte offset into that server's main region. Offset 0 is the
// superblock, so the all-zero value is "null".
class RemoteAddress {
 public:
  static constexpr int kOffsetBits = 48;
  static constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;

  constexpr RemoteAddress() = default;
  constexpr RemoteAddress(ServerId server, uint64_t offset)
      : raw_((uint64_t{server} << kOffsetBits) | (offset & kOffsetMask)) {}
  static constexpr RemoteAddress FromRaw(uint64_t raw) {
    RemoteAddress a;
    a.raw_ = raw;
    return a;
  }

  constexpr ServerId server() const { return static_cast<ServerId>(raw_ >> kOffsetBits); }
  constexpr uint64_t offset() const { return raw_ & kOffsetMask; }
  constexpr uint64_t raw() const { return raw_; }
  constexpr bool is_null() const { return raw_ == 0; }

  friend constexpr bool operator==(RemoteAddress, RemoteAddress) = default;
  friend constexpr auto operator<=>(RemoteAddress, RemoteAddress) = default;

 private:
  uint64_t raw_ = 0;
};
static_assert(sizeof(RemoteAddress) == 8);

// Rule F3: an address together with the life of the node meant. 12 bytes on the wire.
struct Reference {
  static constexpr int kWireBytes = 12;

  RemoteAddress address;
  uint32_t life = 0;

  constexpr bool is_null() const { return address.is_null(); }
  friend constexpr bool operator==(const Reference&, const Reference&) = default;

  void Store(void* to) const {
    const uint64_t raw = address.raw();
    std::memcpy(to, &raw, 8);
    std::memcpy(static_cast<char*>(to) + 8, &life, 4);
  }
  static Reference Load(const void* from) {
    uint64_t raw;
    Reference r;
    std::memcpy(&raw, from, 8);
    std::memcpy(&r.life, static_cast<const char*>(from) + 8, 4);
    r.address = RemoteAddress::FromRaw(raw);
    return r;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Reference& r) {
    return H::combine(std::move(h), r.address.raw(), r.life);
  }
};

}  // namespace pando

template <>
struct std::hash<pando::RemoteAddress> {
  size_t operator()(pando::RemoteAddress a) const noexcept {
    return std::hash<uint64_t>{}(a.raw());
  }
};

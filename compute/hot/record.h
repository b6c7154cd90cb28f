// A record of a partition, as it lies in its slot: a header of four bytes, key, value, what its
// state needs.
//
//   clean                key bytes | value bytes | bits | - | key | value
//   dirty, tombstone     the header | key | value | half of the LSN (4)
//   loading              the header | key | number of the load, its first waiter (16)
//
// A clean record has no LSN: only durable messages are flushed (rule B3), so nobody has anything to
// wait for. Of a dirty one the lower half is enough: the partition knows its highest. Records lie
// at multiples of four: longer fields go through memcpy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/wire/lsn.h"

namespace pando {

struct LoadWaiter;

// Where a record lies in its RecordPool. 0: nowhere.
using RecordHandle = uint32_t;

// kAbsent is a free slot's, and what is said of a key without a record. kLoading: a placeholder,
// somebody READs the leaf (rule T3).
enum class RecordState : uint8_t { kAbsent, kLoading, kClean, kDirty, kTombstone };

constexpr bool IsDirty(RecordState state) { return state >= RecordState::kDirty; }

class HotRecord {
 public:
  static constexpr size_t kKeyBytesMax = 240, kValueBytesMax = 255;
  enum Bit : uint8_t {
    kRef = 8,        // used since the clock last came by (rule T7)
    kFlushing = 16,  // a flush of it is in flight (rule B3)
    kRefused = 32,   // memory servers have refused it (rule B3)
    kShown = 64,     // the front may show it (rule T9); else it does not
    kOdd = 128,      // of a dirty one: with Partition::owing(), whether it is owed (rule B4)
  };
  struct DirtyPart {
    uint32_t lsn;  // the lower half
  };
  struct LoadPart {
    uint64_t load;
    LoadWaiter* first;
  };

  static constexpr size_t BytesOf(RecordState state, size_t key_bytes, size_t value_bytes) {
    return sizeof(HotRecord) + PartBytes(state) + key_bytes + value_bytes;
  }

  RecordState state() const { return static_cast<RecordState>(bits_ & kStateBits); }
  bool Has(Bit bit) const { return (bits_ & bit) != 0; }
  void Set(Bit bit) { bits_ |= bit; }
  void Clear(Bit bit) { bits_ &= static_cast<uint8_t>(~bit); }
  uint8_t bits() const { return bits_ & static_cast<uint8_t>(~kStateBits); }
  std::string_view key() const { return {Data(), key_bytes_}; }
  std::string_view value() const { return {Data() + key_bytes_, value_bytes_}; }
  size_t bytes() const { return BytesOf(state(), key_bytes_, value_bytes_); }

  // Of a dirty record or a tombstone.
  DirtyPart dirty() const { return Load<DirtyPart>(); }
  void set_dirty(const DirtyPart& part) { std::memcpy(Part(), &part, sizeof(part)); }
  // Of a placeholder.
  LoadPart load() const { return Load<LoadPart>(); }
  void set_load(const LoadPart& part) { std::memcpy(Part(), &part, sizeof(part)); }

  // All but the part. The value may be this record's own.
  void Write(RecordState state, uint8_t bits, std::string_view key, std::string_view value) {
    char* const to = Data();
    if (!value.empty()) std::memmove(to + key.size(), value.data(), value.size());
    std::memmove(to, key.data(), key.size());
    key_bytes_ = static_cast<uint8_t>(key.size());
    value_bytes_ = static_cast<uint8_t>(value.size());
    bits_ = static_cast<uint8_t>(static_cast<uint8_t>(state) | bits);
  }

  // A free slot: its number in the chunk's list of free ones.
  void MakeFree(uint16_t next) {
    std::memcpy(this, &next, sizeof(next));
    bits_ = static_cast<uint8_t>(RecordState::kAbsent);
  }
  uint16_t next_free() const {
    uint16_t next;
    std::memcpy(&next, this, sizeof(next));
    return next;
  }

 private:
  static constexpr uint8_t kStateBits = 7;

  static constexpr size_t PartBytes(RecordState state) {
    return IsDirty(state)                   ? sizeof(DirtyPart)
           : state == RecordState::kLoading ? sizeof(LoadPart)
                                            : 0;
  }
  char* Data() { return reinterpret_cast<char*>(this + 1); }
  const char* Data() const { return reinterpret_cast<const char*>(this + 1); }
  char* Part() { return Data() + key_bytes_ + value_bytes_; }
  const char* Part() const { return Data() + key_bytes_ + value_bytes_; }
  template <typename T>
  T Load() const {
    T part;
    std::memcpy(&part, Part(), sizeof(part));
    return part;
  }

  uint8_t key_bytes_, value_bytes_, bits_, unused_;
};
static_assert(sizeof(HotRecord) == 4 && alignof(HotRecord) == 1);
static_assert(sizeof(HotRecord::DirtyPart) == 4 && sizeof(HotRecord::LoadPart) == 16);

}  // namespace pando

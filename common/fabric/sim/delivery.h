// How one verb's bytes move: in which units, in which order, how many at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/fabric/chain.h"
#include "common/fabric/sim/sim_options.h"

namespace pando::sim {

// Copies bytes [begin, end) of a READ or WRITE, counted from the verb's offset, between `memory`
// (the server's space) and the verb's pieces.
void MoveBytes(const Verb& verb, std::byte* memory, uint32_t begin, uint32_t end);

// The same for one unit of a delivery: nearly always a word or a line of the first piece.
inline void MoveUnit(const Verb& verb, std::byte* memory, uint32_t begin, uint32_t end) {
  const uint32_t bytes = end - begin;
  if (end > verb.pieces[0].bytes || (bytes != 8 && bytes != 64)) {
    return MoveBytes(verb, memory, begin, end);
  }
  std::byte* to = memory + verb.offset + begin;
  std::byte* from = verb.pieces[0].data + begin;
  if (verb.kind == VerbKind::kRead) std::swap(to, from);
  bytes == 8 ? std::memcpy(to, from, 8) : std::memcpy(to, from, 64);
}

// Progress of one READ or WRITE. Reusable: its storage is kept.
//
// A line or word is an aligned one of remote memory, so the first and last may be partial.
class Delivery {
 public:
  // `offset`, `bytes` of the verb; bytes > 0.
  void Start(DeliveryMode mode, VerbKind kind, uint64_t offset, uint32_t bytes, Random* random);

  // How many times Next() may be called in all.
  uint32_t units() const { return units_; }
  bool finished() const { return next_unit_ == order_.size(); }

  // The next piece to move: [*begin, *end) relative to the verb's offset. Not when finished().
  void Next(uint32_t* begin, uint32_t* end) {
    if (mode_ == DeliveryMode::kWhole) {
      *begin = 0;
      *end = bytes_;
      ++next_unit_;
      return;
    }
    // In units of aligned remote memory, then cut to the verb's range.
    uint32_t from = order_[next_unit_] * unit_bytes_;
    uint32_t to = from + unit_bytes_;
    if (mode_ == DeliveryMode::kShmOrder) {
      NextWord(&from, &to);
    } else {
      ++next_unit_;
    }
    *begin = std::max(from, misalignment_) - misalignment_;
    *end = std::min(to, misalignment_ + bytes_) - misalignment_;
  }

 private:
  void Shuffle(Random* random);
  // kShmOrder: from the current line to its next word.
  void NextWord(uint32_t* from, uint32_t* to);

  DeliveryMode mode_ = DeliveryMode::kWhole;
  uint32_t units_ = 0;
  bool upwards_ = true;        // kShmOrder: inside a line
  uint32_t unit_bytes_ = 0;    // size of an ordered unit: a line or a word
  uint32_t misalignment_ = 0;  // of the verb's offset in its first unit
  uint32_t bytes_ = 0;
  size_t next_unit_ = 0;      // in order_
  uint32_t words_moved_ = 0;  // kShmOrder: of the current line
  std::vector<uint32_t> order_;
};

// Free list of deliveries, so that verbs do not allocate.
class DeliveryPool {
 public:
  uint32_t Take();
  void Return(uint32_t index) { free_.push_back(index); }
  Delivery& operator[](uint32_t index) { return *all_[index]; }

 private:
  std::vector<std::unique_ptr<Delivery>> all_;
  std::vector<uint32_t> free_;
};

}  // namespace pando::sim

#include "common/fabric/sim/delivery.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace pando::sim {
namespace {

constexpr uint32_t kLine = 64;
constexpr uint32_t kWord = 8;

}  // namespace

void MoveBytes(const Verb& verb, std::byte* memory, uint32_t begin, uint32_t end) {
  uint32_t piece_begin = 0;
  for (int i = 0; i < verb.piece_count && piece_begin < end; ++i) {
    const LocalBuffer& piece = verb.pieces[i];
    const uint32_t piece_end = piece_begin + piece.bytes;
    const uint32_t from = std::max(begin, piece_begin);
    const uint32_t to = std::min(end, piece_end);
    if (from < to) {
      std::byte* local = piece.data + (from - piece_begin);
      std::byte* remote = memory + verb.offset + from;
      if (verb.kind == VerbKind::kRead) {
        std::memcpy(local, remote, to - from);
      } else {
        std::memcpy(remote, local, to - from);
      }
    }
    piece_begin = piece_end;
  }
}

void Delivery::Start(DeliveryMode mode, VerbKind kind, uint64_t offset, uint32_t bytes,
                     Random* random) {
  mode_ = mode;
  upwards_ = kind == VerbKind::kWrite;
  bytes_ = bytes;
  next_unit_ = 0;
  words_moved_ = 0;
  unit_bytes_ = mode == DeliveryMode::kWords ? kWord : kLine;
  misalignment_ = static_cast<uint32_t>(offset % unit_bytes_);
  const uint32_t units =
      mode == DeliveryMode::kWhole ? 1 : (misalignment_ + bytes + unit_bytes_ - 1) / unit_bytes_;
  // In kShmOrder a line moves word by word.
  units_ = mode == DeliveryMode::kShmOrder
               ? static_cast<uint32_t>((offset % kWord + bytes + kWord - 1) / kWord)
               : units;
  order_.resize(units);
  std::iota(order_.begin(), order_.end(), uint32_t{0});
  if (units > 1) Shuffle(random);
}

void Delivery::Shuffle(Random* random) {
  // Straight and reversed orders are as legal as any and tear differently: first or last line
  // alone.
  const uint64_t style = random->Uniform(8);
  if (style == 0) return;
  if (style == 1) {
    std::reverse(order_.begin(), order_.end());
    return;
  }
  for (size_t i = order_.size() - 1; i > 0; --i)
    std::swap(order_[i], order_[random->Uniform(i + 1)]);
}

void Delivery::NextWord(uint32_t* from, uint32_t* to) {
  const uint32_t first_word = std::max(*from, misalignment_) / kWord;
  const uint32_t end_word = (std::min(*to, misalignment_ + bytes_) + kWord - 1) / kWord;
  const uint32_t word = upwards_ ? first_word + words_moved_ : end_word - 1 - words_moved_;
  *from = word * kWord;
  *to = *from + kWord;
  if (++words_moved_ == end_word - first_word) {
    words_moved_ = 0;
    ++next_unit_;
  }
}

uint32_t DeliveryPool::Take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Delivery>());
    return static_cast<uint32_t>(all_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

}  // namespace pando::sim

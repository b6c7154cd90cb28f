// The newest message of each key among those that a log has, in the order of trees and keys: what a
// recovery brings to the leaves (rule D4).
//
// A log of 64 MiB has a million messages, mostly of as many keys. They are appended to two arrays
// and sorted once: in a tree of keys each would cost several cache misses as it comes.
//
// Not thread-safe. Invariant: after Seal() no two messages are of one key of one tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/wire/log_format.h"
#include "common/wire/lsn.h"

namespace pando {

class NewestMessages {
 public:
  struct Message {
    std::string_view key, value;  // valid until Clear()
    bool erased = false;
    Lsn lsn = kNoLsn;
  };

  // LSNs ascend. About 48 bytes of memory, and those of key and value.
  void Add(Lsn lsn, const LogMessage& message);
  // Once, after the last Add() and before what follows.
  void Seal();
  void Clear();

  size_t size() const { return places_.size(); }
  // The first one of the tree whose key is at or above `key`, or of a tree behind it.
  size_t LowerBound(uint32_t tree_id, std::string_view key) const;
  uint32_t TreeOf(size_t i) const { return places_[i].tree_id; }
  Message At(size_t i) const;

 private:
  struct Place {
    uint32_t tree_id;
    uint8_t key_bytes, value_bytes;
    bool erased;
    uint64_t head;  // of the key, as a number: nearly all comparisons end here
    size_t at;      // in text_
    Lsn lsn;
  };

  std::string_view KeyOf(const Place& place) const {
    return std::string_view(text_).substr(place.at, place.key_bytes);
  }
  // Below 0: a is before b.
  int Compare(const Place& a, const Place& b) const;

  std::string text_;  // keys, each followed by its value
  std::vector<Place> places_;
};

}  // namespace pando

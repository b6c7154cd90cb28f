#include "compute/owner/newest_messages.h"

#include <algorithm>

#include "compute/hot/index_node.h"

namespace pando {
void NewestMessages::Add(Lsn lsn, const LogMessage& message) {
  places_.push_back({.tree_id = message.tree_id,
                     .key_bytes = static_cast<uint8_t>(message.key.size()),
                     .value_bytes = static_cast<uint8_t>(message.value.size()),
                     .erased = message.kind == LogMessage::Kind::kErase,
                     .head = HeadOf(message.key, 0),
                     .at = text_.size(),
                     .lsn = lsn});
  text_.append(message.key);
  text_.append(message.value);
}

int NewestMessages::Compare(const Place& a, const Place& b) const {
  if (a.tree_id != b.tree_id) return a.tree_id < b.tree_id ? -1 : 1;
  if (a.head != b.head) return a.head < b.head ? -1 : 1;
  // The head is all of a short key, and zeros: no look at the text.
  if (a.key_bytes <= sizeof(a.head) && b.key_bytes <= sizeof(b.head))
    return static_cast<int>(a.key_bytes) - static_cast<int>(b.key_bytes);
  return KeyOf(a).compare(KeyOf(b));
}

void NewestMessages::Seal() {
  std::sort(places_.begin(), places_.end(), [this](const Place& a, const Place& b) {
    const int order = Compare(a, b);
    return order != 0 ? order < 0 : a.lsn > b.lsn;
  });
  // Of each key the first one is the newest.
  const auto end =
      std::unique(places_.begin(), places_.end(),
                  [this](const Place& a, const Place& b) { return Compare(a, b) == 0; });
  places_.erase(end, places_.end());
}

void NewestMessages::Clear() {
  places_.clear();
  text_.clear();
}

size_t NewestMessages::LowerBound(uint32_t tree_id, std::string_view key) const {
  const auto found = std::lower_bound(places_.begin(), places_.end(), key,
                                      [&](const Place& place, std::string_view wanted) {
                                        if (place.tree_id != tree_id)
                                          return place.tree_id < tree_id;
                                        return KeyOf(place) < wanted;
                                      });
  return static_cast<size_t>(found - places_.begin());
}

NewestMessages::Message NewestMessages::At(size_t i) const {
  const Place& place = places_[i];
  return {.key = KeyOf(place),
          .value = std::string_view(text_).substr(place.at + place.key_bytes, place.value_bytes),
          .erased = place.erased,
          .lsn = place.lsn};
}

}  // namespace pando

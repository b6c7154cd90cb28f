#include "compute/owner/even_clocks.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "compute/owner/member.h"

namespace pando {
namespace {

// Of one call, and of one hold of a mutex.
constexpr size_t kLooksMax = 64 << 10, kLooksOfAHold = 256;
// A record that was used is gone after two rounds: more are never needed.
constexpr double kRoundsMax = 2;

}  // namespace

void EvenClocks(Member* member, std::span<const OwnPlace> places, size_t bytes) {
  struct Hand {
    OwnRange* range;
    double rounds, records;
  };
  std::vector<Hand> hands;
  double fastest = 0;
  for (const OwnPlace& place : places) {
    std::lock_guard lock(place.range->partition.mutex());
    const uint64_t looks = place.range->partition.looks();
    const auto records = static_cast<double>(place.range->partition.records());
    const auto since = static_cast<double>(looks - place.range->looks_before);
    place.range->looks_before = looks;
    hands.push_back({place.range, std::min(kRoundsMax, since / (records + 1)), records});
    fastest = std::max(fastest, hands.back().rounds);
  }
  size_t looks_left = kLooksMax;
  for (const Hand& hand : hands) {
    auto looks = static_cast<size_t>((fastest - hand.rounds) * hand.records);
    Partition& partition = hand.range->partition;
    while (looks > 0 && looks_left > 0 && bytes > 0) {
      const size_t now = std::min({looks, looks_left, kLooksOfAHold});
      std::lock_guard lock(partition.mutex());
      const Member::Sizes before = Member::SizesOf(partition);
      bytes -= std::min(bytes, partition.Evict(bytes, now));
      member->NoteChange(before, partition);
      hand.range->looks_before = partition.looks();
      looks -= now;
      looks_left -= now;
    }
  }
}

}  // namespace pando

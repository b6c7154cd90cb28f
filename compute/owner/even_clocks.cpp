#include "compute/owner/even_clocks.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "compute/owner/member.h"

namespace pando {
namespace {

// Of one call, of all partitions by what they are behind; and of one hold of a mutex.
constexpr double kLooksMax = 64 << 10;
constexpr size_t kLooksOfAHold = 256;
// A record that was used is gone after two rounds: more are never needed.
constexpr double kRoundsMax = 2;

}  // namespace

void EvenClocks(Member* member, std::span<const OwnPlace> places, size_t bytes) {
  struct Hand {
    OwnRange* range;
    double rounds, records;
    size_t looks = 0;  // that it is behind
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
  double behind = 0;
  for (const Hand& hand : hands) behind += (fastest - hand.rounds) * hand.records;
  const double share = std::min(1.0, kLooksMax / std::max(1.0, behind));
  for (Hand& hand : hands) {
    hand.looks = static_cast<size_t>((fastest - hand.rounds) * hand.records * share);
  }
  // By turns: what is freed is not all the first one's.
  for (bool any = true; any && bytes > 0;) {
    any = false;
    for (Hand& hand : hands) {
      if (hand.looks == 0 || bytes == 0) continue;
      any = true;
      const size_t now = std::min(hand.looks, kLooksOfAHold);
      Partition& partition = hand.range->partition;
      std::lock_guard lock(partition.mutex());
      const Member::Sizes before = Member::SizesOf(partition);
      bytes -= std::min(bytes, partition.Evict(bytes, now));
      member->NoteChange(before, partition);
      hand.range->looks_before = partition.looks();
      hand.looks -= now;
    }
  }
}

}  // namespace pando

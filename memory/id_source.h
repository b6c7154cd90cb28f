// Numbers that are never given out twice (rule C0): incarnations and tree ids come from one
// ascending sequence. Not thread-safe.
//
// Invariants:
//   1. What is given out is below a mark that was kept before, outside of this process: the next
//      life begins there, whatever its clock says and however this one ends.
//   2. A joining client reports which ids the other memory servers have met: the sequence goes on
//      above them, also where the mark was lost. A lie costs the sequence an eighth at most.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::memory {

// Keeps the least number that the next life may give out. Ok: it is kept for good.
using KeepIdMark = std::function<absl::Status(uint32_t mark)>;

class IdSource {
 public:
  // Numbers that one mark covers: how many a restart skips at most, and how often a mark is kept.
  static constexpr uint32_t kBlock = 4096;
  // Ids so far above the first of this life are made up: where the mark is kept they are below it,
  // and where it was lost (FirstIdWithoutMark()) it is years until so many are given out.
  static constexpr uint32_t kMadeUpFrom = 1 << 29;

  // `first` > 0: above what earlier lives gave out. Without `keep` nothing is kept.
  explicit IdSource(uint32_t first, KeepIdMark keep = nullptr);

  // The number to use; it counts as given out only after Take(), so that failed attempts leave no
  // holes. Unavailable: no mark can be kept. ResourceExhausted: all are used up.
  absl::StatusOr<uint32_t> Peek();
  void Take() { ++next_; }
  // Whether this life or an earlier one may have given the number out, as far as can be known.
  bool IsBelievable(uint32_t id) const { return id < first_ || id - first_ < kMadeUpFrom; }
  // What is given out from now on is above `floor`; nothing happens if that is not believable, and
  // nobody has proved it.
  void RaiseAbove(uint32_t floor, bool proved = false);
  // Whether this life has given the number out, or may have.
  bool MayHaveIssued(uint32_t id) const { return id >= first_ && id < next_; }
  // Nobody can have it yet.
  bool IsStillToCome(uint32_t id) const { return id >= next_; }

 private:
  absl::Status KeepMark();

  const uint32_t first_;
  const KeepIdMark keep_;
  uint32_t next_;
  uint32_t mark_;       // numbers below it may be given out
  uint32_t try_again_;  // a mark that could not be kept is tried again from this number on
};

// Where no mark is kept, as the registry is new or was lost. `random` is any number: should
// somebody remember ids of an earlier life whom nobody will hear, he meets none of this life's.
uint32_t FirstIdWithoutMark(int64_t unix_seconds, uint64_t random);

}  // namespace pando::memory

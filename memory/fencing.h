// What follows the death of a compute server, in the order of rule C2: it is published as dead,
// then every lock word of that life is freed, then its entry may be overwritten by the next one's.
//
// Not thread-safe: one control thread. Invariants:
//   1. No lock word of a life is freed before others can READ that it is dead.
//   2. The entry of a life stays until none of its lock words is left: one death at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "memory/client_id.h"
#include "memory/region.h"

namespace pando::memory {

class Fencing {
 public:
  // `words_per_step`: lock words looked at in one Step(); 0: publication and all words in one.
  Fencing(Region* region, uint32_t words_per_step);

  // Nothing of `dead` is in flight any more: its WRITEs are whole or absent.
  void Add(const ClientId& dead) { pending_.push_back(dead); }
  // Publishes a death, or frees the next words. The life that is done with this step. Unavailable:
  // words could not be looked at; the next step looks at them again.
  absl::StatusOr<std::optional<ClientId>> Step();

  bool idle() const { return pending_.empty(); }
  bool IsPending(const ClientId& client) const;
  uint64_t words_cleared() const { return words_cleared_; }

 private:
  Region* const region_;
  const uint32_t words_per_step_;
  std::deque<ClientId> pending_;  // the first one is under way
  bool published_ = false;
  uint32_t next_word_ = 0;
  uint64_t words_cleared_ = 0;
};

}  // namespace pando::memory

// The seeded workload of a simulated run: which keys there are, which operation comes next, unique
// values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/history/history.h"
#include "bench/sim/sim_run.h"
#include "common/base/random.h"

namespace pando {

// The keys of a run in the order in which growth brings them. Deterministic; lengths and bytes are
// as nasty as the tree allows: 0x00 and 0xff, prefixes of each other, common prefixes.
std::vector<std::string> MakeKeys(const SimRunOptions& options, uint64_t count);

// Hands out operations to the clients of a run. Not thread-safe.
class SimWorkload {
 public:
  explicit SimWorkload(const SimRunOptions& options);

  // The next operation, on the tree of this slot. False: enough.
  bool Next(history::Operation* operation, size_t slot = 0);
  // The next writes, 2 or more, to a key each: those that come, or, where they bring no new keys,
  // to neighbours in the order of keys. Fewer, or none, where it is over.
  std::vector<history::Operation> NextRun(Random* random, size_t count_max, size_t slot);
  // Writes to up to so many keys that follow each other in the order of keys, those that growth has
  // yet to bring as well: puts in most calls, erases in others.
  std::vector<history::Operation> NextStretch(Random* random, size_t count_max);
  bool is_over() const { return left_ == 0 && loaded_ >= std::min(options_.load, options_.keys); }
  // What the operation, which has returned, said of its key: what others expect there.
  void Learn(const history::Operation& operation, size_t slot);
  // Ascending keys for a bulk load, at most so many.
  std::vector<std::string> KeysToLoad(size_t count_max);
  std::string NewValue();
  // All keys from one to one of its neighbours that follow it, at most so many, ascending; those
  // that growth has yet to bring as well.
  std::vector<std::string> Neighbours(Random* random, size_t count_max) const;
  const std::string& AnyKey(Random* random) const { return keys_[random->Uniform(known_keys_)]; }

 private:
  const std::string& ChooseKey();
  // Makes a conditional operation of a write.
  void Condition(history::Operation* operation, size_t slot);
  // Of a phase of the workload; false: it goes as ever.
  bool NextOfPhase(history::Operation* operation, size_t slot);

  const SimRunOptions& options_;
  Random random_, condition_random_;
  std::vector<std::string> keys_;
  uint64_t known_keys_;
  uint64_t loaded_ = 0;
  uint64_t left_;
  std::vector<uint64_t> emptied_;  // by slot: keys deleted one after the other
  std::vector<std::map<std::string, std::string>> learned_;  // by slot
  uint32_t values_ = 0;
  double total_share_;
};

}  // namespace pando

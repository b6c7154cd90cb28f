// A map store without a tree: a table with one lock, on the simulator's clock, whose operations are
// refused, are done without saying so, or land long after their writer has been told that nobody
// knows. It is as unkind as rule L5 allows: what may still land has the lock, and who only reads
// sees what was there before, and not all of it at one moment.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/owner/map_store.h"

namespace pando {

// What its stores share. Not thread-safe.
struct ModelTable {
  ModelTable(sim::SimWorld* on, uint64_t seed) : world(*on), random(seed) {}
  sim::SimWorld& world;
  Random random;
  std::map<std::string, std::string> entries;
  bool locked = false;
  int unkind = 0;                // so many operations in a hundred do not end well
  uint64_t late = 0, never = 0;  // of unknown outcome: that landed later; that did not
};

class ModelStore final : public MapStore {
 public:
  explicit ModelStore(ModelTable* table) : table_(*table) {}

  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* actual) override;
  absl::Status Scan(OperationContext& context, const KeyRange& range, bool reverse, size_t limit,
                    std::vector<KeyValue>* rows) override;

 private:
  bool Chance() { return static_cast<int>(table_.random.Uniform(100)) < table_.unkind; }
  void Pass(OperationContext& context);
  void Later(int64_t within_ns, std::string key, std::string value, bool erases);

  ModelTable& table_;
};

}  // namespace pando

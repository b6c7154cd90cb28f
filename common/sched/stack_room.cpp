#include "common/sched/stack_room.h"

#include <fstream>

namespace pando::sched {
namespace {

constexpr int64_t kMappingsOfStack = 2;  // it, and the guard below
constexpr int64_t kLinuxMappingsMax = 65'530;

int64_t MappingsMax() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  int64_t mappings = 0;
  return file >> mappings && mappings > 0 ? mappings : kLinuxMappingsMax;
}

}  // namespace

// Half of the mappings, and a quarter more; the rest is for everything else.
StackRoom::StackRoom(int64_t mappings_max)
    : useful_max_(mappings_max / 2 / kMappingsOfStack),
      needed_max_(useful_max_ + mappings_max / 4 / kMappingsOfStack) {}

StackRoom& StackRoom::OfProcess() {
  static auto* const room = new StackRoom(MappingsMax());
  return *room;
}

bool StackRoom::TryTake(bool is_needed) {
  const int64_t before = taken_.fetch_add(1, std::memory_order_relaxed);
  if (before < (is_needed ? needed_max_ : useful_max_)) return true;
  Give(1);
  return false;
}

}  // namespace pando::sched

// What is fetched ahead without the mutex, while records come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "compute/hot/partition.h"
#include "compute/hot/test_keys.h"

namespace pando {
namespace {

TEST(PrefetchTest, AnyThreadAtAnyTime) {
  constexpr uint64_t kKeys = 20'000;
  Partition partition;
  std::atomic<bool> done{false};
  std::thread other([&] {
    Random random(1);
    while (!done.load(std::memory_order_relaxed)) {
      partition.PrefetchForWrite(HashOf(TestKey(KeyKind::kRandom8, kKeys, random)));
    }
  });
  Random random(2);
  Lsn lsn = 0;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < kKeys; ++i) {
      const std::string key = TestKey(KeyKind::kRandom8, kKeys, random);
      const std::lock_guard lock(partition.mutex());
      partition.Put(key, "value", ++lsn);
      partition.Show(partition.Find(key));
    }
    const std::lock_guard lock(partition.mutex());
    partition.Check();
    partition.Drop();
    partition.Check();
  }
  done.store(true, std::memory_order_relaxed);
  other.join();
}

}  // namespace
}  // namespace pando

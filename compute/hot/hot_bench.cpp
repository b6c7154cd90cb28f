// What lookups and puts cost in a partition of a million records, 8/8 and 24/8, in random order:
// nearly everything that a partition holds is in no cache then. The mutex is locked around each, as
// callers do.
//
// `heap_per_record`: bytes, of records and their order.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "compute/hot/partition.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 1'000'000;
constexpr uint64_t kKeysInTurn = 1 << 20;  // a power of two

// 8 bytes: anywhere. Else "user" and digits.
std::string KeyOf(uint64_t n, size_t bytes) {
  const uint64_t hash = SplitMix64(&n);
  std::string key(bytes, '0');
  if (bytes == 8) {
    for (size_t i = 0; i < 8; ++i) key[i] = static_cast<char>(hash >> (56 - 8 * i));
    return key;
  }
  const std::string digits = std::to_string(hash);
  key.replace(0, 4, "user");
  return key.replace(bytes - digits.size(), digits.size(), digits);
}

// Keys of `records` records in an order of no kind, one behind the other.
class Keys {
 public:
  Keys(size_t bytes, uint64_t records, uint64_t first = 0) : bytes_(bytes) {
    Random random(1);
    for (uint64_t i = 0; i < kKeysInTurn; ++i)
      all_ += KeyOf(first + random.Uniform(records), bytes);
  }
  std::string_view Next() {
    next_ = (next_ + 1) & (kKeysInTurn - 1);
    return std::string_view(all_).substr(next_ * bytes_, bytes_);
  }

 private:
  const size_t bytes_;
  std::string all_;
  uint64_t next_ = 0;
};

enum class Fill { kClean, kDirty };

std::unique_ptr<Partition> Filled(size_t key_bytes, Fill fill, Lsn* lsn) {
  auto partition = std::make_unique<Partition>();
  for (uint64_t i = 0; i < kRecords; ++i) {
    const std::string key = KeyOf(i, key_bytes);
    if (fill == Fill::kDirty) {
      partition->Put(key, "12345678", ++*lsn);
    } else {
      partition->EndLoad(key, partition->BeginLoad(key), "12345678", true);
    }
  }
  return partition;
}

void Report(benchmark::State& state, const Partition& partition) {
  state.counters["heap_per_record"] =
      static_cast<double>(partition.heap_bytes()) / static_cast<double>(partition.records());
}

void Hit(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kClean, &lsn);
  Keys keys(key_bytes, kRecords);
  for (auto _ : state) {
    const std::lock_guard lock(partition->mutex());
    const Partition::View view = partition->Find(keys.Next());
    partition->Touch(view.record);
    benchmark::DoNotOptimize(view.value.data()[0]);
  }
  Report(state, *partition);
}
BENCHMARK(Hit)->Arg(8)->Arg(24);

void Miss(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kClean, &lsn);
  Keys keys(key_bytes, kRecords, kRecords);
  for (auto _ : state) {
    const std::lock_guard lock(partition->mutex());
    benchmark::DoNotOptimize(partition->Find(keys.Next()).record);
  }
}
BENCHMARK(Miss)->Arg(8)->Arg(24);

// Keys of records, zipfian, theta 0.99, by the sums of 1/rank^theta.
std::vector<std::string> ZipfianKeys(uint64_t seed) {
  std::vector<double> sums(kRecords);
  double sum = 0;
  for (uint64_t rank = 0; rank < kRecords; ++rank) {
    sums[rank] = sum += std::pow(static_cast<double>(rank + 1), -0.99);
  }
  Random random(seed);
  std::vector<std::string> keys(kKeysInTurn);
  for (std::string& key : keys) {
    const auto at = std::lower_bound(sums.begin(), sums.end(), random.NextDouble() * sum);
    key = KeyOf(static_cast<uint64_t>(at - sums.begin()), 8);
  }
  return keys;
}

// Hits, most of them on popular records, which are in a cache: with one thread in its own, with
// more in another core's, as are the mutex and what it guards.
void ZipfianHit(benchmark::State& state) {
  static Lsn lsn = 0;
  static const std::unique_ptr<Partition> partition = Filled(8, Fill::kClean, &lsn);
  const std::vector<std::string> keys = ZipfianKeys(static_cast<uint64_t>(state.thread_index()));
  size_t next = 0;
  for (auto _ : state) {
    const std::string& key = keys[next++ & (kKeysInTurn - 1)];
    const std::lock_guard lock(partition->mutex());
    const Partition::View view = partition->Find(key);
    partition->Touch(view.record);
    benchmark::DoNotOptimize(view.value.data()[0]);
  }
}
BENCHMARK(ZipfianHit)->Threads(1)->Threads(2)->UseRealTime();

// A get as owners execute it: in the front, or else under the mutex, where popular records are
// shown. `shown`: the share that was found in the front.
// `front`: else all take the mutex.
class FrontReader {
 public:
  FrontReader(Partition* partition, bool front) : partition_(*partition), front_(front) {}
  void Get(std::string_view key) {
    const uint64_t hash = HashOf(key);
    ++gets_;
    if (front_ && partition_.FindShown(key, hash, &value_, &lsn_)) {
      ++shown_;
    } else {
      const std::lock_guard lock(partition_.mutex());
      const Partition::View view = partition_.Find(key, hash);
      if (front_ && view.record->Has(HotRecord::kRef)) partition_.Show(view);
      partition_.Touch(view.record);
      value_.assign(view.value);
    }
    benchmark::DoNotOptimize(value_.data()[0]);
  }
  void Report(benchmark::State& state) const {
    state.counters["shown"] = benchmark::Counter(
        static_cast<double>(shown_) / static_cast<double>(gets_), benchmark::Counter::kAvgThreads);
  }

 private:
  Partition& partition_;
  const bool front_;
  std::string value_;
  Lsn lsn_ = 0;
  uint64_t gets_ = 0, shown_ = 0;
};

void Get(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kClean, &lsn);
  Keys keys(key_bytes, kRecords);
  FrontReader reader(partition.get(), state.range(1) != 0);
  for (auto _ : state) reader.Get(keys.Next());
  reader.Report(state);
  Report(state, *partition);
}
BENCHMARK(Get)->ArgNames({"key_bytes", "front"})->ArgsProduct({{8, 24}, {0, 1}});

void ZipfianGet(benchmark::State& state) {
  static Lsn lsn = 0;
  static const std::unique_ptr<Partition> partition = Filled(8, Fill::kClean, &lsn);
  const std::vector<std::string> keys = ZipfianKeys(static_cast<uint64_t>(state.thread_index()));
  size_t next = 0;
  FrontReader reader(partition.get(), state.range(0) != 0);
  for (auto _ : state) reader.Get(keys[next++ & (kKeysInTurn - 1)]);
  reader.Report(state);
}
BENCHMARK(ZipfianGet)->ArgName("front")->Arg(0)->Arg(1)->Threads(1)->Threads(2)->UseRealTime();

// Over records that are dirty already.
void PutDirty(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kDirty, &lsn);
  Keys keys(key_bytes, kRecords);
  for (auto _ : state) {
    const std::lock_guard lock(partition->mutex());
    partition->Put(keys.Next(), "abcdefgh", ++lsn);
  }
  Report(state, *partition);
}
BENCHMARK(PutDirty)->Arg(8)->Arg(24);

// Over clean records; what has become dirty is flushed, 64 records each time.
void PutCleanAndFlush(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kClean, &lsn);
  Keys keys(key_bytes, kRecords);
  std::vector<FlushItem> items;
  for (auto _ : state) {
    const std::lock_guard lock(partition->mutex());
    partition->Put(keys.Next(), "abcdefgh", ++lsn);
    if (partition->dirty().records < 64) continue;
    partition->CollectDirty("", "", lsn, false, 64, &items);
    for (const FlushItem& item : items) partition->EndFlush(item, FlushResult::kDone);
    items.clear();
  }
}
BENCHMARK(PutCleanAndFlush)->Arg(8)->Arg(24);

// A miss that is kept, where as much has to go for it.
void LoadAndEvict(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kClean, &lsn);
  Keys keys(key_bytes, kRecords * 4);
  const size_t budget = partition->bytes();
  for (auto _ : state) {
    const std::lock_guard lock(partition->mutex());
    const std::string_view key = keys.Next();
    const Partition::View view = partition->Find(key);
    if (view.record != nullptr) {
      partition->Touch(view.record);
      continue;
    }
    partition->EndLoad(key, partition->BeginLoad(key), "12345678", true);
    if (partition->bytes() > budget) partition->Evict(partition->bytes() - budget);
  }
  Report(state, *partition);
}
BENCHMARK(LoadAndEvict)->Arg(8)->Arg(24);

// A hundred records in order.
void Scan100(benchmark::State& state) {
  const auto key_bytes = static_cast<size_t>(state.range(0));
  Lsn lsn = 0;
  const auto partition = Filled(key_bytes, Fill::kClean, &lsn);
  Keys keys(key_bytes, kRecords);
  for (auto _ : state) {
    const std::lock_guard lock(partition->mutex());
    int left = 100;
    partition->Scan(keys.Next(), "", false, [&left](const Partition::Seen& seen) {
      benchmark::DoNotOptimize(seen.value.data()[0]);
      return --left > 0;
    });
  }
}
BENCHMARK(Scan100)->Arg(8)->Arg(24);

// How long a partition is locked at a time while half of it moves (rule O10), of clean records or
// of dirty ones, which move at once.
void Split(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const auto key_bytes = static_cast<size_t>(state.range(0));
  const std::string middle = key_bytes == 8 ? "\x80" : "user09";
  for (auto _ : state) {
    state.PauseTiming();
    Lsn lsn = 0;
    auto partition = Filled(key_bytes, state.range(1) == 0 ? Fill::kClean : Fill::kDirty, &lsn);
    auto upper = std::make_unique<Partition>();
    std::vector<double> holds_ms;
    Clock::time_point begin = Clock::now();
    const auto note = [&] {
      const Clock::time_point end = Clock::now();
      holds_ms.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
      begin = end;
    };
    state.ResumeTiming();
    partition->MoveDirtyTo(middle, "", upper.get());
    note();
    Partition::Place at;
    while (partition->MoveCleanTo(middle, "", 1024, &at, upper.get())) note();
    note();
    state.PauseTiming();
    std::sort(holds_ms.begin(), holds_ms.end());
    state.counters["moved"] = static_cast<double>(upper->records());
    state.counters["longest_ms"] = holds_ms.back();
    state.counters["median_ms"] = holds_ms[holds_ms.size() / 2];
    partition.reset();
    upper.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(Split)
    ->ArgNames({"key_bytes", "dirty"})
    ->Args({8, 0})
    ->Args({8, 1})
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pando

BENCHMARK_MAIN();

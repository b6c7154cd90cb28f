// What verbs cost on shm, beside a plain copy of the same bytes. `WriteOneLine` is where
// kMinWriteIntervalNs comes from.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>

#include "common/base/random.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/word_copy.h"

namespace pando {
namespace {

constexpr uint64_t kMainBytes = 64 << 20;
constexpr uint64_t kNodeBytes = 1024;

// One server, one endpoint; all pages of the region are there.
struct Bench {
  Bench() : cluster(Options(), {&handler, &handler}) {
    endpoint = *cluster.fabric(0).Connect(1, 1);
    buffer = *endpoint->AllocateBuffer(64 << 10);
    std::memset(cluster.memory(1).main.data(), 1, kMainBytes);
    Chain chain(1);
    for (uint64_t offset = 0; offset < kMainBytes; offset += buffer.bytes) {
      chain.Reset(1);
      chain.Read(MemorySpace::kMain, offset, buffer);
      endpoint->Post(&chain);
    }
  }
  static ConformanceOptions Options() {
    ConformanceOptions options;
    options.main_bytes = kMainBytes;
    options.packet_bytes = 4096;
    options.fabrics = 1;
    return options;
  }
  // Nodes in an order that no prefetcher guesses.
  uint64_t NextNode() { return random.Uniform(kMainBytes / kNodeBytes) * kNodeBytes; }

  EchoHandler handler;
  ShmTestCluster cluster;
  std::unique_ptr<Endpoint> endpoint;
  LocalBuffer buffer;
  Random random{1};
};

Bench& Shared() {
  static Bench bench;
  return bench;
}

void CopyNode(benchmark::State& state) {
  Bench& bench = Shared();
  const std::byte* main = bench.cluster.memory(1).main.data();
  for (auto _ : state) {
    std::memcpy(bench.buffer.data, main + bench.NextNode(), kNodeBytes);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(CopyNode);

void CopyNodeByWords(benchmark::State& state) {
  Bench& bench = Shared();
  const std::byte* main = bench.cluster.memory(1).main.data();
  for (auto _ : state) {
    CopyFromShared(bench.buffer.data, main + bench.NextNode(), kNodeBytes);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(CopyNodeByWords);

void CopyWarmNodeByWords(benchmark::State& state) {
  Bench& bench = Shared();
  const std::byte* main = bench.cluster.memory(1).main.data();
  for (auto _ : state) {
    CopyFromShared(bench.buffer.data, main, kNodeBytes);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(CopyWarmNodeByWords);

// A chain that `add` fills, one after the other.
template <typename Add>
void PostChains(benchmark::State& state, const Add& add) {
  Bench& bench = Shared();
  Chain chain(1);
  for (auto _ : state) {
    chain.Reset(1);
    add(bench, chain);
    bench.endpoint->Post(&chain);
  }
}

void ReadNode(benchmark::State& state) {
  PostChains(state, [](Bench& bench, Chain& chain) {
    chain.Read(MemorySpace::kMain, bench.NextNode(), bench.buffer.Slice(0, kNodeBytes));
  });
}
BENCHMARK(ReadNode);

void ReadWord(benchmark::State& state) {
  PostChains(state, [](Bench& bench, Chain& chain) {
    chain.Read(MemorySpace::kMain, 0, bench.buffer.Slice(0, 8));
  });
}
BENCHMARK(ReadWord);

void WriteOneLine(benchmark::State& state) {
  Bench& bench = Shared();
  Chain chain(1);
  chain.Write(MemorySpace::kMain, 0, bench.buffer.Slice(0, 64));
  for (auto _ : state) bench.endpoint->Post(&chain);
}
BENCHMARK(WriteOneLine);

void WriteNode(benchmark::State& state) {
  PostChains(state, [](Bench& bench, Chain& chain) {
    chain.Write(MemorySpace::kMain, bench.NextNode(), bench.buffer.Slice(0, kNodeBytes));
  });
}
BENCHMARK(WriteNode);

void LockAndRead(benchmark::State& state) {
  PostChains(state, [](Bench& bench, Chain& chain) {
    chain.CompareSwap(MemorySpace::kLocks, 64, 0, 0);
    chain.Read(MemorySpace::kMain, bench.NextNode(), bench.buffer.Slice(0, kNodeBytes));
  });
}
BENCHMARK(LockAndRead);

void WriteAndRelease(benchmark::State& state) {
  std::memset(Shared().buffer.data, 0, 128);
  PostChains(state, [](Bench& bench, Chain& chain) {
    chain.Write(MemorySpace::kMain, 4096, bench.buffer.Slice(0, 64));
    chain.Write(MemorySpace::kLocks, 64, bench.buffer.Slice(64, 8));
  });
}
BENCHMARK(WriteAndRelease);

void CallEcho(benchmark::State& state) {
  Bench& bench = Shared();
  for (auto _ : state) {
    PendingCall call;
    call.server = 1;
    call.request = "hello";
    bench.endpoint->Call(&call);
    while (!call.done) {
      bench.endpoint->Wait(kNeverNs);
      bench.endpoint->Poll();
    }
  }
}
BENCHMARK(CallEcho)->UseRealTime();

void WaitAfterWake(benchmark::State& state) {
  Bench& bench = Shared();
  for (auto _ : state) {
    bench.endpoint->Wake();
    bench.endpoint->Wait(kNeverNs);
  }
}
BENCHMARK(WaitAfterWake);

}  // namespace
}  // namespace pando

BENCHMARK_MAIN();

// What a coroutine costs: a switch, a chain that is done at once, a task, a wake-up.
#include <benchmark/benchmark.h>

#include "common/sched/fake_endpoint.h"
#include "common/sched/scheduler.h"

namespace pando {
namespace {

using Mode = FakeEndpoint::Mode;

// `state.range(0)` tasks that do nothing but give way; the time is that of one switch out and one
// in.
void BM_Yield(benchmark::State& state) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  bool stop = false;
  for (int64_t i = 0; i < state.range(0); ++i) {
    scheduler.Spawn([&] {
      while (!stop) scheduler.Yield();
    });
  }
  for (auto _ : state) scheduler.RunReady();
  stop = true;
  scheduler.Drain();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Yield)->Arg(1)->Arg(8)->Arg(64);

void BM_AwaitDoneAtOnce(benchmark::State& state) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  scheduler.Spawn([&] {
    Chain chain(1);
    for (auto _ : state) {
      chain.Reset(1);
      scheduler.Await(&chain);
    }
  });
  scheduler.Drain();
}
BENCHMARK(BM_AwaitDoneAtOnce);

void BM_SpawnAndRun(benchmark::State& state) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  int64_t ran = 0;
  for (auto _ : state) {
    scheduler.Spawn([&ran] { ++ran; });
    scheduler.RunReady();
  }
  benchmark::DoNotOptimize(ran);
}
BENCHMARK(BM_SpawnAndRun);

void BM_ParkAndUnpark(benchmark::State& state) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  Parking parking(&scheduler);
  bool stop = false;
  scheduler.Spawn([&] {
    while (!stop) parking.ParkUntil(kNeverNs);
  });
  scheduler.Spawn([&] {
    for (auto _ : state) {
      parking.Unpark();
      scheduler.Yield();
    }
    stop = true;
    parking.Unpark();
  });
  scheduler.Drain();
}
BENCHMARK(BM_ParkAndUnpark);

}  // namespace
}  // namespace pando

BENCHMARK_MAIN();

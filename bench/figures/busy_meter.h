// How busy the parts of a simulated cluster were in a span of virtual time: what limits a case.
//
// One thread, outside tasks. Sessions and owners outlive the meter's use.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/figures/case.h"
#include "bench/figures/owned_servers.h"
#include "common/fabric/sim/cpu_meter.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/core/session_context.h"

namespace pando::bench {

class BusyMeter {
 public:
  explicit BusyMeter(sim::SimWorld* world) : world_(*world) {}

  // The span begins. `users`: sessions of clients; `owners`: of an owned tree, else none.
  void Begin(std::vector<const SessionContext*> users, std::vector<OwnedServer> owners);
  // And has ended, so many nanoseconds later. Nothing was busy where there was no Begin().
  CaseResult::Busy End(int64_t span_ns) const;

 private:
  // Threads of one kind: what each of them has spent, of its waits as well.
  using Threads = std::vector<sim::CpuMeter::Spent>;
  struct Reading {
    std::vector<sim::NicUse> nics;
    std::vector<int64_t> held_ns;  // of owners' partitions
    Threads users, flushes, service;
  };
  Reading Read() const;

  sim::SimWorld& world_;
  std::vector<const SessionContext*> users_;
  std::vector<OwnedServer> owners_;
  Reading begin_;
};

}  // namespace pando::bench

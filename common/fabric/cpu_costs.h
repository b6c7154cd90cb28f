// Simulated time with the timing of real hardware (common/fabric/sim): what a session's thread does
// in addition to its chains takes no time by itself, and the code that does it charges it here.
// Elsewhere there is no such object (Endpoint::cpu_costs()), and time passes by itself.
#pragma once

#include <cstddef>

#include "common/base/busy_periods.h"

namespace pando {

// Of one session; its thread only. Outside a runner nothing is charged.
class CpuCosts {
 public:
  virtual ~CpuCosts() = default;
  // An operation that is executed for somebody else (NicProfile::Cpu::operation_ns).
  virtual void ChargeOperation() = 0;
  // So many records are looked up and changed while `partition` is held, from now on, or from when
  // nobody else holds it: the thread waits for that (NicProfile::Cpu::record_ns, each). nullptr:
  // nothing is held (rule T9), and they take as long.
  virtual void ChargeRecords(BusyPeriods* partition, size_t records) = 0;
};

}  // namespace pando

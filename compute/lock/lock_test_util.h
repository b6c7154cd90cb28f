// What the tests of locks need of a session: a scheduler over an endpoint that nothing is posted
// on.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "common/sched/fake_endpoint.h"
#include "common/sched/scheduler.h"

namespace pando {

struct LockTestSession {
  FakeEndpoint endpoint{FakeEndpoint::Mode::kImmediate};
  Scheduler scheduler{&endpoint};

  void Run(std::function<void()> task) {
    scheduler.Spawn(std::move(task));
    scheduler.Drain();
  }
  int64_t In(int64_t ns) const { return scheduler.NowNs() + ns; }
};

}  // namespace pando

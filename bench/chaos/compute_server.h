// One life of a compute server of pando-chaos: a process with some sessions that work at a given
// rate until a given time, and log what they do. Told over its channel when to begin:
//   -> {"ready":true}   <- {"start_ns":N,"end_ns":N}   <- {"hurry":true}
// From the last one on it writes as fast as it can: it is about to be killed or stopped, and a
// process that mostly sleeps would not be met with locks in its hands.
#pragma once

#include <string>

namespace pando::chaos {

// The main function of such a process: reads the plan from `plan_file`. Returns the exit code: 0 if
// it worked until the end, or its channel closed.
int RunComputeServerProcess(const std::string& plan_file, int life);

}  // namespace pando::chaos

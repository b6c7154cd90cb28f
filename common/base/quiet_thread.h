// Threads of a library: the program's signals are none of their business.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace pando {

// Starts a thread that takes no signal sent to the program. What it brings on itself (SIGSEGV, ...)
// and SIGPROF reach it, so that crash handlers and profilers see it. `name`: at most 15
// characters, as debuggers and top show it. ResourceExhausted: the system has no thread for it.
absl::StatusOr<std::thread> StartQuietThread(const char* name, std::function<void()> run);

// For tests: the process may start so many more, and then none; -1: as many as the system has.
void LimitQuietThreads(int more);

}  // namespace pando

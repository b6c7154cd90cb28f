// Threads of a library: the program's signals are none of their business.
#pragma once

#include <functional>
#include <thread>

namespace pando {

// Starts a thread that takes no signal sent to the program. What it brings on itself (SIGSEGV, ...)
// and SIGPROF reach it, so that crash handlers and profilers see it. `name`: at most 15
// characters, as debuggers and top show it.
std::thread StartQuietThread(const char* name, std::function<void()> run);

}  // namespace pando

// What a result was measured with: part of every benchmark's output.
#pragma once

#include <string>

namespace pando::bench {

struct HostInfo {
  std::string commit;    // of the sources; "-dirty" behind it if they were changed
  std::string compiler;  // and how it optimised
  std::string kernel;
  std::string cpu;
  int cpus = 0;
  double memory_gib = 0;
};

HostInfo GetHostInfo();

}  // namespace pando::bench

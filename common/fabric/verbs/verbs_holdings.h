// For tests that look for leaks.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace pando {

// What this process holds of the kernel and of the device.
struct Holdings {
  size_t descriptors = 0;
  size_t mappings = 0;       // of the device's queues
  std::string pinned_bytes;  // "VmPin:  1024 kB": registered memory

  bool operator==(const Holdings&) const = default;
  static Holdings Now() {
    Holdings holdings;
    DIR* const directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr) ++holdings.descriptors;
    closedir(directory);
    std::ifstream maps("/proc/self/maps"), status("/proc/self/status");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/uverbs") != std::string::npos) ++holdings.mappings;
    }
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmPin:")) holdings.pinned_bytes = line;
    }
    return holdings;
  }
};

}  // namespace pando

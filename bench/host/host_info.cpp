#include "bench/host/host_info.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/units.h"
#include "pando_commit.h"

namespace pando::bench {
namespace {

std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string Compiler() {
#ifdef __clang__
  std::string compiler = "clang " __clang_version__;
#else
  std::string compiler = "gcc " __VERSION__;
#endif
  absl::StrAppend(&compiler, ", ", PANDO_BUILD_TYPE);
#if defined(__SANITIZE_ADDRESS__)
  absl::StrAppend(&compiler, ", AddressSanitizer");
#elif defined(__SANITIZE_THREAD__)
  absl::StrAppend(&compiler, ", ThreadSanitizer");
#endif
  return compiler;
}

}  // namespace

HostInfo GetHostInfo() {
  HostInfo info;
  info.commit = kPandoCommit;
  info.compiler = Compiler();
  utsname name;
  if (uname(&name) == 0) info.kernel = absl::StrCat(name.sysname, " ", name.release);
  info.cpu = CpuName();
  info.cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  info.memory_gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                    static_cast<double>(sysconf(_SC_PAGESIZE)) / static_cast<double>(kGiB);
  return info;
}

}  // namespace pando::bench

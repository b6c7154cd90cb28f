// What this host has for RDMA: libibverbs, /sys, /dev, limits.

#include <net/if.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/fabric/verbs/verbs_device.h"
#include "compute/tool/doctor_rdma.h"

namespace pando::tool {
namespace {

namespace fs = std::filesystem;

constexpr int kCapIpcLock = 14;  // linux/capability.h

// Of the entries, sorted; empty where there is no such directory.
std::vector<std::string> Entries(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t Number(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  file >> value;
  return value;
}

std::vector<DeviceNode> ReadNodes() {
  std::vector<DeviceNode> nodes;
  for (const std::string& name : Entries("/dev/infiniband")) {
    if (!name.starts_with("uverbs")) continue;
    const std::string path = "/dev/infiniband/" + name;
    nodes.push_back({path, access(path.c_str(), R_OK | W_OK) == 0});
  }
  return nodes;
}

void ReadInterfaces(RdmaFacts* facts) {
  constexpr uint64_t kArphrdEther = 1;  // net/if_arp.h
  const fs::path root = "/sys/class/net";
  bool found_real = false;
  for (const std::string& name : Entries(root)) {
    const auto mtu = static_cast<uint32_t>(Number(root / name / "mtu"));
    if (mtu != 0) facts->interface_mtu_bytes[name] = mtu;
    std::ifstream flags_file(root / name / "flags");
    unsigned flags = 0;
    flags_file >> std::hex >> flags;
    if ((flags & IFF_UP) == 0 || (flags & IFF_LOOPBACK) != 0 ||
        Number(root / name / "type") != kArphrdEther) {
      continue;
    }
    // A device of its own before bridges and the like (docker0).
    std::error_code error;
    const bool real = fs::exists(root / name / "device", error);
    if (facts->ethernet.empty() || (real && !found_real)) facts->ethernet = name;
    found_real = found_real || real;
  }
}

KernelModule FindRxe() {
  std::error_code error;
  if (fs::exists("/sys/module/rdma_rxe", error)) return KernelModule::kLoaded;
  utsname system = {};
  uname(&system);
  const fs::path modules = fs::path("/lib/modules") / system.release;
  for (const std::string& name : Entries(modules / "kernel/drivers/infiniband/sw/rxe")) {
    if (name.starts_with("rdma_rxe.ko")) return KernelModule::kAvailable;
  }
  std::ifstream built_in(modules / "modules.builtin");
  for (std::string line; std::getline(built_in, line);) {
    if (line.find("/rdma_rxe.ko") != std::string::npos) return KernelModule::kLoaded;
  }
  return KernelModule::kMissing;
}

bool MayLockAnything() {
  // A kernel without user namespaces has no such file.
  std::ifstream uid_map("/proc/self/uid_map");
  std::string line_of_map;
  if (std::getline(uid_map, line_of_map) && !IsInitialUserNamespace(line_of_map)) return false;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t capabilities = 0;
    words >> name >> std::hex >> capabilities;
    if (name == "CapEff:") return (capabilities >> kCapIpcLock & 1) != 0;
  }
  return false;
}

}  // namespace

RdmaFacts GatherRdmaFacts(const VerbsDeviceOptions& options, bool needed) {
  RdmaFacts facts;
  facts.needed = needed;
  facts.options = options;
  facts.devices = ListVerbsDevices();
  facts.kernel_devices = Entries("/sys/class/infiniband");
  facts.nodes = ReadNodes();
  ReadInterfaces(&facts);
  facts.rxe = FindRxe();
  rlimit locked = {};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  facts.locked_bytes_max = locked.rlim_cur == RLIM_INFINITY ? UINT64_MAX : locked.rlim_cur;
  facts.may_raise_locked = locked.rlim_max == RLIM_INFINITY;
  facts.is_privileged = MayLockAnything();
  return facts;
}

}  // namespace pando::tool

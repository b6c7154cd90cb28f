#include "common/program/host_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/units.h"

namespace pando {
namespace {

// "MemAvailable:  123 kB", also behind "Node 0 ", also "inactive_file 4096": by name, in bytes.
std::map<std::string, uint64_t> ReadTable(const std::string& path) {
  std::map<std::string, uint64_t> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, unit;
    uint64_t value = 0;
    words >> name;
    if (name == "Node") words >> name >> name;
    if (!(words >> value)) continue;
    words >> unit;
    if (name.ends_with(':')) name.pop_back();
    table[name] = unit == "kB" ? value * kKiB : value;
  }
  return table;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The names of a control group's files in the two versions of the interface.
struct GroupFiles {
  const char *mount, *limit, *usage, *stat_prefix;
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                  "/memory.usage_in_bytes", "total_"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current", ""};

void AddGroup(const std::string& root, const GroupFiles& files, const std::string& group,
              std::vector<MemoryBound>* bounds) {
  const std::string directory = absl::StrCat(root, files.mount, group);
  const std::optional<uint64_t> limit = ReadNumber(directory + files.limit);  // "max" is none
  constexpr uint64_t kNoLimit = uint64_t{1} << 62;
  if (!limit.has_value() || *limit >= kNoLimit) return;
  std::map<std::string, uint64_t> stat = ReadTable(directory + "/memory.stat");
  const std::string prefix = files.stat_prefix;
  const uint64_t cache = stat[prefix + "inactive_file"] + stat[prefix + "active_file"];
  const uint64_t usage = ReadNumber(directory + files.usage).value_or(0);
  const uint64_t kept = usage - std::min(usage, cache);
  bounds->push_back({absl::StrCat("control group ", group.empty() ? "/" : group), *limit,
                     *limit - std::min(*limit, kept)});
}

// The group of this process and those that it lies in.
void AddGroups(const std::string& root, std::vector<MemoryBound>* bounds) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "0::/path", and with version 1 also "4:memory:/path" or "4:cpu,memory:/path".
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers =
        absl::StrCat(",", line.substr(first + 1, second - first - 1), ",");
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",memory,") == std::string::npos) continue;
    std::string group = line.substr(second + 1);
    while (group.ends_with('/')) group.pop_back();
    for (size_t end = group.size(); end != std::string::npos; end = group.rfind('/')) {
      group.erase(end);
      AddGroup(root, version_2 ? kVersion2 : kVersion1, group, bounds);
    }
  }
}

}  // namespace

HostMemory ReadHostMemory(int numa_node, const std::string& root) {
  HostMemory host;
  std::map<std::string, uint64_t> machine = ReadTable(root + "/proc/meminfo");
  if (machine.contains("MemTotal") && machine.contains("MemAvailable")) {
    host.bounds.push_back({"this machine", machine["MemTotal"], machine["MemAvailable"]});
  }
  const uint64_t page_bytes = machine["Hugepagesize"];
  const uint64_t promised = std::min(machine["HugePages_Rsvd"], machine["HugePages_Free"]);
  host.huge_free_bytes = (machine["HugePages_Free"] - promised) * page_bytes;
  if (numa_node >= 0) {
    const std::string node = absl::StrCat(root, "/sys/devices/system/node/node", numa_node);
    std::map<std::string, uint64_t> memory = ReadTable(node + "/meminfo");
    if (memory.contains("MemTotal") && memory.contains("MemFree")) {
      const uint64_t available = memory["MemFree"] + memory["Active(file)"] +
                                 memory["Inactive(file)"] + memory["SReclaimable"];
      host.bounds.push_back({absl::StrCat("NUMA node ", numa_node), memory["MemTotal"],
                             std::min(available, memory["MemTotal"])});
    }
    const std::optional<uint64_t> free_pages = ReadNumber(
        absl::StrCat(node, "/hugepages/hugepages-", page_bytes / kKiB, "kB/free_hugepages"));
    host.huge_free_bytes = std::min(host.huge_free_bytes, free_pages.value_or(0) * page_bytes);
  }
  AddGroups(root, &host.bounds);
  return host;
}

absl::Status CheckMemory(uint64_t bytes, const HostMemory& host) {
  const auto tightest = std::min_element(
      host.bounds.begin(), host.bounds.end(),
      [](const auto& a, const auto& b) { return a.available_bytes < b.available_bytes; });
  if (tightest == host.bounds.end() || bytes <= tightest->available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(FormatBytes(bytes), " of memory: ", tightest->name, " has ",
                   FormatBytes(tightest->total_bytes), ", ", FormatBytes(tightest->available_bytes),
                   " of it available now"));
}

}  // namespace pando

// Which host this is, and which process: so that an entry of a dead process is recognised by who
// is on the same host. Thread safety: free functions, as the system calls.
#pragma once

#include <cstdint>
#include <string>

namespace pando {

struct HostIdentity {
  std::string name;            // for people
  std::string boot_id;         // another one after each boot, and on each host
  uint64_t pid_namespace = 0;  // process ids of another one mean nothing here

  bool SameHost(const HostIdentity& other) const {
    return !boot_id.empty() && boot_id == other.boot_id;
  }
  bool SameProcesses(const HostIdentity& other) const {
    return SameHost(other) && pid_namespace == other.pid_namespace;
  }

  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};
HostIdentity ThisHost();

// Process ids come again; together with the time of their start they do not.
struct ProcessIdentity {
  int32_t pid = 0;
  uint64_t start_ticks = 0;  // since boot, in clock ticks; 0: not known

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity ThisProcess();

// Whether that process of this host and of this pid namespace has certainly ended (whether or not
// its parent has taken note). False where in doubt.
bool HasEnded(const ProcessIdentity& process);

}  // namespace pando

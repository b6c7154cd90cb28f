#include "common/registry/process_identity.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

// 0: there is no such process, or it cannot be looked at.
uint64_t StartTicks(int32_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // The program's name, the second field, may hold spaces and brackets.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kStartTime = 22, kFirstBehindName = 3;
  std::string skipped;
  for (int field = kFirstBehindName; field < kStartTime; ++field) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return fields ? ticks : 0;
}

}  // namespace

HostIdentity ThisHost() {
  HostIdentity host;
  char name[256] = {};
  host.name = gethostname(name, sizeof(name) - 1) == 0 && *name != 0 ? name : "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot_id;
  struct stat info;
  if (stat("/proc/self/ns/pid", &info) == 0) host.pid_namespace = info.st_ino;
  return host;
}

ProcessIdentity ThisProcess() {
  const auto pid = static_cast<int32_t>(getpid());
  return {pid, StartTicks(pid)};
}

bool HasEnded(const ProcessIdentity& process) {
  if (process.pid <= 0) return false;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd entry = {fd, POLLIN, 0};
  const bool ended = poll(&entry, 1, 0) == 1;
  close(fd);
  if (ended) return true;
  // Alive, but perhaps another process that was given the same id.
  const uint64_t ticks = StartTicks(process.pid);
  return process.start_ticks != 0 && ticks != 0 && ticks != process.start_ticks;
}

}  // namespace pando

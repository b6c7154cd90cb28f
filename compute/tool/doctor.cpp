// pando doctor: what this machine and this registry lack for Pando, and the exact fix.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/program/file_limit.h"
#include "common/program/host_memory.h"
#include "common/registry/private_directory.h"
#include "common/registry/registry.h"
#include "compute/tool/announced_servers.h"
#include "compute/tool/commands.h"
#include "compute/tool/doctor_report.h"
#include "pando/version.h"
#ifdef PANDO_HAVE_VERBS
#include "compute/tool/doctor_litmus.h"
#include "compute/tool/doctor_rdma.h"
#endif

namespace pando::tool {
namespace {

constexpr uint64_t kMemoryAdvised = uint64_t{1} << 30;
constexpr uint64_t kFilesAdvised = 1024;
constexpr uint64_t kServerFilesAdvised = 2 * 1024 + 64;  // two a client, of the usual 1,024

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void CheckSystem(DoctorReport* report) {
  utsname system = {};
  uname(&system);
  report->Ok(absl::StrCat("pando ", PANDO_VERSION_STRING, " on ", system.sysname, " ",
                          system.release, ", ", system.machine));
  const unsigned cpus = std::thread::hardware_concurrency();
  if (cpus >= 2) {
    report->Ok(absl::StrCat(cpus, " CPUs"));
  } else {
    report->Note("one CPU: everything works, clients and servers take turns");
  }
}

// Free and reserved huge pages, and their size.
struct HugePages {
  uint64_t total = 0, free = 0, page_bytes = 0;
};
HugePages ReadHugePages() {
  HugePages pages;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    words >> name >> value;
    if (name == "HugePages_Total:") pages.total = value;
    if (name == "HugePages_Free:") pages.free = value;
    if (name == "Hugepagesize:") pages.page_bytes = value * 1024;
  }
  return pages;
}

void CheckMemory(DoctorReport* report) {
  for (const MemoryBound& bound : ReadHostMemory(-1).bounds) {
    const std::string memory =
        absl::StrCat("memory of ", bound.name, ": ", SizeText(bound.total_bytes), ", ",
                     SizeText(bound.available_bytes), " available");
    if (bound.available_bytes >= kMemoryAdvised) {
      report->Ok(memory);
    } else {
      report->Note(memory +
                   "; a memory server offers no more than that: its default of 1 GiB is refused, "
                   "start it with less, e.g. --memory=256M");
    }
  }
  const HugePages huge = ReadHugePages();
  if (huge.total > 0) {
    report->Ok(absl::StrCat("huge pages: ", huge.free, " of ", huge.total, " free, ",
                            SizeText(huge.page_bytes), " each (pando-memory --huge_pages)"));
  } else {
    report->Note(
        "no huge pages are reserved: servers use normal pages; for 1 GiB of them: "
        "sudo sysctl -w vm.nr_hugepages=512");
  }
  const std::string nodes = FirstLine("/sys/devices/system/node/online");
  if (!nodes.empty()) report->Ok("NUMA nodes: " + nodes);
}

std::string FilesText(uint64_t files) {
  return files == RLIM_INFINITY ? "unlimited" : absl::StrCat(files);
}

void CheckLimits(DoctorReport* report) {
  const FileLimit files = GetFileLimit();
  const std::string text = absl::StrCat("open files: ", FilesText(files.now));
  if (files.most < kFilesAdvised) {
    report->Fix(absl::StrCat("only ", files.most, " open files are allowed"),
                "as root, in /etc/security/limits.d/pando.conf: * hard nofile 524288 (and log in "
                "again); LimitNOFILE=524288 in a unit");
  } else if (files.most < kServerFilesAdvised) {
    report->Note(absl::StrCat(text, ", a memory server raises that to ", files.most,
                              ", which is less than two for each of --connections_max=1024"),
                 "as root, in /etc/security/limits.d/pando.conf: * hard nofile 524288 (and log in "
                 "again); LimitNOFILE=524288 in a unit");
  } else if (files.now < files.most) {
    report->Ok(absl::StrCat(text, ", a memory server raises that to ", FilesText(files.most)));
  } else {
    report->Ok(text);
  }
}

// `announced`: the fabric of the memory servers that are there. What was asked for may be for
// others.
void CheckRdma(const Settings& settings, const std::string& announced, DoctorReport* report) {
  const RdmaOptions& rdma = settings.rdma;
  const bool verbs = settings.fabric == "verbs" || announced == "verbs";
  const bool needed =
      verbs || !rdma.device.empty() || rdma.port != 0 || rdma.gid_index >= 0 || rdma.mtu_bytes != 0;
#ifdef PANDO_HAVE_VERBS
  JudgeRdma(GatherRdmaFacts(DeviceOptions(rdma), needed), report);
  if (verbs) JudgeSecret(!settings.secret_file.empty(), report);
#else
  report->Lack(needed, "this build has no RDMA (fabric verbs)",
               "sudo apt-get install libibverbs-dev, and build again");
#endif
}

// False: nothing below it can be looked at.
bool CheckDirectory(const std::string& directory, DoctorReport* report) {
  std::error_code error;
  const std::string absolute =
      std::filesystem::absolute(directory, error).lexically_normal().string();
  const absl::Status status = PrivateDirectory::Open(absolute, "registry", /*make=*/false).status();
  if (status.ok()) {
    report->Ok(absl::StrCat("registry ", directory, " is yours alone"));
  } else if (absl::IsNotFound(status)) {
    report->Note(absl::StrCat("registry ", directory,
                              " is not there yet; the first memory server makes it: ",
                              "pando-memory --registry=", directory, " --server_id=1 &"));
  } else {
    report->Fix(std::string(status.message()), "give another with --registry=DIR");
  }
  return status.ok();
}

enum class SocketState { kAlive, kDead, kForbidden };

SocketState ProbeSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() > kSocketPathBytesMax) return SocketState::kDead;
  memcpy(address.sun_path, path.data(), path.size());
  // The kind of socket does not matter for the question whether anybody listens.
  for (int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return SocketState::kDead;
    const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    const int error = errno;
    close(fd);
    if (result == 0 || error == EAGAIN) return SocketState::kAlive;
    if (error == EACCES) return SocketState::kForbidden;
  }
  return SocketState::kDead;
}

// Returns how many servers listen.
int CheckSockets(const std::string& directory, DoctorReport* report) {
  int alive = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!entry.is_socket(error)) continue;
    const std::string path = entry.path().string();
    struct stat status = {};
    if (stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
      report->Fix(absl::StrCat("others may use socket ", path), "chmod 600 " + path);
    }
    switch (ProbeSocket(path)) {
      case SocketState::kAlive:
        ++alive;
        break;
      case SocketState::kDead:
        report->Note(absl::StrCat("no server listens at ", path,
                                  " (a server that was killed; its next start, or rm, "
                                  "removes the file)"));
        break;
      case SocketState::kForbidden:
        report->Fix("no permission to use socket " + path, "run as the user of the memory servers");
        break;
    }
  }
  if (error)
    report->Fix(absl::StrCat("cannot list ", directory, ": ", error.message()),
                "chmod 700 " + directory);
  return alive;
}

void CheckServers(const Settings& settings, DoctorReport* report) {
  AnnouncedServers announced(settings);
  const auto client = Connect(settings);
  if (!client.ok()) {
    report->Fix(
        absl::StrCat("cannot work with the memory servers: ", client.status().message()),
        absl::IsPermissionDenied(client.status())
            ? "give the cluster's secret, or none if it has none: --secret_file=FILE"
            : "if versions differ, start servers and clients of one build; else see the servers' "
              "logs");
    return;
  }
  for (const ServerStatus& server : announced.Ask(client->get())) {
    const std::string title =
        absl::StrCat("memory server ", server.id, server.is_catalog ? " (catalog)" : "");
    if (!server.available) {
      report->Fix(title + " does not answer", "restart it");
    } else if (server.free_bytes == 0) {
      report->Fix(title + " is full", "drop a tree, or start the servers with more --memory");
    } else {
      report->Ok(absl::StrCat(title, ": ", SizeText(server.free_bytes), " of ",
                              SizeText(server.region_bytes), " free"));
    }
  }
}

// The servers that are announced; nullopt: nobody can tell.
std::optional<std::vector<ServerLocation>> ListAnnounced(const std::string& name,
                                                         DoctorReport* report) {
  const auto registry = OpenRegistry(name);
  auto servers = registry.ok() ? (*registry)->List() : registry.status();
  if (servers.ok()) return *std::move(servers);
  const bool absent = absl::IsUnavailable(servers.status());
  report->Fix(absl::StrCat("registry ", name, ": ", servers.status().message()),
              absl::StrCat(absent ? "on that host: memcached -u nobody -l ADDRESS -p PORT -d "
                                    "(sudo apt-get install memcached); or "
                                  : "",
                           "give another with --registry"));
  return std::nullopt;
}

// The fabric of all of them, whatever was asked for. nullopt: they have several.
std::optional<std::string> FabricOf(const std::vector<ServerLocation>& servers,
                                    const std::string& asked_for, DoctorReport* report) {
  if (servers.empty()) return asked_for;
  const std::string& fabric = servers.front().fabric;
  for (const ServerLocation& server : servers) {
    if (server.fabric == fabric) continue;
    report->Fix(absl::StrCat("memory servers of fabrics ", fabric, " and ", server.fabric,
                             " are announced in one registry"),
                "start all of them with one --fabric, or with a registry for each fabric");
    return std::nullopt;
  }
  if (fabric != asked_for) {
    report->Note(absl::StrCat("these memory servers have fabric ", fabric, ", not ", asked_for),
                 absl::StrCat("give programs that work with them --fabric=", fabric));
  }
  return fabric;
}

// The fabric of the servers that are there; nullopt: there are none to be looked at.
std::optional<std::string> CheckRegistry(const Settings& settings, DoctorReport* report) {
  const std::string& name = settings.registry;
  if (name.empty()) {
    report->Note(
        "no registry is named: give --registry=DIR or set PANDO_REGISTRY to look at servers too");
    return std::nullopt;
  }
  std::string registry = name;
  int listening = 0;
  if (!name.starts_with("memcached://")) {
    if (name.starts_with("local:")) registry.erase(0, strlen("local:"));
    if (!CheckDirectory(registry, report)) return std::nullopt;
    listening = CheckSockets(registry, report);
  }
  const auto announced = ListAnnounced(registry, report);
  if (!announced.has_value()) return std::nullopt;
  // Servers of fabric verbs have no socket there.
  if (!announced->empty() || listening > 0) {
    report->Ok(absl::StrCat("memory servers announced in ", registry, ": ", announced->size()));
    return FabricOf(*announced, settings.fabric, report);
  }
  report->Note(absl::StrCat("no memory server is running; start one: pando-memory --registry=",
                            registry, " --server_id=1 &"));
  return std::nullopt;
}

}  // namespace

absl::Status Doctor(const Settings& settings, const Arguments&) {
  // Other commands hear of it from the library.
  if (settings.fabric != "shm" && settings.fabric != "verbs") {
    return absl::InvalidArgumentError(
        absl::StrCat("--fabric is shm or verbs, not '", settings.fabric, "'"));
  }
  if (settings.litmus) {
#ifdef PANDO_HAVE_VERBS
    return DoctorLitmus(settings);
#else
    return absl::UnimplementedError(
        "this build has no RDMA: install libibverbs-dev and build again");
#endif
  }
  DoctorReport report;
  CheckSystem(&report);
  CheckMemory(&report);
  CheckLimits(&report);
  const std::optional<std::string> fabric = CheckRegistry(settings, &report);
  Settings as_announced = settings;
  if (fabric.has_value()) as_announced.fabric = *fabric;
  CheckRdma(settings, as_announced.fabric, &report);
  if (fabric.has_value()) CheckServers(as_announced, &report);
  absl::Status status = Print(report.text());
  if (status.ok() && report.fixes() > 0) {
    status = absl::FailedPreconditionError(absl::StrCat(
        report.fixes(), report.fixes() == 1 ? " thing has" : " things have", " to be fixed"));
  }
  return status;
}

}  // namespace pando::tool

#include "compute/tool/doctor_rdma.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/units.h"

namespace pando::tool {
namespace {

// A memory server's default, and what clients and lock tables need beside it.
constexpr uint64_t kLockedAdvised = kGiB + 64 * kMiB;
constexpr uint32_t kRdmaMtuMax = 4096;
// An Ethernet MTU that an RDMA MTU of 4096 and its headers fit into.
constexpr uint32_t kInterfaceMtuAdvised = 4200;
constexpr size_t kGidsShown = 8;

std::string GidText(const GidFacts& gid) {
  return absl::StrCat(gid.index, " ", FormatGid(gid), " (", GidTypeName(gid.type), ")");
}

std::string GidsText(const PortFacts& port) {
  const size_t shown = std::min(port.gids.size(), kGidsShown);
  std::string text =
      absl::StrJoin(port.gids.begin(), port.gids.begin() + static_cast<ptrdiff_t>(shown), ", ",
                    [](std::string* out, const GidFacts& gid) { *out += GidText(gid); });
  if (port.gids.size() > shown) absl::StrAppend(&text, ", ", port.gids.size() - shown, " more");
  return text;
}

std::string MakeSoftwareDevice(const RdmaFacts& facts) {
  const std::string start = "to make one in software: ";
  if (facts.rxe == KernelModule::kMissing) {
    return start +
           "scripts/softroce run COMMAND (this kernel has no module rdma_rxe; Debian's linux-image "
           "has it, its linux-image-cloud does not)";
  }
  if (facts.ethernet.empty()) {
    return start + "scripts/softroce run COMMAND (no network interface is up for rdma_rxe here)";
  }
  return absl::StrCat(start, facts.rxe == KernelModule::kLoaded ? "" : "sudo modprobe rdma_rxe && ",
                      "sudo rdma link add rxe0 type rxe netdev ", facts.ethernet,
                      " (package iproute2); or scripts/softroce run COMMAND");
}

// What stands between the kernel's devices and this process. False: there is nothing to look at.
bool JudgeAccess(const RdmaFacts& facts, DoctorReport* report) {
  if (facts.devices.empty() && facts.kernel_devices.empty()) {
    report->Lack(facts.needed,
                 facts.needed ? "no RDMA device" : "no RDMA device, none needed: fabric shm",
                 MakeSoftwareDevice(facts));
    return false;
  }
  if (facts.nodes.empty()) {
    report->Lack(facts.needed, "the kernel has RDMA devices, but no /dev/infiniband/uverbs*",
                 "sudo modprobe ib_uverbs; in a container: docker run --device=/dev/infiniband "
                 "--cap-add=IPC_LOCK");
  } else if (facts.devices.empty()) {
    report->Lack(facts.needed,
                 absl::StrCat("libibverbs does not know the kernel's RDMA device ",
                              absl::StrJoin(facts.kernel_devices, ", ")),
                 "sudo apt-get install ibverbs-providers");
  }
  for (const DeviceNode& node : facts.nodes) {
    if (node.may_use) continue;
    report->Lack(facts.needed, absl::StrCat("you may not use ", node.path),
                 absl::StrCat("sudo chmod 666 ", node.path,
                              "; for good: sudo apt-get install rdma-core (its udev rules do so)"));
  }
  return !facts.devices.empty();
}

std::string RaisePort(const PortFacts& port) {
  if (!port.ethernet) {
    return "is the cable in? A port that stays in INIT needs a subnet manager: sudo apt-get "
           "install opensm";
  }
  if (port.interface.empty()) return "is the cable in? ip link shows its interface";
  return absl::StrCat("sudo ip link set ", port.interface, " up; then: is the cable in?");
}

void JudgeMtu(const RdmaFacts& facts, const PortFacts& port, const std::string& title,
              DoctorReport* report) {
  if (!port.ethernet || port.mtu_bytes >= kRdmaMtuMax) return;
  const auto interface = facts.interface_mtu_bytes.find(port.interface);
  const bool known = interface != facts.interface_mtu_bytes.end();
  report->Note(
      absl::StrCat(
          title, ": MTU ", port.mtu_bytes, " bytes, RDMA can have ", kRdmaMtuMax,
          known ? absl::StrCat("; that of ", port.interface, " is ", interface->second) : ""),
      absl::StrCat("sudo ip link set ", known ? port.interface : "INTERFACE", " mtu ",
                   kInterfaceMtuAdvised, ", on every host, where the switches allow it"));
}

void JudgePort(const RdmaFacts& facts, const DeviceFacts& device, const PortFacts& port,
               DoctorReport* report) {
  const std::string title = absl::StrCat(device.name, " port ", port.number);
  // Whether another one does is what ChooseDevice() says.
  if (!port.active) {
    report->Note(absl::StrCat(title, ": ", port.state), RaisePort(port));
    return;
  }
  if (port.gids.empty()) {
    report->Note(absl::StrCat(title, ": ", port.state, ", but no GID"),
                 absl::StrCat("give its interface an address: sudo ip address add ADDRESS/24 dev ",
                              port.interface.empty() ? "INTERFACE" : port.interface));
    return;
  }
  report->Ok(absl::StrCat(title, ": ", port.state, ", ", port.ethernet ? "Ethernet" : "InfiniBand",
                          ", MTU ", port.mtu_bytes, ", GIDs ", GidsText(port)));
  JudgeMtu(facts, port, title, report);
}

void JudgeDevice(const RdmaFacts& facts, const DeviceFacts& device, DoctorReport* report) {
  const std::string title = "RDMA device " + device.name;
  if (!device.may_open) {
    report->Lack(facts.needed, title + " cannot be opened",
                 "see the permissions of /dev/infiniband/uverbs*");
    return;
  }
  const std::string text = absl::StrCat(
      title, ": ",
      device.is_software ? "software (right, but slow; lines with checksums, release by CAS)"
                         : "a NIC",
      device.on_chip_bytes > 0
          ? absl::StrCat(", ", FormatBytes(device.on_chip_bytes), " of memory of its own")
          : "",
      device.has_atomics ? ", 64-bit atomics" : "");
  if (device.has_atomics) {
    report->Ok(text);
  } else {
    report->Note(text + ", no 64-bit atomics: not for Pando");
  }
  for (const PortFacts& port : device.ports) JudgePort(facts, device, port, report);
}

void JudgeLockedMemory(const RdmaFacts& facts, DoctorReport* report) {
  if (facts.locked_bytes_max == UINT64_MAX) {
    report->Ok("locked memory: unlimited");
    return;
  }
  const std::string text = "locked memory: up to " + FormatBytes(facts.locked_bytes_max);
  if (facts.is_privileged) {
    report->Ok(text + ", which does not hold for you (CAP_IPC_LOCK)");
    return;
  }
  if (facts.locked_bytes_max >= kLockedAdvised) {
    report->Ok(text + "; servers with more --memory need 'ulimit -l unlimited'");
    return;
  }
  std::string how = facts.may_raise_locked ? "ulimit -l unlimited" : "";
  absl::StrAppend(&how, how.empty() ? "" : "; for good: ",
                  "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-rdma.conf, "
                  "and log in again; a systemd unit: LimitMEMLOCK=infinity; "
                  "docker run --ulimit memlock=-1");
  const bool any_device = !facts.devices.empty() || !facts.kernel_devices.empty();
  report->Lack(facts.needed && any_device,
               text + "; RDMA locks all that it registers (fabric shm: nothing)", how);
}

}  // namespace

bool IsInitialUserNamespace(std::string_view uid_map) {
  std::istringstream words{std::string(uid_map)};
  uint64_t inside = 1, outside = 1, count = 0;
  words >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == UINT32_MAX;
}

void JudgeSecret(bool has_secret, DoctorReport* report) {
  if (has_secret) {
    report->Ok("a secret: a client that does not know it gets no key to any memory");
    return;
  }
  report->Note(
      "no secret: anybody who reaches the TCP port of a memory server can read and write all of "
      "its "
      "memory",
      "umask 077; openssl rand -hex 32 >pando.secret; give that file to all servers and clients "
      "with --secret_file, or keep strangers out of the network");
}

void JudgeRdma(const RdmaFacts& facts, DoctorReport* report) {
  if (JudgeAccess(facts, report)) {
    for (const DeviceFacts& device : facts.devices) JudgeDevice(facts, device, report);
    const absl::StatusOr<DeviceChoice> choice = ChooseDevice(facts.devices, facts.options);
    if (choice.ok()) {
      report->Ok(absl::StrCat("--fabric=verbs uses ", facts.devices[choice->device].name, " port ",
                              choice->port.number, ", GID ", GidText(choice->gid), ", MTU ",
                              choice->mtu_bytes));
    } else {
      report->Lack(
          facts.needed, absl::StrCat("--fabric=verbs cannot be used: ", choice.status().message()),
          "see above, or give another with --device=NAME (and --port, --gid_index, --mtu)");
    }
  }
  JudgeLockedMemory(facts, report);
}

}  // namespace pando::tool

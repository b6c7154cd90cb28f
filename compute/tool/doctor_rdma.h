// The part of `pando doctor` about RDMA: facts of this host, and a judgement of them that machines
// without an RDMA device can test.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/fabric/verbs/device_choice.h"
#include "compute/tool/doctor_report.h"

namespace pando::tool {

// rdma_rxe, the kernel's RDMA in software.
enum class KernelModule : uint8_t { kMissing, kAvailable, kLoaded };

struct DeviceNode {
  std::string path;  // "/dev/infiniband/uverbs0"
  bool may_use = true;
};

struct RdmaFacts {
  bool needed =
      false;  // --fabric=verbs or --device and the like were given: what is missing has to be fixed
  VerbsDeviceOptions options;
  std::vector<DeviceFacts> devices;  // as libibverbs finds them
  std::vector<std::string>
      kernel_devices;  // as the kernel names them; more if a library is missing
  std::vector<DeviceNode> nodes;
  std::map<std::string, uint32_t> interface_mtu_bytes;
  std::string ethernet;  // an interface that rxe could use; "": there is none
  KernelModule rxe = KernelModule::kMissing;
  uint64_t locked_bytes_max = UINT64_MAX;  // of locked memory; UINT64_MAX: no limit
  bool may_raise_locked = false;           // the user may lift the limit himself
  bool is_privileged = false;              // the limit does not hold (CAP_IPC_LOCK)
};

// Pure. Of /proc/self/uid_map: whether this is the initial user namespace. In another one (a
// rootless container) all capabilities are there, and the kernel does not count them.
bool IsInitialUserNamespace(std::string_view uid_map);
// Pure.
void JudgeRdma(const RdmaFacts& facts, DoctorReport* report);

// Pure. Of a cluster whose servers are reached over TCP: whether strangers are kept out.
void JudgeSecret(bool has_secret, DoctorReport* report);

RdmaFacts GatherRdmaFacts(const VerbsDeviceOptions& options, bool needed);

}  // namespace pando::tool

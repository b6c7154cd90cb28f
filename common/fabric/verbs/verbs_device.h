// An opened RDMA device: its context, protection domain and the path (port, GID, MTU) in use.
//
// Thread safety: thread-safe (libibverbs is, but for one object used by two threads at once).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/verbs/device_choice.h"
#include "common/fabric/verbs/verbs_handles.h"

namespace pando {

// Facts of every device of this host; empty where there is none, or no kernel support.
std::vector<DeviceFacts> ListVerbsDevices();

class VerbsDevice {
 public:
  // As ChooseDevice(). Unavailable: the device went away or cannot be opened (says why).
  static absl::StatusOr<std::shared_ptr<VerbsDevice>> Open(const VerbsDeviceOptions& options);

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const DeviceChoice& path() const { return path_; }
  // Where the path's GID is in the port's table now: an address that was removed and given again
  // may have another place.
  int GidIndex() const;
  const std::string& name() const { return name_; }
  // Verbs are executed by a kernel, not by a NIC (rxe, siw): lines are not atomic there, and a
  // WRITE does not release a lock (rules F1, L4).
  bool is_software() const { return is_software_; }
  uint64_t device_memory_bytes() const { return device_memory_bytes_; }
  // READs and atomics under way on one queue pair: that it may start, that it can answer.
  uint8_t initiator_depth() const { return initiator_depth_; }
  uint8_t responder_depth() const { return responder_depth_; }
  uint32_t work_requests_max() const { return work_requests_max_; }
  uint32_t completions_max() const { return completions_max_; }

  // Registers memory, never with relaxed ordering. ResourceExhausted: says what to do.
  absl::StatusOr<MemoryRegionHandle> Register(void* memory, uint64_t bytes, bool remote) const;

 private:
  VerbsDevice() = default;

  std::string name_;
  ContextHandle context_;
  ProtectionDomainHandle pd_;
  DeviceChoice path_;
  bool is_software_ = false;
  uint64_t device_memory_bytes_ = 0;
  uint8_t initiator_depth_ = 1, responder_depth_ = 1;
  uint32_t work_requests_max_ = 0, completions_max_ = 0;
};

// What remote verbs may do with a region or a queue pair.
inline constexpr unsigned kRemoteAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

ibv_mtu MtuFromBytes(uint32_t bytes);

}  // namespace pando

// The lock table of a memory server: in the NIC's own memory where it has some, else in host
// memory, and the server's own access to it, by loopback.
//
// Not thread-safe: one control thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/fabric/verbs/device_memory.h"
#include "common/fabric/verbs/loopback.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {

struct LockSpaceOptions {
  uint64_t bytes = 256 << 10;  // multiple of 64
  bool device_memory = true;   // take the NIC's where it has enough
};

class LockSpace final : public LockTable {
 public:
  // Device memory where the NIC has as much (else one log line). `calls` and `loopback` outlive it.
  static absl::StatusOr<std::unique_ptr<LockSpace>> Create(std::shared_ptr<VerbsDevice> device,
                                                           const LockSpaceOptions& options,
                                                           DeviceMemoryCalls* calls,
                                                           Loopback* loopback);
  ~LockSpace() override;

  // As other hosts name it; zero-based in device memory.
  const RemoteSpace& space() const { return space_; }
  bool on_chip() const { return on_chip_ != nullptr; }
  // Empty in device memory.
  std::span<std::byte> host_memory() const { return host_.bytes(); }

  uint64_t words() const override { return space_.bytes / sizeof(uint64_t); }
  absl::Status Read(uint64_t first, std::span<uint64_t> into) override;
  absl::StatusOr<uint64_t> CompareSwap(uint64_t word, uint64_t compare, uint64_t swap) override;

 private:
  LockSpace(std::shared_ptr<VerbsDevice> device, DeviceMemoryCalls* calls, Loopback* loopback)
      : device_(std::move(device)), calls_(calls), loopback_(loopback) {}
  absl::Status TakeDeviceMemory(uint64_t bytes);
  absl::Status ZeroDeviceMemory(uint64_t bytes);

  const std::shared_ptr<VerbsDevice> device_;
  DeviceMemoryCalls* const calls_;
  Loopback* const loopback_;
  RegisteredMemory host_;
  ibv_dm* on_chip_ = nullptr;
  MemoryRegionHandle region_;  // of on_chip_
  RemoteSpace space_;
};

}  // namespace pando

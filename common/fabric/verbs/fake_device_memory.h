// Device memory that is none: host memory behind the calls of DeviceMemoryCalls, registered
// zero-based as a NIC's is. Counts, and fails where it is told to.
#pragma once

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <new>

#include "common/fabric/verbs/device_memory.h"

namespace pando {

class FakeDeviceMemory final : public DeviceMemoryCalls {
 public:
  explicit FakeDeviceMemory(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  uint64_t MaxBytes(const VerbsDevice&) override { return max_bytes_; }
  ibv_dm* Allocate(const VerbsDevice&, uint64_t bytes) override {
    ++allocations;
    if (fail_allocate) {
      errno = ENOMEM;
      return nullptr;
    }
    void* const memory = ::operator new (bytes, std::align_val_t{4096});
    std::memset(memory, 0xdb, bytes);  // what the last owner left
    auto* const handle = new ibv_dm{};
    memory_[handle] = static_cast<std::byte*>(memory);
    return handle;
  }
  void Free(ibv_dm* memory) override {
    ++frees;
    ::operator delete (memory_.at(memory), std::align_val_t{4096});
    memory_.erase(memory);
    delete memory;
  }
  ibv_mr* Register(const VerbsDevice& device, ibv_dm* memory, uint64_t bytes,
                   unsigned access) override {
    if (fail_register) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    return ibv_reg_mr_iova(device.pd(), memory_.at(memory), bytes, 0, access);
  }
  int CopyTo(ibv_dm* memory, uint64_t offset, const void* from, size_t bytes) override {
    if (fail_copy) return EIO;
    std::memcpy(memory_.at(memory) + offset, from, bytes);
    return 0;
  }

  // Of the only allocation.
  std::byte* data() const { return memory_.begin()->second; }

  bool fail_allocate = false, fail_register = false, fail_copy = false;
  int allocations = 0, frees = 0;

 private:
  const uint64_t max_bytes_;
  std::map<ibv_dm*, std::byte*> memory_;
};

}  // namespace pando

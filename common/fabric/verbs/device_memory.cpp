#include "common/fabric/verbs/device_memory.h"

namespace pando {
namespace {

class RealCalls final : public DeviceMemoryCalls {
 public:
  uint64_t MaxBytes(const VerbsDevice& device) override { return device.device_memory_bytes(); }
  ibv_dm* Allocate(const VerbsDevice& device, uint64_t bytes) override {
    ibv_alloc_dm_attr attributes = {};
    attributes.length = bytes;
    attributes.log_align_req = 6;  // lines
    return ibv_alloc_dm(device.context(), &attributes);
  }
  void Free(ibv_dm* memory) override { ibv_free_dm(memory); }
  ibv_mr* Register(const VerbsDevice& device, ibv_dm* memory, uint64_t bytes,
                   unsigned access) override {
    return ibv_reg_dm_mr(device.pd(), memory, 0, bytes, access | IBV_ACCESS_ZERO_BASED);
  }
  int CopyTo(ibv_dm* memory, uint64_t offset, const void* from, size_t bytes) override {
    return ibv_memcpy_to_dm(memory, offset, from, bytes);
  }
};

}  // namespace

DeviceMemoryCalls* RealDeviceMemoryCalls() {
  static RealCalls calls;
  return &calls;
}

}  // namespace pando

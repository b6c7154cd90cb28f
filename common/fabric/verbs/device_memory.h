// The calls of libibverbs for memory on the NIC itself: a thin seam, because the hardware that has
// such memory is rare and tests need a fake of exactly these calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_handles.h"

namespace pando {

class DeviceMemoryCalls {
 public:
  virtual ~DeviceMemoryCalls() = default;
  // As in ibv_query_device_ex(): 0 where the device has none.
  virtual uint64_t MaxBytes(const VerbsDevice& device) = 0;
  // ibv_alloc_dm(), ibv_free_dm(): nullptr and errno where it fails.
  virtual ibv_dm* Allocate(const VerbsDevice& device, uint64_t bytes) = 0;
  virtual void Free(ibv_dm* memory) = 0;
  // ibv_reg_dm_mr(), zero-based: a remote address is an offset.
  virtual ibv_mr* Register(const VerbsDevice& device, ibv_dm* memory, uint64_t bytes,
                           unsigned access) = 0;
  // ibv_memcpy_to_dm(): 0 or an errno.
  virtual int CopyTo(ibv_dm* memory, uint64_t offset, const void* from, size_t bytes) = 0;
};

// The library's own.
DeviceMemoryCalls* RealDeviceMemoryCalls();

}  // namespace pando

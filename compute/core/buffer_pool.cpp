#include "compute/core/buffer_pool.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {

BufferPool::~BufferPool() { PANDO_CHECK_EQ(leased_, 0u) << "a buffer outlives its session"; }

absl::Status BufferPool::Grow(int size_class) {
  const uint32_t unit = kBytesMin << size_class;
  const uint32_t slab = std::max(unit, kSlabBytes);
  PANDO_ASSIGN_OR_RETURN(LocalBuffer memory, endpoint_->AllocateBuffer(slab));
  for (uint32_t at = 0; at + unit <= slab; at += unit) {
    free_[size_class].push_back(memory.Slice(at, unit));
  }
  return absl::OkStatus();
}

}  // namespace pando

#include "compute/core/buffer_pool.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {

BufferLease::~BufferLease() {
  if (pool_ == nullptr) return;
  const int size_class = BufferPool::ClassOf(buffer_.bytes);
  buffer_.bytes = BufferPool::kBytesMin << size_class;
  pool_->free_[size_class].push_back(buffer_);
  --pool_->leased_;
}

ChainLease::ChainLease(BufferPool* pool) : pool_(pool) {
  if (pool->free_chains_.empty()) {
    chain_ = std::make_unique<Chain>();
  } else {
    chain_ = std::move(pool->free_chains_.back());
    pool->free_chains_.pop_back();
  }
  ++pool->leased_;
}

ChainLease::~ChainLease() {
  pool_->free_chains_.push_back(std::move(chain_));
  --pool_->leased_;
}

BufferPool::~BufferPool() { PANDO_CHECK_EQ(leased_, 0u) << "a buffer outlives its session"; }

int BufferPool::ClassOf(uint32_t bytes) {
  const uint32_t rounded = std::bit_ceil(std::max(bytes, kBytesMin));
  return std::countr_zero(rounded / kBytesMin);
}

absl::StatusOr<BufferLease> BufferPool::Lease(uint32_t bytes) {
  const int size_class = ClassOf(bytes);
  PANDO_CHECK_LT(size_class, kClasses);
  std::vector<LocalBuffer>& free = free_[size_class];
  if (free.empty()) {
    const uint32_t unit = kBytesMin << size_class;
    const uint32_t slab = std::max(unit, kSlabBytes);
    PANDO_ASSIGN_OR_RETURN(LocalBuffer memory, endpoint_->AllocateBuffer(slab));
    for (uint32_t at = 0; at + unit <= slab; at += unit) free.push_back(memory.Slice(at, unit));
  }
  LocalBuffer buffer = free.back();
  free.pop_back();
  ++leased_;
  buffer.bytes = bytes;
  return BufferLease(this, buffer);
}

}  // namespace pando

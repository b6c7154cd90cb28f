// Registered buffers and chains of one session, reused: an operation allocates nothing once the
// pool is warm.
//
// Not thread-safe (one session). Invariant: every lease is returned before the pool is destroyed
// (CHECKed).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/fabric.h"

namespace pando {

class BufferPool;

// Move-only lease of one registered, 64-byte aligned buffer.
class BufferLease {
 public:
  BufferLease() = default;
  BufferLease(BufferPool* pool, LocalBuffer buffer) : pool_(pool), buffer_(buffer) {}
  BufferLease(BufferLease&& other) noexcept { *this = std::move(other); }
  BufferLease& operator=(BufferLease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferLease();

  const LocalBuffer& buffer() const { return buffer_; }
  std::byte* data() const { return buffer_.data; }
  LocalBuffer Slice(uint32_t offset, uint32_t bytes) const { return buffer_.Slice(offset, bytes); }

 private:
  BufferPool* pool_ = nullptr;
  LocalBuffer buffer_;
};

// Move-only lease of a chain (a chain is 1.5 KiB: too large to construct for every operation).
class ChainLease {
 public:
  explicit ChainLease(BufferPool* pool);
  ~ChainLease();
  ChainLease(const ChainLease&) = delete;
  ChainLease& operator=(const ChainLease&) = delete;
  Chain& operator*() const { return *chain_; }
  Chain* operator->() const { return chain_.get(); }
  Chain* get() const { return chain_.get(); }

 private:
  BufferPool* const pool_;
  std::unique_ptr<Chain> chain_;
};

class BufferPool {
 public:
  explicit BufferPool(Endpoint* endpoint) : endpoint_(endpoint) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of at least `bytes`, cut to `bytes`. ResourceExhausted when no memory can be
  // registered.
  absl::StatusOr<BufferLease> Lease(uint32_t bytes) {
    const int size_class = ClassOf(bytes);
    PANDO_CHECK_LT(size_class, kClasses);
    std::vector<LocalBuffer>& free = free_[size_class];
    if (free.empty()) [[unlikely]] {
      PANDO_RETURN_IF_ERROR(Grow(size_class));
    }
    LocalBuffer buffer = free.back();
    free.pop_back();
    ++leased_;
    buffer.bytes = bytes;
    return BufferLease(this, buffer);
  }

 private:
  friend class BufferLease;
  friend class ChainLease;

  static constexpr int kClasses = 12;  // 64 B << class
  static constexpr uint32_t kBytesMin = 64;
  static constexpr uint32_t kSlabBytes = 64 << 10;
  static int ClassOf(uint32_t bytes) {
    return std::bit_width((std::max(bytes, kBytesMin) - 1) / kBytesMin);
  }
  // One more slab of buffers.
  absl::Status Grow(int size_class);

  Endpoint* const endpoint_;
  std::vector<LocalBuffer> free_[kClasses];
  std::vector<std::unique_ptr<Chain>> free_chains_;
  size_t leased_ = 0;
};

inline BufferLease::~BufferLease() {
  if (pool_ == nullptr) return;
  const int size_class = BufferPool::ClassOf(buffer_.bytes);
  buffer_.bytes = BufferPool::kBytesMin << size_class;
  pool_->free_[size_class].push_back(buffer_);
  --pool_->leased_;
}

inline ChainLease::ChainLease(BufferPool* pool) : pool_(pool) {
  ++pool->leased_;
  if (pool->free_chains_.empty()) [[unlikely]] {
    chain_ = std::make_unique<Chain>();
    return;
  }
  chain_ = std::move(pool->free_chains_.back());
  pool->free_chains_.pop_back();
}

inline ChainLease::~ChainLease() {
  pool_->free_chains_.push_back(std::move(chain_));
  --pool_->leased_;
}

}  // namespace pando

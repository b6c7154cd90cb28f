// The shared memory itself: a sealed memfd and its mapping. Move-only; the mapping stays in place
// for the object's life.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/fabric/chain.h"
#include "common/fabric/server.h"
#include "common/fabric/shm/shm_geometry.h"

namespace pando {

class ShmRegion {
 public:
  // A new, zero, sparse region. `huge_pages`: tried first, one log line where there are not enough.
  // `numa_node` -1: not bound; with huge pages all of them are taken at once, as only then it is
  // certain that this node has them. ResourceExhausted, InvalidArgument (no such node).
  static absl::StatusOr<ShmRegion> Create(const ShmGeometry& geometry, bool huge_pages,
                                          int numa_node);
  // Maps a region that came from a server. DataLoss: too small, or somebody could shrink it under
  // us.
  static absl::StatusOr<ShmRegion> Map(UniqueFd fd, const ShmGeometry& geometry);

  ShmRegion() = default;
  ShmRegion(ShmRegion&& other) noexcept;
  ShmRegion& operator=(ShmRegion&& other) noexcept;
  ~ShmRegion();

  int fd() const { return fd_.get(); }
  const ShmGeometry& geometry() const { return geometry_; }
  std::byte* space(MemorySpace space) const {
    return space == MemorySpace::kMain ? base_ : base_ + geometry_.locks_offset();
  }
  uint64_t space_bytes(MemorySpace space) const {
    return space == MemorySpace::kMain ? geometry_.main_bytes : geometry_.lock_bytes;
  }
  std::byte* intent(uint32_t slot) const { return base_ + geometry_.IntentOffset(slot); }
  ServerMemory memory() const;

 private:
  ShmRegion(UniqueFd fd, const ShmGeometry& geometry, std::byte* base)
      : fd_(std::move(fd)), geometry_(geometry), base_(base) {}
  static absl::StatusOr<ShmRegion> CreateWithPages(const ShmGeometry& geometry, bool huge_pages);
  static absl::StatusOr<ShmRegion> CreateOnNode(const ShmGeometry& geometry, bool huge_pages,
                                                int numa_node);

  UniqueFd fd_;
  ShmGeometry geometry_;
  std::byte* base_ = nullptr;
};

}  // namespace pando

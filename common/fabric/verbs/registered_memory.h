// Zeroed memory that the NIC may read and write: mapped pages of its own, registered for as long as
// they are mapped. Move-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_handles.h"

namespace pando {

struct RegisteredMemoryOptions {
  bool remote = false;      // other hosts' verbs may touch it
  bool huge_pages = false;  // where there are some, else normal pages and one log line
  int numa_node = -1;       // -1: wherever it is touched first
};

class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept { *this = std::move(other); }
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  ~RegisteredMemory();

  // ResourceExhausted: no memory, or more than may be locked. InvalidArgument: no such NUMA node.
  static absl::StatusOr<RegisteredMemory> Create(const VerbsDevice& device, uint64_t bytes,
                                                 const RegisteredMemoryOptions& options = {});

  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  uint32_t local_key() const { return region_->lkey; }
  uint32_t remote_key() const { return region_->rkey; }

 private:
  absl::Status Map(uint64_t bytes, bool huge_pages);

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t mapped_bytes_ = 0;
  MemoryRegionHandle region_;
};

}  // namespace pando

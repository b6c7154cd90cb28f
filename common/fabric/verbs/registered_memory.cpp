#include "common/fabric/verbs/registered_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/numa.h"
#include "common/base/status.h"
#include "common/base/units.h"

namespace pando {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kHugePageBytes = 2 << 20;

}  // namespace

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(region_, other.region_);
  return *this;
}

RegisteredMemory::~RegisteredMemory() {
  region_.reset();
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

absl::Status RegisteredMemory::Map(uint64_t bytes, bool huge_pages) {
  const uint64_t page = huge_pages ? kHugePageBytes : kPageBytes;
  const uint64_t mapped = (bytes + page - 1) / page * page;
  void* const base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | (huge_pages ? MAP_HUGETLB : 0), -1, 0);
  if (base == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mapping ", FormatBytes(bytes)));
  }
  // A child of fork() must not share the pages that the NIC writes to.
  madvise(base, mapped, MADV_DONTFORK);
  data_ = static_cast<std::byte*>(base);
  bytes_ = bytes;
  mapped_bytes_ = mapped;
  return absl::OkStatus();
}

absl::StatusOr<RegisteredMemory> RegisteredMemory::Create(const VerbsDevice& device, uint64_t bytes,
                                                          const RegisteredMemoryOptions& options) {
  RegisteredMemory memory;
  absl::Status mapped = memory.Map(bytes, options.huge_pages);
  if (options.huge_pages && !mapped.ok()) {
    PANDO_LOG(WARNING) << "no huge pages for " << FormatBytes(bytes)
                       << ", using normal pages: " << mapped << " (vm.nr_hugepages reserves some)";
    mapped = memory.Map(bytes, false);
    if (mapped.ok()) madvise(memory.data_, memory.mapped_bytes_, MADV_HUGEPAGE);
  }
  if (!mapped.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory of ", FormatBytes(bytes), ": ", mapped.message()));
  }
  if (options.numa_node >= 0) {
    PANDO_RETURN_IF_ERROR(BindToNumaNode(memory.data_, memory.mapped_bytes_, options.numa_node));
  }
  PANDO_ASSIGN_OR_RETURN(memory.region_, device.Register(memory.data_, bytes, options.remote));
  return memory;
}

}  // namespace pando

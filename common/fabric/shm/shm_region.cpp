#include "common/fabric/shm/shm_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bitset>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/numa.h"
#include "common/base/status.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace pando {
namespace {

absl::StatusOr<std::byte*> MapShared(int fd, uint64_t bytes, int extra_flags) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | extra_flags, fd, 0);
  if (base == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mapping ", bytes, " bytes of shared memory"));
  }
  return static_cast<std::byte*>(base);
}

}  // namespace

ShmRegion::ShmRegion(ShmRegion&& other) noexcept
    : fd_(std::move(other.fd_)),
      geometry_(other.geometry_),
      base_(std::exchange(other.base_, nullptr)) {}

ShmRegion& ShmRegion::operator=(ShmRegion&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(geometry_, other.geometry_);
  std::swap(base_, other.base_);
  return *this;
}

ShmRegion::~ShmRegion() {
  if (base_ != nullptr) munmap(base_, geometry_.total_bytes());
}

ServerMemory ShmRegion::memory() const {
  return {{space(MemorySpace::kMain), geometry_.main_bytes},
          {space(MemorySpace::kLocks), geometry_.lock_bytes}};
}

absl::StatusOr<ShmRegion> ShmRegion::CreateWithPages(const ShmGeometry& geometry, bool huge_pages) {
  const uint64_t bytes = geometry.total_bytes();
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0u);
  // Text that is printed to it would replace the superblock.
  UniqueFd fd = AboveStandard(UniqueFd(memfd_create("pando-memory", flags)));
  if (!fd) return absl::ErrnoToStatus(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("growing shared memory to ", bytes, " bytes"));
  }
  // Neither a client nor a bug of ours may cut the memory off under somebody's mapping.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "sealing shared memory");
  }
  // Huge pages are reserved by this mapping, so that a shortage shows here and not as a SIGBUS
  // later.
  PANDO_ASSIGN_OR_RETURN(std::byte * base,
                         MapShared(fd.get(), bytes, huge_pages ? 0 : MAP_NORESERVE));
  return ShmRegion(std::move(fd), geometry, base);
}

absl::StatusOr<ShmRegion> ShmRegion::CreateOnNode(const ShmGeometry& geometry, bool huge_pages,
                                                  int numa_node) {
  PANDO_ASSIGN_OR_RETURN(ShmRegion region, CreateWithPages(geometry, huge_pages));
  const uint64_t bytes = geometry.total_bytes();
  if (numa_node < 0) return region;
  PANDO_RETURN_IF_ERROR(BindToNumaNode(region.base_, bytes, numa_node));
  // Huge pages are reserved on the machine, not on a node of it: those that the node lacks would
  // be a SIGBUS when they are touched. (EINVAL: Linux before 5.14 cannot be asked.)
  if (huge_pages && madvise(region.base_, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return absl::ErrnoToStatus(errno, absl::StrCat("too few of them on NUMA node ", numa_node));
  }
  return region;
}

absl::StatusOr<ShmRegion> ShmRegion::Create(const ShmGeometry& geometry, bool huge_pages,
                                            int numa_node) {
  absl::StatusOr<ShmRegion> region = CreateOnNode(geometry, huge_pages, numa_node);
  if (huge_pages && !region.ok()) {
    PANDO_LOG(WARNING) << "no huge pages for " << geometry.total_bytes()
                       << " bytes, using normal pages: " << region.status()
                       << " (vm.nr_hugepages reserves some)";
    region = CreateOnNode(geometry, false, numa_node);
    // Where the kernel gives shared memory transparent huge pages on advice, take them.
    if (region.ok()) madvise(region->base_, geometry.total_bytes(), MADV_HUGEPAGE);
  }
  if (region.ok() || absl::IsInvalidArgument(region.status())) return region;
  return absl::ResourceExhaustedError(absl::StrCat("no shared memory of ", geometry.total_bytes(),
                                                   " bytes: ", region.status().message()));
}

absl::StatusOr<ShmRegion> ShmRegion::Map(UniqueFd fd, const ShmGeometry& geometry) {
  struct stat file;
  if (fstat(fd.get(), &file) != 0) return absl::ErrnoToStatus(errno, "fstat of shared memory");
  if (static_cast<uint64_t>(file.st_size) < geometry.total_bytes()) {
    return absl::DataLossError(
        absl::StrCat("shared memory has ", file.st_size, " bytes, not ", geometry.total_bytes()));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::DataLossError("shared memory is not sealed against shrinking");
  }
  PANDO_ASSIGN_OR_RETURN(std::byte * base,
                         MapShared(fd.get(), geometry.total_bytes(), MAP_NORESERVE));
  return ShmRegion(std::move(fd), geometry, base);
}

}  // namespace pando

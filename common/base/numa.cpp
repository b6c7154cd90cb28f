#include "common/base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace pando {
namespace {

constexpr int kNumaNodesMax = 1024;

}  // namespace

// The raw call: binding a mapping is all that is needed of libnuma here.
absl::Status BindToNumaNode(std::byte* base, uint64_t bytes, int node) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  if (node >= kNumaNodesMax) {
    return absl::InvalidArgumentError(absl::StrCat("there is no NUMA node ", node));
  }
  unsigned long mask[kNumaNodesMax / kBits] = {};
  mask[node / kBits] |= 1ul << (node % kBits);
  if (syscall(SYS_mbind, base, bytes, MPOL_BIND, mask, kNumaNodesMax, 0) == 0) return {};
  const int error = errno;
  if (error == ENOSYS || error == EPERM) {
    PANDO_LOG(WARNING) << "cannot bind memory to NUMA node " << node
                       << " here: pages lie wherever they are touched first";
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("binding memory to NUMA node ", node, ": ",
                                                 absl::ErrnoToStatus(error, "mbind").ToString()));
}

}  // namespace pando

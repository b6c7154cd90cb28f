// Runs one LockCase on a cluster of its own, in virtual time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "bench/figures/case.h"
#include "common/fabric/nic/nic_profile.h"

namespace pando::bench {

// InvalidArgument: options that the lock benchmark refuses. Internal: a lock was held twice.
absl::StatusOr<CaseResult> RunLockCase(const LockCase& lock_case,
                                       const std::shared_ptr<const NicProfile>& nic);

}  // namespace pando::bench

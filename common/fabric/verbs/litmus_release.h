// The litmus test of what a lock is for: its next holder sees what was written before its release.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/fabric/verbs/litmus.h"
#include "common/fabric/verbs/lock_space.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {

// Blocks for options.test_ms. Unavailable: a verb failed.
absl::StatusOr<ReleaseLitmus> TestRelease(const std::shared_ptr<VerbsDevice>& device,
                                          const LockSpace& lock, ReleaseVerb release,
                                          const LitmusOptions& options);

}  // namespace pando

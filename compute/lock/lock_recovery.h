// Rule L5 if the fabric recovers from a failed chain (common/fabric/recoverable.h): the lock is
// kept until the server has confirmed that nothing of the chain is in flight any more, then freed.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/lock/hocl.h"

namespace pando {

// After a chain that failed with `why`, which wrote under the target's word or was to take it.
// Ok: the word is not this client's any more, and what the chain left is the next holder's to look
// after, as after a death. Else the fabric did not get over it; IsRecoverable(): in time. An
// operation's deadline does not end this, as nobody else would free the word; lock_recovery_ns
// does. Nobody else of this client takes the word meanwhile.
absl::Status ReleaseOnceQuiet(OperationContext& context, const LockTarget& target,
                              uint64_t own_word, const TimeConstants& times,
                              const absl::Status& why);

// FailedPrecondition: a word that this client held is not its own any more (rule L4).
absl::Status LostLockError();

}  // namespace pando

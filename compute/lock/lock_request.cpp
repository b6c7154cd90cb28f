#include "compute/lock/lock_request.h"

#include "common/base/check.h"

namespace pando {
namespace {

using State = LockRequest::State;
constexpr int kStates = static_cast<int>(State::kStates);

// kAllowed[from][to]
constexpr bool kAllowed[kStates][kStates] = {
    //            Queued Local  Global Exec   Done   Abandoned
    /* Queued */ {false, true, true, true, false, true},
    /* Local  */ {false, false, false, false, false, false},
    /* Global */ {false, false, false, false, false, false},
    /* Exec   */ {true, false, false, false, true, true},
    /* Done   */ {false, false, false, false, false, false},
    /* Aband. */ {false, false, false, false, false, false},
};

}  // namespace

void LockRequest::MoveTo(State next) {
  PANDO_CHECK(kAllowed[static_cast<int>(state_)][static_cast<int>(next)])
      << "lock request from state " << static_cast<int>(state_) << " to " << static_cast<int>(next);
  state_ = next;
}

}  // namespace pando

// How long an operation on owned trees may wait. That it ends somehow, and that its answer can be
// explained, is not enough: whoever missed a turn or a wake-up waits to its deadline, and says then
// that nobody knows what it has done, which is an answer.
//
// The bound counts from when nothing was in the way any more: nobody was stopped, no link was cut,
// and each death had been seen. What follows a death may take its time from then on:
//   - An owner that has ended is fenced when its lease has run out, and then its serving lease
//     (rule D2); so is a claimant that ended meanwhile (rule D1).
//   - A member looks around once a second (rule O9): what it left undone is done then, and what it
//     is asked for meanwhile is done at once.
//   - All of that three times: who is asked may just have looked, and who takes over what others
//     have left may be cut off on the way.
//   - A call that is lost is sent again after an attempt's time. Where one in five is, several in a
//     row are, and a recovery makes dozens of them.
//   - A queue pair that has broken takes its time to be there again.
//   - Packets come late, one after the other of those that are waited for.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "bench/sim/sim_run_state.h"

namespace pando::sim_run {
namespace {

constexpr int64_t kLookAroundNs = kSecondNs;  // compute/owner/member_loops.cpp
constexpr int kTurns = 3;
constexpr int kLostInARow = 25;
constexpr int kBreaksInARow = 20;
constexpr int kLateInARow = 20;

}  // namespace

int64_t SimRun::LongestWaitNs() const {
  const sim::SimOptions& sim = options_.sim;
  const bool calls_are_lost = sim.call_request_loss + sim.call_reply_loss > 0;
  const int64_t leases_ns =
      options_.lease_ns +
      (options_.serving_lease_ns > 0 ? options_.serving_lease_ns : options_.lease_ns / 2);
  const int64_t calls_ns = (calls_are_lost ? kLostInARow : 1) * options_.times.call_attempt_ns;
  const int64_t back_ns = options_.break_probability > 0 || options_.owner_faults.member_cuts > 0
                              ? sim.break_seen_ns + sim.break_late_ns + sim.reopen_ns +
                                    options_.times.lock_recovery_poll_ns
                              : 0;
  return kTurns * (kLookAroundNs + leases_ns) + calls_ns + kBreaksInARow * back_ns +
         kLateInARow * sim.long_delay_ns;
}

bool SimRun::MayStillWait(const history::Operation& operation) const {
  return options_.tree.mode == TreeOptions::Mode::kOwned && trouble_ns_ > operation.call_ns &&
         NowNs() - trouble_ns_ <= LongestWaitNs();
}

void SimRun::CheckWait(const absl::Status& status, const history::Operation& operation, int waits) {
  if (options_.tree.mode != TreeOptions::Mode::kOwned) return;
  const int64_t waited_ns = NowNs() - std::max(operation.call_ns, trouble_ns_);
  const int64_t longest_ns = waits * LongestWaitNs();
  if (waits == 1) result_.longest_wait_ns = std::max(result_.longest_wait_ns, waited_ns);
  if (waited_ns <= longest_ns) return;
  Problem(absl::StrCat("client ", operation.client, ": ",
                       history::OperationKindName(operation.kind), " ",
                       history::ToHex(operation.key), " has waited for ",
                       waited_ns / kMillisecondNs, " ms with nothing in its way, which may take ",
                       longest_ns / kMillisecondNs, " ms at most: ", status.ToString()));
}

}  // namespace pando::sim_run

// Ranges of owned trees that are divided and given to others under load (rules O10, O11).
#include <string>
#include <vector>

#include "bench/sim/sim_run_state.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/member.h"

namespace pando::sim_run {
namespace {

// A client that moves a range waits so long to hear of it, and goes on.
constexpr int64_t kMoveNs = 20 * kMillisecondNs;
constexpr double kDivide = 0.3;  // of the moves
// Within that a move that nobody holds up is over.
constexpr uint64_t kMoveUsualNs = 60 * kMicrosecondNs;

}  // namespace

void SimRun::MoveSomething(ComputeServer& server, Session& session, const TreeHandle& handle) {
  Member* const member = ImplOf(*server.client).member();
  OwnedTree* const tree = ImplOf(*handle.tree).routed().owned();
  const std::vector<OwnRange*> own = tree->OwnRanges();
  if (own.empty()) return;
  SessionContext& context = ImplOf(session).context();
  if (options_.move_pauses > 0 && move_random_.Chance(options_.move_pauses)) {
    StopSoon(move_random_.Chance(0.7) ? &server : Choose(&move_random_));
  }
  OperationContext moving(&context, context.NowNs() + kMoveNs);
  if (move_random_.Chance(kDivide)) {
    if (member->Split(moving, tree, workload_.AnyKey(&move_random_)).ok()) ++result_.splits;
    return;
  }
  const std::string key = own[move_random_.Uniform(own.size())]->low;
  ComputeServer* const to = Choose(&move_random_);
  // One that is set up just now has no client yet.
  if (to == nullptr || to == &server || to->client == nullptr) return;
  const Member* const taker = ImplOf(*to->client).member();
  if (taker == nullptr) return;
  // It may have ended by then, which is nothing to the run.
  if (member->Give(moving, tree, key, taker->self()).ok()) ++result_.moves;
}

void SimRun::StopSoon(ComputeServer* server) {
  if (server == nullptr || server->fabric == nullptr) return;
  const auto longest_ns = static_cast<uint64_t>(options_.pause_max_ns);
  const auto for_ns = 1 + static_cast<int64_t>(move_random_.Uniform(longest_ns));
  world_.At(NowNs() + static_cast<int64_t>(move_random_.Uniform(kMoveUsualNs)),
            [this, for_ns, stopped = std::weak_ptr<Fabric>(server->fabric)] {
              const auto there = stopped.lock();
              if (there == nullptr) return;
              ++result_.stopped_moves;
              Stop(there, for_ns);
            });
}

}  // namespace pando::sim_run

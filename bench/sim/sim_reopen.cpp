// What is closed and opened again under load: sessions, handles to trees, whole clients, and trees
// that are dropped and created again.
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/coverage.h"
#include "bench/sim/sim_run_state.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"

namespace pando::sim_run {
namespace {

constexpr int kOpensMax = 10;
constexpr int64_t kOpenAgainNs = 100 * kMicrosecondNs;

}  // namespace

TreeLife* SimRun::LifeOf(size_t slot, const CatalogEntry& entry) {
  for (const auto& life : lives_) {
    if (life->entry.tree_id == entry.tree_id) return life.get();
  }
  const bool is_first = lives_.size() < static_cast<size_t>(options_.trees);
  auto& life = lives_.emplace_back(std::make_unique<TreeLife>());
  life->slot = slot;
  life->entry = entry;
  life->load_pending = options_.bulk_loads && !is_first;
  life->opened_ns = NowNs();
  return life.get();
}

absl::StatusOr<TreeHandle> SimRun::OpenSlot(ComputeServer& server, size_t slot) {
  const std::string name = slot == 0 ? "simulated" : absl::StrCat("simulated_", slot);
  absl::StatusOr<std::unique_ptr<Tree>> tree = absl::UnknownError("");
  for (int attempt = 1;; ++attempt) {
    tree = server.client->CreateTree(name, ShapeOf(slot));
    // Somebody's drop has been to some servers only, and is done again.
    const bool is_half_dropped = absl::IsNotFound(tree.status()) && TreesAreDropped();
    const bool is_lost = absl::IsDataLoss(tree.status()) && result_.servers_restarted > 0;
    if ((!is_half_dropped && !is_lost) || attempt == kOpensMax) break;
    for (const auto& life : lives_) life->dropped |= is_lost && life->slot == slot;
    if (server.client->DropTree(name).ok() && is_lost) ++result_.lost_trees_dropped;
  }
  PANDO_RETURN_IF_ERROR(tree.status());
  TreeHandle handle;
  handle.tree = *std::move(tree);
  handle.life = LifeOf(slot, ImplOf(*handle.tree).context().entry);
  return handle;
}

void SimRun::MaybeReopen() {
  if (!reopens_.Take(begun_) || !CanConnect()) return;
  Random& random = reopens_.random();
  ComputeServer* const server = Choose(&random);
  if (server == nullptr) return;
  Reopening reopening;
  const uint64_t choice = random.Uniform(options_.reopen_trees ? 3 : 2);
  if (choice == 0) {
    reopening.index = random.Uniform(server->sessions.size());
    server->sessions[reopening.index]->halting = true;
  } else if (choice == 1) {
    reopening.closing = Closing::kEverything;
    server->Halt();
  } else {
    return BeginTree(*server, random.Uniform(server->handles.size()));
  }
  server->reopening = std::move(reopening);
}

void SimRun::BeginTree(ComputeServer& server, size_t slot) {
  Reopening& reopening = server.reopening.emplace();
  reopening.closing = Closing::kTree;
  reopening.index = slot;
  std::swap(reopening.handle, server.handles[slot]);
  // A session that has repaired the tree keeps it open until it is called from outside.
  server.Halt();
}

void SimRun::MaybeDrop() {
  if (!drops_.Take(begun_) || !CanConnect()) return;
  ComputeServer* const server = Choose(&drops_.random());
  if (server == nullptr) return;
  const TreeHandle& handle = server->handles[drops_.random().Uniform(server->handles.size())];
  if (handle.life == nullptr || handle.life->dropped) return;
  handle.life->dropped = true;
  const std::string name = handle.tree->name();
  // Of a drop that fails nobody knows how far it has come: OpenSlot() ends it.
  if (server->client->DropTree(name).ok()) ++result_.trees_dropped;
}

void SimRun::StepReopenings() {
  for (size_t i = 0; i < open_.size(); ++i) {
    ComputeServer& server = *open_[i];
    if (!IsAlive(server)) continue;
    if (server.reopening.has_value()) {
      StepReopening(server);
      continue;
    }
    const size_t refused = std::exchange(server.refused_slot, SIZE_MAX);
    if (refused != SIZE_MAX && !server.gave_up && CanConnect() &&
        server.handles[refused].tree != nullptr) {
      BeginTree(server, refused);
      continue;
    }
    // A client with a handle to a dropped tree changes to its successor, some time later.
    if (!TreesAreDropped() || server.gave_up || !CanConnect()) continue;
    for (size_t slot = 0; slot < server.handles.size(); ++slot) {
      const TreeLife* const life = server.handles[slot].life;
      if (life == nullptr || !life->dropped || !drops_.random().Chance(0.001)) continue;
      BeginTree(server, slot);
      break;
    }
  }
}

void SimRun::StepReopening(ComputeServer& server) {
  Reopening& reopening = *server.reopening;
  if (!reopening.is_closed) {
    switch (reopening.closing) {
      case Closing::kSession:
        if (server.sessions[reopening.index]->running > 0) return;
        server.sessions[reopening.index]->session.reset();
        break;
      case Closing::kTree:
        if (server.running() > 0) return;
        for (const auto& session : server.sessions) session->session->Run();
        PANDO_CHECK_EQ(reopening.handle.tree.use_count(), 1);
        reopening.handle.tree.reset();
        if (CanConnect()) break;
        // Its records may have had no way to leaves: others get them once the client is closed.
        reopening.closing = Closing::kEverything;
        return StepReopening(server);
      case Closing::kEverything:
        if (server.running() > 0) return;
        if (server.gave_up) break;  // Reconnect() sees to it
        AddStats(server.client->Stats(), &result_.stats);
        server.Close();
        NoteTrouble(NowNs());
        server.fabric.reset();
        break;
    }
    if (server.closed) return Reopen(server);
    reopening.is_closed = true;
  }
  if (NowNs() >= reopening.not_before) Reopen(server);
}

void SimRun::Reopen(ComputeServer& server) {
  if (server.closed) {
    if (workload_.is_over()) return;
    if (!CanConnect()) {
      connects_owed_ += options_.server_restarts > 0 ? 1 : 0;
      return;
    }
    ++result_.clients_replaced;
    const uint64_t lives = Lives();
    const absl::Status joined = AddComputeServer();
    if (JoinsLater(joined, lives) || FindsNoRoomYet(joined)) {
      ++connects_owed_;  // Reconnect() sees to it
      return;
    }
    if (!joined.ok()) return Problem(absl::StrCat("another client: ", joined.ToString()));
    return SpawnClients(*servers_.back());
  }
  Reopening& reopening = *server.reopening;
  absl::Status opened;
  if (reopening.closing == Closing::kSession) {
    SimSession& session = *server.sessions[reopening.index];
    absl::StatusOr<std::unique_ptr<Session>> again = server.client->NewSession();
    opened = again.status();
    if (again.ok()) {
      session.session = *std::move(again);
      session.halting = false;
      ++result_.sessions_reopened;
      SpawnClients(server, session);
    }
  } else if (reopening.closing == Closing::kTree) {
    absl::StatusOr<TreeHandle> again = OpenSlot(server, reopening.index);
    opened = again.status();
    if (again.ok()) {
      server.handles[reopening.index] = *std::move(again);
      ++result_.trees_reopened;
      for (const auto& session : server.sessions) session->halting = false;
      SpawnClients(server);
    }
  }
  if (opened.ok()) return server.reopening.reset();
  // Fenced meanwhile, or calls were lost; where nobody gets in any more its clients go without.
  reopening.not_before = NowNs() + kOpenAgainNs;
  reopening.is_full = absl::IsResourceExhausted(opened);
  const bool may_fail = options_.lease_ns > 0 || TreesAreDropped() || !CanConnect();
  if (!may_fail) return Problem(absl::StrCat("opening again: ", opened.ToString()));
  if (!server.client->fenced() && (CanConnect() || restarts_due_ > 0)) return;
  server.gave_up = server.gave_up || server.client->fenced();
  server.Halt();
  server.reopening.reset();
}

}  // namespace pando::sim_run

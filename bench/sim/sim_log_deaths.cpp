// A member dies, and the memory server with its log in the same moment. What it had acknowledged
// and not brought to leaves may be lost then, and nothing else (rules W6, D6).
//
// Until somebody accepts the loss nobody may be told anything of those keys that contradicts what
// was acknowledged: the history's checker sees to that. Some time later all clients stop for a
// moment, a member accepts the loss, and each key that it is told of is read. Then the history says
// two things more of the key, which are the whole of what may be lost:
//   - what was found is what the key had at some moment between the last flush of its owner that
//     had ended well and the owner's death;
//   - it has that again from the acceptance on, or is overwritten at once.
// A key whose leaf was on the same memory server is Unavailable. One whose leaf is below a node on
// it may be found by some, who know another way. Of what nobody can read then nothing is said from
// then on, though later somebody may: ways change with the nodes above.
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/ask_server.h"
#include "bench/sim/sim_run_state.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "pando/losses.h"

namespace pando::sim_run {
namespace {

using history::Operation;
using history::OperationKind;

// Between the two deaths, whichever is the first.
constexpr std::array<uint64_t, 4> kApartNs = {1, 20 * kMicrosecondNs, kMillisecondNs, kSecondNs};
// From the first refusal after both until the loss is accepted, or that is tried again.
constexpr uint64_t kAcceptWithinNs = 300 * kMicrosecondNs;
constexpr int kAcceptsMax = 30;
// Of a key with more operations than these the checker wants to see each value stored once.
constexpr std::ptrdiff_t kOperationsMany = 100;

bool Covers(const LossInfo& loss, const std::string& key) {
  return loss.low <= key && (loss.high.empty() || key < loss.high);
}

bool IsHot(const std::vector<Operation>& operations, const std::string& key) {
  return std::count_if(operations.begin(), operations.end(), [&](const Operation& o) {
           return o.kind != OperationKind::kScan && o.key == key;
         }) > kOperationsMany;
}

}  // namespace

void SimRun::MaybeKillOwnerAndLog() {
  if (!log_deaths_.Take(begun_) || lost_.has_value()) return;
  Random& random = log_deaths_.random();
  std::vector<std::pair<ComputeServer*, size_t>> pairs;
  size_t alive = 0;
  for (ComputeServer* const server : open_) {
    if (!IsAlive(*server)) continue;
    ++alive;
    // The first one has the catalog.
    for (size_t i = 1; i < memory_servers_.size(); ++i) {
      if (AskHasLog(memory_servers_[i].get(), IdentityOf(*server))) pairs.emplace_back(server, i);
    }
  }
  if (alive < 2 || pairs.empty()) return;
  const auto [owner, log] = pairs[random.Uniform(pairs.size())];
  const auto apart_ns =
      static_cast<int64_t>(random.Uniform(kApartNs[random.Uniform(kApartNs.size())]));
  const bool owner_first = random.Chance(0.5);
  const auto kill_owner = [this](const Fabric& fabric) {
    world_.KillFabric(fabric);
    lost_->died_ns = Stamp();
  };
  lost_.emplace();
  lost_->owner = owner;
  ++result_.owner_and_log_deaths;
  owner_first ? kill_owner(*owner->fabric) : KillServer(log);
  world_.At(NowNs() + apart_ns, [this, owner_first, kill_owner, log = log,
                                 dies = std::weak_ptr<Fabric>(owner->fabric)] {
    const auto there = dies.lock();
    if (there == nullptr || !Unfinished()) return;  // it has left, or the run is over
    owner_first ? KillServer(log) : kill_owner(*there);
    lost_->are_both_dead = true;
    lost_->refused = result_.refused;
    NoteTrouble(NowNs() + options_.sim.death_seen_ns + options_.sim.kill_late_ns);
  });
  NoteTrouble(NowNs() + apart_ns + options_.sim.death_seen_ns + options_.sim.kill_late_ns);
}

bool SimRun::IsAtRest() const {
  return std::none_of(open_.begin(), open_.end(), [this](const ComputeServer* server) {
    return IsAlive(*server) && server->at_work > 0;
  });
}

void SimRun::AcceptSoon() {
  lost_->accept_at_ns =
      NowNs() + static_cast<int64_t>(log_deaths_.random().Uniform(kAcceptWithinNs));
}

void SimRun::MaybeAcceptLoss() {
  if (!lost_.has_value() || !lost_->are_both_dead || lost_->is_reading) return;
  if (lost_->accept_at_ns == kNeverNs && result_.refused > lost_->refused) AcceptSoon();
  if (NowNs() < lost_->accept_at_ns || workload_.is_over()) return;
  lost_->is_quiet = true;
  if (!IsAtRest()) return;
  ComputeServer* const server = Choose(&log_deaths_.random());
  if (server == nullptr) return;
  std::vector<LossInfo> losses;
  const absl::Status accepted = AcceptLoss(*server->client, {}, &losses);
  std::move(losses.begin(), losses.end(), std::back_inserter(lost_->losses));
  // Nothing: it is not known yet that they have ended; or nothing was lost.
  if (!accepted.ok() || lost_->losses.empty()) {
    const bool again = ++lost_->attempts < kAcceptsMax;
    if (!accepted.ok() && !again) {
      Problem(absl::StrCat("accepting a loss: ", accepted.ToString()));
    }
    lost_->is_quiet = !lost_->losses.empty();
    if (again) return AcceptSoon();
    lost_.reset();
    return;
  }
  lost_->is_reading = true;
  for (const LossInfo& loss : lost_->losses) CollectLost(*server, loss);
  lost_->readers = open_;
  std::iter_swap(lost_->readers.rbegin(),
                 std::find(lost_->readers.begin(), lost_->readers.end(), server));
  ReadLost();
}

void SimRun::CollectLost(const ComputeServer& server, const LossInfo& loss) {
  ++result_.ranges_lost;
  for (size_t slot = 0; slot < server.handles.size(); ++slot) {
    const TreeHandle handle = server.handles[slot];
    if (handle.tree->name() != loss.tree) continue;
    const auto flushed = lost_->owner->flushed_ns.find(slot);
    const int64_t since_ns = flushed == lost_->owner->flushed_ns.end() ? 0 : flushed->second;
    std::set<std::string> keys;
    for (const Operation& o : handle.life->operations) {
      // A scan that failed has become a get, perhaps of no key.
      const bool has_key = o.kind != OperationKind::kScan && !o.key.empty();
      if (has_key && Covers(loss, o.key)) keys.insert(o.key);
    }
    for (const std::string& key : keys) {
      lost_->unread.push_back({slot, handle.life, key, since_ns});
    }
  }
}

void SimRun::ReadLost() {
  if (lost_->unread.empty() || lost_->readers.empty()) {
    for (const LostKey& lost : lost_->unread) lost.life->untold[lost.key] = Stamp();
    NoteTrouble(NowNs());
    lost_->is_quiet = false;
    return;
  }
  ComputeServer* const server = lost_->readers.back();
  lost_->readers.pop_back();
  if (!IsFree(*server)) return ReadLost();
  SimSession& place = *server->sessions.front();
  ++place.running;
  place.session->Spawn([this, server, &place, &session = *place.session] {
    std::erase_if(lost_->unread, [&](const LostKey& lost) {
      const TreeHandle handle = server->handles[lost.slot];
      return handle.life == lost.life && NoteLost(session, handle, lost);
    });
    ReadLost();
    --place.running;
  });
  ImplOf(*place.session).scheduler().endpoint().Wake();
}

Operation& SimRun::AddLost(const LostKey& lost, OperationKind kind) {
  Operation& o = lost.life->operations.emplace_back();
  o.client = -1;
  o.kind = kind;
  o.key = lost.key;
  return o;
}

// Or by a scan: its reader looks for the leaf itself, where a get has the owner do that.
absl::StatusOr<std::string> SimRun::GetOrScan(Session& session, const Tree& tree,
                                              const std::string& key) {
  absl::StatusOr<std::string> got = session.Get(tree, key);
  if (!absl::IsUnavailable(got.status())) return got;
  std::vector<KeyValue> rows;
  const CursorOptions itself = {.from = key, .to = key, .to_inclusive = true};
  if (!ImplOf(session).Scan(tree, itself, &rows).ok()) return got;
  if (rows.empty()) return absl::NotFoundError("not there");
  return rows.front().value;
}

bool SimRun::NoteLost(Session& session, const TreeHandle& handle, const LostKey& lost) {
  const absl::StatusOr<std::string> got = GetOrScan(session, *handle.tree, lost.key);
  const bool found = got.ok();
  if (!found && !absl::IsNotFound(got.status())) {
    // Or its tree is lost, with the next life of the server, or was dropped for that.
    const bool is_lost = absl::IsDataLoss(got.status()) || absl::IsFailedPrecondition(got.status());
    if (is_lost && result_.servers_restarted > 0) return false;
    if (absl::IsUnavailable(got.status())) return false;
    Problem(absl::StrCat("a key whose owner and log are lost: ", got.status().ToString()));
    return true;
  }
  if (options_.owner_faults.losses_unsaid) return true;
  const std::string value = found ? *got : std::string();
  Operation& before = AddLost(lost, OperationKind::kGet);
  before.found = found;
  before.value = value;
  before.call_ns = lost.since_ns;
  before.return_ns = lost_->died_ns;
  const auto step = [&](OperationKind kind, const std::string& with, bool is_known = true) {
    Operation& o = AddLost(lost, kind);
    o.found = kind == OperationKind::kDelete;
    o.value = with;
    o.call_ns = Stamp();
    if (is_known) o.return_ns = Stamp();
  };
  const std::string other = workload_.NewValue();
  if (!found) {
    step(OperationKind::kPut, other);
    step(OperationKind::kDelete, "");
  } else if (!IsHot(lost.life->operations, lost.key)) {
    step(OperationKind::kPut, value);
  } else if (session.Put(*handle.tree, lost.key, other).ok()) {
    step(OperationKind::kPut, other);  // while nobody else asks
  } else {
    step(OperationKind::kPut, value);
    step(OperationKind::kPut, other, /*is_known=*/false);
  }
  return true;
}

}  // namespace pando::sim_run

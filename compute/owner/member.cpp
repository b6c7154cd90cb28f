#include "compute/owner/member.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/owner/find_extent.h"
#include "compute/owner/log_move.h"
#include "compute/owner/turnstile.h"

namespace pando {

Member::Member(Parts* parts)
    : thread_(std::move(parts->session)),
      session_(&thread_.session()),
      on_session_end_(std::move(parts->on_session_end)),
      event_driven_(parts->event_driven),
      control_(*parts->control),
      members_(*parts->members),
      catalog_server_(parts->catalog_server),
      cluster_tree_(*parts->cluster_tree),
      is_gone_(std::move(parts->is_gone)),
      on_fenced_(std::move(parts->on_fenced)),
      packet_bytes_(parts->packet_bytes),
      times_(parts->times),
      options_(parts->options),
      map_(parts->cluster_tree),
      stamps_(parts->control->incarnation()),
      lease_(parts->serving_lease_ns, parts->lease_clock),
      desk_(this, std::move(parts->find_function)),
      log_room_(LogRoomParts()),
      turnstile_(std::make_unique<Turnstile>(&session_->scheduler())),
      flushing_(std::make_unique<Turnstile>(&session_->scheduler())),
      retiring_(std::make_unique<Turnstile>(&session_->scheduler())),
      team_(std::make_unique<FlushTeam>(std::move(parts->flush_sessions))) {
  log_move_ = std::make_unique<LogMove>(
      LogMove::Parts{
          .self = self(),
          .map = &map_,
          .stamps = &stamps_,
          .sources =
              [this] {
                std::vector<LogMove::Source> sources;
                for (const auto& [tree, range] : Places()) {
                  sources.push_back({tree->id(), range->records});
                }
                if (adopted_.has_value()) sources.push_back({adopted_->tree_id, adopted_->records});
                return sources;
              },
          .kept_lsn = [this] { return kept_lsn_; },
          .find_extent =
              [this](OperationContext& context, uint64_t bytes, ServerId without, ServerId last) {
                std::vector<ServerId> servers = members_.Ids();
                std::erase(servers, without);
                return ExtentSearch(&control_, std::move(servers)).Find(context, bytes, last);
              }},
      &scheduler());
}

absl::Status Member::StartThreads() {
  if (event_driven_) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(service_->Start());
  PANDO_RETURN_IF_ERROR(team_->Start());
  return thread_.Start("pando-member");
}

absl::StatusOr<std::unique_ptr<Member>> Member::Create(Parts parts) {
  std::unique_ptr<Member> member(new Member(&parts));
  PANDO_RETURN_IF_ERROR(member->OpenPort(&parts));
  return member;
}

absl::Status Member::OpenPort(Parts* parts) {
  const PeerIdentity me = {self().compute_server, self().incarnation};
  for (const auto& session : parts->service_sessions) service_sessions_.push_back(session.get());
  service_ = std::make_unique<PeerService>(
      PeerService::Options{.identity = me,
                           .cheap_messages = parts->fabric->capabilities().cheap_messages,
                           .event_driven = event_driven_},
      std::move(parts->service_sessions), &desk_);
  // Before anybody can call: whoever does is answered.
  PANDO_RETURN_IF_ERROR(StartThreads());
  auto port = parts->fabric->OpenPeers(
      {.identity = me, .acceptor = service_.get(), .address = parts->service_address});
  // Without links others wait until this member leaves.
  if (absl::IsUnimplemented(port.status()) && parts->service_address.empty()) {
    return absl::OkStatus();
  }
  PANDO_RETURN_IF_ERROR(port.status());
  if ((*port)->address().size() > kServiceAddressBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the service's address '", (*port)->address(),
                                                   "' is longer than ", kServiceAddressBytesMax,
                                                   " bytes"));
  }
  port_ = *std::move(port);
  address_ = port_->address();
  peers_ = std::make_unique<PeerClient>(port_.get(), me, &session_->endpoint().clock(),
                                        parts->fabric->capabilities().cheap_messages);
  scheduler().Post([this] { StartLoop(&Member::LinkLoop); });
  return absl::OkStatus();
}

Member::~Member() {
  // Whom the service asks answers, or has no more time, soon.
  asks_end_.store(true);
  if (event_driven_) {
    scheduler().RunUntil([this] { return asking_.load() == 0; });
  } else {
    for (int asking = asking_.load(); asking > 0; asking = asking_.load()) asking_.wait(asking);
  }
  // Sessions that execute requests of peers may need the loops.
  port_.reset();
  for (const SessionContext* const session : service_sessions_) on_session_end_(session);
  service_.reset();
  Stop();
  thread_.End();
  for (const SessionContext* const session : team_->sessions()) on_session_end_(session);
  team_.reset();
  loops_.clear();
  peers_.reset();
  log_.reset();
  on_session_end_(session_);
}

Member::Sessions Member::sessions() const {
  Sessions sessions = {.flushes = team_->sessions(), .service = service_sessions_};
  sessions.flushes.push_back(session_);
  return sessions;
}

void Member::Stop() {
  stopping_.store(true, std::memory_order_release);
  std::lock_guard lock(mutex_);
  for (const auto& parking : loops_) parking->Unpark();
}

bool Member::Pause(Parking* parking, int64_t until_ns) {
  if (!stopping_.load(std::memory_order_acquire)) parking->ParkUntil(until_ns);
  return !stopping_.load(std::memory_order_acquire);
}

void Member::StartLoop(void (Member::*loop)(Parking*)) {
  Parking* parking;
  {
    std::lock_guard lock(mutex_);
    parking = loops_.emplace_back(std::make_unique<Parking>(&scheduler())).get();
  }
  scheduler().Spawn([this, loop, parking] { (this->*loop)(parking); });
}

// --- Jobs: coroutines of the service session that somebody waits for.

absl::Status Member::RunBlocking(int64_t deadline_ns, const Job& job) {
  PANDO_CHECK(Scheduler::Current() == nullptr)
      << "owned trees are opened, closed and flushed outside a session's tasks";
  struct Result {
    std::atomic<bool> done{false};
    absl::Status status;
  };
  const auto result = std::make_shared<Result>();
  const auto run = [this, &job, deadline_ns, result] {
    OperationContext context(session_, deadline_ns);
    result->status = job(context);
    result->done.store(true, std::memory_order_release);
    result->done.notify_all();
  };
  if (!scheduler().Post(run)) return absl::FailedPreconditionError("the client is being closed");
  if (event_driven_) {
    scheduler().RunUntil([&] { return result->done.load(std::memory_order_acquire); });
  } else {
    result->done.wait(false, std::memory_order_acquire);
  }
  return result->status;
}

absl::Status Member::RunForCaller(OperationContext& caller, Job job, int64_t longest_ns,
                                  const std::function<bool()>& is_enough) {
  struct Call {
    explicit Call(Scheduler* scheduler) : parking(scheduler) {}
    Parking parking;
    std::atomic<bool> done{false};
    absl::Status status;
  };
  const auto call = std::make_shared<Call>(&caller.session.scheduler());
  const bool posted = scheduler().Post(
      [this, call, job = std::move(job), deadline_ns = caller.deadline_ns(), longest_ns] {
        // What it does for this caller others may wait for as well, so it gets some time.
        const int64_t now_ns = NowNs();
        const int64_t latest_ns = longest_ns == kNeverNs ? kNeverNs : now_ns + longest_ns;
        OperationContext context(session_, std::clamp(deadline_ns, now_ns + kJobNsMin, latest_ns));
        call->status = job(context);
        call->done.store(true, std::memory_order_release);
        call->parking.Unpark();
      });
  if (!posted) return absl::FailedPreconditionError("the client is being closed");
  while (!call->done.load(std::memory_order_acquire)) {
    const int64_t look_ns = is_enough == nullptr ? kNeverNs : caller.session.NowNs() + kRetryNsMax;
    if (call->parking.ParkUntil(std::min(caller.deadline_ns(), look_ns))) continue;
    if (is_enough != nullptr && is_enough()) return absl::OkStatus();
    if (caller.expired()) return caller.DeadlineError("waiting for this compute server's service");
  }
  return call->status;
}

// --- For the client.

absl::Status Member::Open(OwnedTree* tree, int64_t deadline_ns) {
  const absl::Status opened = RunBlocking(deadline_ns, [&](OperationContext& context) {
    return OpenRanges(context, map_, tree->id(), stamps_,
                      [&](OperationContext& asking) { return IsInCatalog(asking, tree->id()); });
  });
  if (!opened.ok()) return Annotate(opened, "the ranges of an owned tree");
  std::lock_guard lock(mutex_);
  trees_.push_back(tree);
  return absl::OkStatus();
}

absl::Status Member::Close(OwnedTree* tree, int64_t deadline_ns) {
  const absl::Status closed = RunBlocking(deadline_ns, [&](OperationContext& context) {
    absl::Status first;
    {
      // Whatever job has the tree in its hands ends before this, without a look at this call's
      // deadline or its own; later ones look whether it is open.
      hurries_.fetch_add(1);
      const Turnstile::Pass job(turnstile_.get());
      hurries_.fetch_sub(1);
      first = GiveUpOrDiscard(context, tree);
      // What a queue pair that breaks, or full memory servers, refuse may do the next time.
      for (int64_t pause_ns = retry_ns();
           !first.ok() && !context.expired() && !session_->fenced() && !log_failed();
           pause_ns = std::min(2 * pause_ns, kRetryNsMax)) {
        scheduler().SleepUntil(std::min(NowNs() + pause_ns, context.deadline_ns()));
        first = GiveUpOrDiscard(context, tree);
      }
      const Turnstile::Pass flush(flushing_.get());
      for (OwnRange* const range : tree->OwnRanges()) Abandon(tree, range);
      if (!first.ok()) keeps_entries_.store(true, std::memory_order_relaxed);
      std::lock_guard lock(mutex_);
      std::erase(trees_, tree);
    }
    NoteRefusing();
    WakeWriters();
    // Peers whose requests are being executed find no range any more.
    while (tree->visitors.load(std::memory_order_acquire) > 0) {
      scheduler().SleepUntil(NowNs() + retry_ns());
    }
    return first;
  });
  if (!closed.ok()) {
    PANDO_LOG(WARNING)
        << "tree '" << tree->leaves().entry.name
        << "' is closed before all of its records are in leaves: the rest is in this "
           "compute server's log, and the next client that needs it takes it over ("
        << closed << ")";
  }
  return closed;
}

void Member::Abandon(OwnedTree* tree, OwnRange* range) {
  tree->Remove(range);
  {
    std::lock_guard lock(range->partition.mutex());
    const Lsn lowest = range->partition.LowestDirty();
    if (lowest != kNoLsn) kept_lsn_ = std::min(kept_lsn_, lowest);
  }
  DropRecords(range);
}

void Member::DropRecords(OwnRange* range) {
  std::lock_guard lock(range->partition.mutex());
  const Sizes before = SizesOf(range->partition);
  range->partition.Drop();
  NoteChange(before, range->partition);
}

bool Member::log_failed() const {
  return log_ != nullptr && !log_->failure().ok() && !log_->will_move();
}

absl::Status Member::Leave(int64_t deadline_ns) {
  if (!has_log_.load(std::memory_order_acquire)) return absl::OkStatus();
  return RunBlocking(deadline_ns, [this](OperationContext& context) {
    const Turnstile::Pass pass(turnstile_.get(), context.deadline_ns());
    return pass.ok() ? LeaveCluster(context) : TurnError(context);
  });
}

absl::Status Member::Flush(OwnedTree* tree, int64_t deadline_ns) {
  return RunBlocking(deadline_ns,
                     [&](OperationContext& context) { return FlushTree(context, tree); });
}

absl::Status Member::Flush(OperationContext& context, OwnedTree* tree) {
  // Others have their turn between its rounds, also who closes the tree: until the job has seen
  // that, which goes on for a while when this caller's time is over.
  tree->visitors.fetch_add(1, std::memory_order_relaxed);
  const std::shared_ptr<OwnedTree> visit(tree, [this](OwnedTree* visited) { EndVisit(visited); });
  return RunForCaller(
      context, [this, visit](OperationContext& job) { return FlushTree(job, visit.get()); },
      kNeverNs);
}

absl::Status Member::BeginLoad(OperationContext& context, OwnedTree* tree, OwnRange* range,
                               Lsn since) {
  return RunForCaller(context, [this, tree, range, since](OperationContext& job) {
    const Turnstile::Pass pass(turnstile_.get());
    return Renew(job, tree, range, since);
  });
}

absl::Status Member::Ask(OperationContext& context, MemberId owner, std::string_view address,
                         const PeerRequest& request, PeerAnswer* answer) {
  if (peers_ == nullptr || address.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the key belongs to ", ToText(owner), ", which lives, and cannot be asked"));
  }
  return peers_->Call(context, {{owner.compute_server, owner.incarnation}, address}, request,
                      answer);
}

OwnedTree* Member::BeginVisit(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  for (OwnedTree* const tree : trees_) {
    if (tree->id() != tree_id) continue;
    tree->visitors.fetch_add(1, std::memory_order_relaxed);
    return tree;
  }
  return nullptr;
}

void Member::EndVisit(OwnedTree* tree) { tree->visitors.fetch_sub(1, std::memory_order_release); }

absl::Status Member::Obtain(OperationContext& context, OwnedTree* tree, std::string_view key) {
  // A recovery brings other ranges to their leaves, too.
  return RunForCaller(
      context,
      [this, tree, key = std::string(key)](OperationContext& job) {
        const Turnstile::Pass pass(turnstile_.get());
        return ObtainRange(job, tree, key);
      },
      kJobNsMax, [&] { return tree->FindOwn(key) != nullptr; });
}

void Member::AddTo(OwnedStats* stats) const {
  std::lock_guard lock(mutex_);
  for (const OwnedTree* const tree : trees_) stats->ranges += tree->OwnRanges().size();
  stats->hot_bytes += bytes_.load(std::memory_order_relaxed);
  stats->dirty_bytes += dirty_bytes_.load(std::memory_order_relaxed);
  stats->claims += stats_.claims;
  stats->adoptions += stats_.adoptions;
  stats->adopted_messages += stats_.adopted_messages;
  stats->splits += stats_.splits;
  stats->given += stats_.given;
  stats->flushed += stats_.flushed;
  stats->flushed_leaves += stats_.flushed_leaves;
  stats->flush_rounds += stats_.flush_rounds;
  stats->refused += stats_.refused;
  stats->tombstones += tombstones_.load(std::memory_order_relaxed);
  stats->oldest_tombstone_ms = std::max(stats->oldest_tombstone_ms, OldestTombstoneMs());
  if (peers_ != nullptr) {
    const PeerCounters& asked = peers_->counters();
    const PeerCounters& answered = service_->counters();
    stats->forwarded += asked.requests.load(std::memory_order_relaxed);
    stats->served += answered.answers.load(std::memory_order_relaxed);
    for (const PeerCounters* const side : {&asked, &answered}) {
      stats->messages += side->messages_sent.load(std::memory_order_relaxed) +
                         side->messages_received.load(std::memory_order_relaxed);
    }
  }
  if (!joined_.load(std::memory_order_acquire)) return;
  stats->log_used_bytes += log_->used_bytes();
  stats->log_capacity_bytes += log_->capacity_bytes();
  const LogCounters log = log_->counters();
  stats->log_batches += log.batches;
  stats->log_messages += log.messages;
  stats->log_bytes += log.bytes;
  stats->base_lines += log.base_lines;
}

bool Member::IsOpen(const OwnedTree* tree) const {
  std::lock_guard lock(mutex_);
  return std::find(trees_.begin(), trees_.end(), tree) != trees_.end();
}

OwnedTree* Member::FindOpen(uint32_t tree_id) const {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(trees_.begin(), trees_.end(),
                                  [=](const OwnedTree* tree) { return tree->id() == tree_id; });
  return found == trees_.end() ? nullptr : *found;
}

std::vector<uint32_t> Member::OpenTreeIds() const {
  std::vector<uint32_t> ids;
  for (const OwnedTree* const tree : OpenTrees()) ids.push_back(tree->id());
  return ids;
}

std::vector<OwnedTree*> Member::OpenTrees() const {
  std::lock_guard lock(mutex_);
  return trees_;
}

}  // namespace pando

#include "bench/locks/lock_bench.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/lock/hocl.h"

namespace pando::bench {
namespace {

constexpr uint32_t kReadBytes = 64;

// Shared by all sessions of all compute servers: whether anybody holds a lock.
class Holders {
 public:
  explicit Holders(uint64_t locks) : held_(locks) {}
  // True: nobody else does.
  bool Take(uint64_t lock) { return !held_[lock].exchange(true, std::memory_order_acq_rel); }
  void Give(uint64_t lock) { held_[lock].store(false, std::memory_order_release); }

 private:
  std::vector<std::atomic<bool>> held_;
};

// What sessions share that are events of one world (LockBenchHost::step).
struct OneWorld {
  uint64_t left = 0;  // operations
  int working = 0;    // coroutines
};

// One session and what its coroutines share. Used by the thread that drives it.
class LockSession {
 public:
  // `world` null: the session has its share of the operations.
  LockSession(const LockBenchOptions& options, Client* client, int index, Holders* holders,
              OneWorld* world)
      : options_(options),
        client_(ImplOf(*client)),
        holders_(*holders),
        world_(world),
        left_(world != nullptr ? world->left : share_),
        random_(DeriveSeed(options.seed, static_cast<uint64_t>(index))),
        distribution_(Distribution::Create(options.distribution, options.locks)) {
    const auto sessions = static_cast<uint64_t>(options.sessions());
    share_ = options.operations / sessions +
             (static_cast<uint64_t>(index) < options.operations % sessions ? 1 : 0);
  }

  absl::Status Open() {
    PANDO_ASSIGN_OR_RETURN(context_, client_.NewSessionContext());
    start_ns_ = context_->NowNs();
    if (world_ != nullptr) world_->working += options_.coroutines;
    for (int i = 0; i < options_.coroutines; ++i) {
      context_->scheduler().Spawn([this] { Work(); });
    }
    return absl::OkStatus();
  }
  void Drive() {
    start_ns_ = context_->NowNs();
    context_->scheduler().Drain();
  }
  void Close() {
    if (context_ == nullptr) return;
    context_->scheduler().Drain();
    client_.RemoveSession(context_.get());
    context_.reset();
  }

  const LockBenchResult& result() const { return result_; }
  int64_t start_ns() const { return start_ns_; }
  int64_t end_ns() const { return end_ns_; }

 private:
  static constexpr int kErrorsMax = 100;

  LockTarget TargetOf(uint64_t lock) const {
    const auto servers = options_.memory_servers.size();
    LockTarget target;
    target.server = options_.memory_servers[lock % servers];
    target.word = kRootLockWords + static_cast<uint32_t>(lock / servers);
    target.node = {RemoteAddress(target.server, 0), 1};
    target.read_bytes = kReadBytes;
    return target;
  }

  void Work() {
    while (left_ > 0 && result_.errors < kErrorsMax) {
      --left_;
      const uint64_t lock = distribution_->Next(&random_);
      const int64_t begin_ns = context_->NowNs();
      OperationContext operation(context_.get(), begin_ns + options_.timeout_ms * kMillisecondNs);
      const absl::Status status = TakeAndRelease(operation, lock);
      end_ns_ = context_->NowNs();
      ++result_.operations;
      if (!status.ok()) {
        ++result_.errors;
        if (result_.first_error.empty()) result_.first_error = status.ToString();
        continue;
      }
      result_.latency_ns.Add(end_ns_ - begin_ns);
      result_.round_trips.Add(operation.cost.round_trips);
    }
    if (world_ != nullptr) --world_->working;
  }

  absl::Status TakeAndRelease(OperationContext& operation, uint64_t number) {
    Hocl& hocl = client_.environment().hocl;
    PANDO_ASSIGN_OR_RETURN(const BufferLease image, context_->buffers().Lease(kReadBytes));
    PANDO_ASSIGN_OR_RETURN(HeldLock lock,
                           hocl.Acquire(operation, TargetOf(number), image.buffer()));
    if (!holders_.Take(number)) ++result_.violations;
    if (options_.held_ns > 0) {
      context_->scheduler().SleepUntil(context_->NowNs() + options_.held_ns);
    }
    holders_.Give(number);
    return hocl.ReleaseUnchanged(operation, std::move(lock), image.data());
  }

  const LockBenchOptions& options_;
  ClientImpl& client_;
  Holders& holders_;
  OneWorld* const world_;
  uint64_t share_ = 0;
  uint64_t& left_;
  Random random_;
  std::unique_ptr<Distribution> distribution_;
  std::unique_ptr<SessionContext> context_;
  LockBenchResult result_;
  int64_t start_ns_ = 0;
  int64_t end_ns_ = 0;
};

absl::Status CheckOptions(const LockBenchOptions& options, Client* client) {
  PANDO_RETURN_IF_ERROR(Distribution::Validate(options.distribution));
  if (options.memory_servers.empty()) return absl::InvalidArgumentError("no memory servers");
  uint64_t words = UINT64_MAX;
  for (const uint16_t server : options.memory_servers) {
    words = std::min<uint64_t>(words, ImplOf(*client).environment().hocl.Words(server));
  }
  const uint64_t most =
      words <= kRootLockWords ? 0 : (words - kRootLockWords) * options.memory_servers.size();
  if (options.locks >= 1 && options.locks <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--locks is 1 to ", most, " with these memory servers, not ", options.locks));
}

void AddSession(const LockSession& session, LockBenchResult* sum) {
  const LockBenchResult& result = session.result();
  sum->operations += result.operations;
  sum->latency_ns.Merge(result.latency_ns);
  sum->round_trips.Merge(result.round_trips);
  sum->errors += result.errors;
  sum->violations += result.violations;
  if (sum->first_error.empty()) sum->first_error = result.first_error;
}

void AddClient(const ClientStats& before, const ClientStats& after, LockBenchResult* sum) {
  FabricStats& fabric = sum->fabric;
  fabric.reads += after.fabric.reads - before.fabric.reads;
  fabric.writes += after.fabric.writes - before.fabric.writes;
  fabric.cas += after.fabric.cas - before.fabric.cas;
  fabric.chains += after.fabric.chains - before.fabric.chains;
  fabric.round_trips += after.fabric.round_trips - before.fabric.round_trips;
  sum->attempts += after.tree.lock_attempts - before.tree.lock_attempts;
  sum->failures += after.tree.lock_failures - before.tree.lock_failures;
  sum->handovers += after.tree.handovers - before.tree.handovers;
}

}  // namespace

std::array<LockTechnique, 4> LockLadder() {
  // Lock and read are one chain on every rung, and nothing is written back: what is left differs in
  // the locks alone.
  Techniques techniques = Techniques::FgPlus();
  techniques.lock_and_read = true;
  std::array<LockTechnique, 4> ladder = {{{"global words", techniques}}};
  techniques.local_locks = true;
  ladder[1] = {"+ local tables", techniques};
  techniques.wait_queue = true;
  ladder[2] = {"+ wait queue", techniques};
  techniques.handover = techniques.handover_image = true;
  ladder[3] = {"+ handover", techniques};
  return ladder;
}

absl::StatusOr<LockBenchResult> RunLockBench(const LockBenchOptions& options,
                                             const Techniques& techniques,
                                             const LockBenchHost& host) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int c = 0; c < options.compute_servers; ++c) {
    ClientOptions client_options;
    client_options.techniques = techniques;
    client_options.handover_max = options.handover_max;
    client_options.coroutines_per_session = options.coroutines;
    client_options.seed = DeriveSeed(options.seed, 1'000'000 + static_cast<uint64_t>(c));
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, host.connect(client_options));
    PANDO_RETURN_IF_ERROR(CheckOptions(options, client.get()));
    clients.push_back(std::move(client));
  }
  Holders holders(options.locks);  // as many as there are words for
  std::vector<std::unique_ptr<LockSession>> sessions;
  std::vector<ClientStats> before;
  absl::Status opened;
  OneWorld world = {.left = options.operations};
  std::vector<std::function<void()>> jobs;
  for (int i = 0; i < options.sessions() && opened.ok(); ++i) {
    Client* const client = clients[static_cast<size_t>(i / options.threads)].get();
    if (i % options.threads == 0) before.push_back(client->Stats());
    sessions.push_back(
        std::make_unique<LockSession>(options, client, i, &holders, host.step ? &world : nullptr));
    opened = sessions.back()->Open();
    jobs.emplace_back([session = sessions.back().get()] { session->Drive(); });
  }
  if (opened.ok() && host.step) {
    host.step([&world] { return world.working == 0; });
  } else if (opened.ok()) {
    host.run(std::move(jobs));
  }
  LockBenchResult sum;
  int64_t start_ns = INT64_MAX, end_ns = 0;
  for (const auto& session : sessions) {
    session->Close();
    AddSession(*session, &sum);
    start_ns = std::min(start_ns, session->start_ns());
    end_ns = std::max(end_ns, session->end_ns());
  }
  PANDO_RETURN_IF_ERROR(opened);
  for (size_t c = 0; c < clients.size(); ++c) AddClient(before[c], clients[c]->Stats(), &sum);
  sum.seconds = static_cast<double>(end_ns - start_ns) / kSecondNs;
  return sum;
}

}  // namespace pando::bench

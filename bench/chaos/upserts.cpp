#include "bench/chaos/upserts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/chaos/coordinator.h"
#include "bench/chaos/report.h"
#include "bench/host/json_file.h"
#include "bench/host/memory_servers.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "pando/client.h"

namespace pando::chaos {
namespace {

using bench::Process;
using Count = std::atomic<uint64_t>;
static_assert(Count::is_always_lock_free, "processes share them");

constexpr int kUpsertsGraceMs = 5'000;
constexpr int kUpsertsLookMs = 5;
constexpr int64_t kStartNsMax = 60 * kSecondNs;
// Beyond an operation's timeout: for so long nothing ends where compute servers close, or wait for
// a processor.
constexpr int64_t kQuietGraceNs = 10 * kSecondNs;
constexpr auto kSayEvery = std::chrono::milliseconds(5);
// READs of leaves that are allowed: so many an upsert, or so many a counter and owner.
constexpr double kReadsAnUpsert = 0.001;
constexpr uint64_t kReadsACounter = 4;

struct Shared {
  Count go, begun;
};
// Of one compute server.
struct Tally {
  Count ready, ended, ranges, adoptions, leaf_reads;
  std::array<Count, kUpsertCounters> begun, acknowledged, unknown, no_effect;
};

// A file that several processes have mapped; zeroed by the first one. Lives as long as the program.
template <typename T>
absl::StatusOr<T*> Map(const std::string& file) {
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(file, ": ", std::strerror(errno)));
  void* memory = MAP_FAILED;
  if (ftruncate(fd, sizeof(T)) == 0) {
    memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (memory != MAP_FAILED) return static_cast<T*>(memory);
  return absl::UnavailableError(absl::StrCat(file, ": ", std::strerror(errno)));
}
absl::StatusOr<Shared*> MapShared(const Plan& plan) { return Map<Shared>(plan.folder + "/shared"); }
absl::StatusOr<Tally*> MapTally(const Plan& plan, int life) {
  return Map<Tally>(absl::StrCat(plan.folder, "/tally-", life));
}

std::string CounterKey(uint64_t n) { return absl::StrFormat("%08d", n); }
std::string Int64Bytes(uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}
uint64_t Int64Of(const std::string& bytes) {
  uint64_t value = 0;
  if (bytes.size() == sizeof(value)) std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

void Add(const Plan& plan, Session* session, const Tree& tree, uint64_t seed, Shared* shared,
         Tally* tally) {
  Random random(seed);
  const std::string one = Int64Bytes(1);
  while (shared->begun.fetch_add(1) < plan.upserts) {
    const uint64_t n = random.Uniform(kUpsertCounters);
    ++tally->begun[n];
    const absl::Status status =
        session->Upsert(tree, CounterKey(n), UpsertFunction::kAdd, one).status();
    ++(status.ok()                ? tally->acknowledged
       : IsOutcomeUnknown(status) ? tally->unknown
                                  : tally->no_effect)[n];
    ++tally->ended;
  }
}

void Say(const Client& client, Tally* tally) {
  const OwnedStats stats = client.Stats().owned;
  tally->ranges = stats.ranges;
  tally->adoptions = stats.adoptions;
  tally->leaf_reads = stats.misses;
}

// What becomes of the counters; used by the main thread.
class UpsertsRun {
 public:
  UpsertsRun(const Plan& plan, int stop_fd) : plan_(plan), stop_fd_(stop_fd) {}
  ~UpsertsRun() {
    tree_.reset();
    client_.reset();
    servers_.clear();
    bench::Stop(&memory_servers_, kUpsertsGraceMs);
  }

  absl::StatusOr<UpsertsReport> Run() {
    PANDO_RETURN_IF_ERROR(StartMemoryServers(plan_, &memory_servers_, stop_fd_));
    PANDO_ASSIGN_OR_RETURN(client_, Client::Connect(plan_.client_options()));
    PANDO_ASSIGN_OR_RETURN(tree_,
                           client_->CreateTree(kTreeName, {.key_bytes_max = kKeyBytes,
                                                           .value_bytes_max = sizeof(int64_t),
                                                           .mode = TreeOptions::Mode::kOwned}));
    PANDO_ASSIGN_OR_RETURN(shared_, MapShared(plan_));
    PANDO_RETURN_IF_ERROR(StartComputeServers());
    const int64_t start_ns = RealClock().NowNs();
    shared_->go = 1;
    heard_ns_ = start_ns;
    while (LivingAtWork()) {
      PANDO_RETURN_IF_ERROR(Pause());
      PANDO_RETURN_IF_ERROR(CheckProgress());
      if (report_.kills < static_cast<uint64_t>(plan_.kills) &&
          Ended() >=
              plan_.upserts / (static_cast<uint64_t>(plan_.kills) + 1) * (report_.kills + 1)) {
        KillOwner();
      }
    }
    report_.seconds = static_cast<double>(RealClock().NowNs() - start_ns) / kSecondNs;
    PANDO_RETURN_IF_ERROR(LookAtSums());
    return report_;
  }

 private:
  absl::Status StartComputeServers() {
    const std::string plan_file = plan_.folder + "/plan.json";
    PANDO_RETURN_IF_ERROR(bench::WriteJsonFile(plan_file, PlanToJson(plan_)));
    for (int life = 0; life < plan_.compute_servers; ++life) {
      PANDO_ASSIGN_OR_RETURN(Tally* const tally, MapTally(plan_, life));
      tallies_.push_back(tally);
      Process::Options options;
      options.arguments = {bench::ProgramFile(), absl::StrCat("--plan_file=", plan_file),
                           absl::StrCat("--life=", life)};
      options.log_file = absl::StrCat(plan_.folder, "/life-", life, ".log");
      PANDO_ASSIGN_OR_RETURN(Process process, Process::Spawn(options));
      servers_.push_back(std::move(process));
    }
    killed_.resize(servers_.size());
    const int64_t deadline_ns = RealClock().NowNs() + kStartNsMax;
    for (size_t life = 0; life < servers_.size();) {
      if (tallies_[life]->ready != 0) {
        ++life;
        continue;
      }
      if (servers_[life].HasEnded() || RealClock().NowNs() > deadline_ns) return Gone(life);
      PANDO_RETURN_IF_ERROR(Pause());
    }
    return absl::OkStatus();
  }
  absl::Status Gone(size_t life) {
    return absl::UnavailableError(absl::StrCat("compute server ", life, " ",
                                               servers_[life].ending().value_or("is too slow"),
                                               "\n", bench::Tail(servers_[life].log_file())));
  }
  absl::Status Pause() const {
    pollfd stop = {stop_fd_, POLLIN, 0};
    if (poll(&stop, 1, kUpsertsLookMs) > 0) return absl::CancelledError("stopped by a signal");
    return absl::OkStatus();
  }
  bool LivingAtWork() {
    bool at_work = false;
    for (size_t life = 0; life < servers_.size(); ++life) {
      at_work = at_work || (!killed_[life] && !servers_[life].HasEnded());
    }
    return at_work;
  }
  uint64_t Ended() const {
    uint64_t ended = 0;
    for (const Tally* const tally : tallies_) ended += tally->ended;
    return ended;
  }
  absl::Status CheckProgress() {
    const int64_t now_ns = RealClock().NowNs();
    const uint64_t ended = Ended();
    if (ended != heard_of_) heard_ns_ = now_ns;
    heard_of_ = ended;
    if (now_ns - heard_ns_ <= plan_.timeout_ms * kMillisecondNs + kQuietGraceNs) {
      return absl::OkStatus();
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "no upsert ended for ", (now_ns - heard_ns_) / kMillisecondNs,
        " ms, and compute servers go on: ", ended, " of ", plan_.upserts, " had ended"));
  }
  // Kills the owner of most counters. If there is none now: the next time.
  void KillOwner() {
    size_t most = servers_.size();
    for (size_t life = 0; life < servers_.size(); ++life) {
      if (killed_[life] || servers_[life].HasEnded() || tallies_[life]->ranges == 0) continue;
      if (most == servers_.size() || tallies_[life]->ranges > tallies_[most]->ranges) most = life;
    }
    if (most == servers_.size()) return;
    servers_[most].Signal(SIGKILL);
    killed_[most] = true;
    ++report_.kills;
  }
  absl::Status LookAtSums() {
    for (size_t life = 0; life < servers_.size(); ++life) {
      servers_[life].WaitFor(kUpsertsGraceMs);
      if (!killed_[life] && !servers_[life].ended_well()) return Gone(life);
      report_.adoptions += tallies_[life]->adoptions;
      report_.leaf_reads += tallies_[life]->leaf_reads;
    }
    PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client_->NewSession());
    for (uint64_t n = 0; n < kUpsertCounters; ++n) {
      uint64_t begun = 0, acknowledged = 0, no_effect = 0;
      for (const Tally* const tally : tallies_) {
        begun += tally->begun[n];
        acknowledged += tally->acknowledged[n];
        no_effect += tally->no_effect[n];
      }
      // What neither came to an end nor was refused, the killed had under way.
      const uint64_t unknown = begun - acknowledged - no_effect;
      const auto sum = session->Get(*tree_, CounterKey(n));
      if (!sum.ok() && !absl::IsNotFound(sum.status())) return sum.status();
      const uint64_t found = sum.ok() ? Int64Of(*sum) : 0;
      report_.wrong_sums += found < acknowledged || found > acknowledged + unknown ? 1 : 0;
      report_.acknowledged += acknowledged;
      report_.unknown += unknown;
      report_.no_effect += no_effect;
    }
    return absl::OkStatus();
  }

  const Plan& plan_;
  const int stop_fd_;
  std::vector<Process> memory_servers_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  Shared* shared_ = nullptr;
  std::vector<Tally*> tallies_;
  std::vector<Process> servers_;
  std::vector<bool> killed_;
  uint64_t heard_of_ = 0;  // upserts that had ended
  int64_t heard_ns_ = 0;   // the last time that there were more
  UpsertsReport report_;
};

}  // namespace

bool UpsertsReport::ok(const Plan& plan) const {
  const uint64_t reads_max =
      std::max(static_cast<uint64_t>(kReadsAnUpsert * static_cast<double>(plan.upserts)),
               kReadsACounter * kUpsertCounters * (kills + 1));
  return wrong_sums == 0 && kills == static_cast<uint64_t>(plan.kills) && adoptions >= kills &&
         leaf_reads <= reads_max && NotBegun(plan) >= 0 &&
         NotBegun(plan) <= static_cast<int64_t>(kills) * plan.threads;
}

std::string UpsertsReport::Text(const Plan& plan) const {
  const auto upserts = static_cast<double>(plan.upserts);
  return absl::StrFormat(
      "upserts       %12d  of %d counters by %d compute servers, %.0f a second\n"
      "killed        %12d  of those that owned counters; %d ranges taken over\n"
      "acknowledged  %12d\n"
      "unknown       %12d\n"
      "no effect     %12d\n"
      "not begun     %12d  by threads that were killed before they could\n"
      "wrong sums    %12d  below what is acknowledged, or above that and what is unknown\n"
      "leaf READs    %12d  %.5f an upsert\n"
      "%s\n",
      plan.upserts, kUpsertCounters, plan.compute_servers, upserts / seconds, kills, adoptions,
      acknowledged, unknown, no_effect, NotBegun(plan), wrong_sums, leaf_reads,
      static_cast<double>(leaf_reads) / upserts, ok(plan) ? "everything holds" : "BROKE");
}

nlohmann::json UpsertsReport::Json(const Plan& plan) const {
  return {{"config", ConfigJson(plan)},
          {"ok", ok(plan)},
          {"upserts",
           {{"acknowledged", acknowledged},
            {"unknown", unknown},
            {"no_effect", no_effect},
            {"not_begun", NotBegun(plan)},
            {"wrong_sums", wrong_sums},
            {"kills", kills},
            {"adoptions", adoptions},
            {"leaf_reads", leaf_reads},
            {"seconds", seconds}}}};
}

absl::StatusOr<UpsertsReport> RunUpserts(const Plan& plan, int stop_fd) {
  return UpsertsRun(plan, stop_fd).Run();
}

absl::Status ServeUpserts(const Plan& plan, int life) {
  PANDO_ASSIGN_OR_RETURN(Shared* const shared, MapShared(plan));
  PANDO_ASSIGN_OR_RETURN(Tally* const tally, MapTally(plan, life));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(plan.client_options()));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Tree> tree, client->OpenTree(kTreeName));
  std::atomic<int> running{plan.threads};
  std::vector<absl::Status> statuses(static_cast<size_t>(plan.threads));
  std::vector<std::thread> threads;
  tally->ready = 1;
  while (shared->go == 0) std::this_thread::sleep_for(kSayEvery);
  for (int i = 0; i < plan.threads; ++i) {
    threads.emplace_back([&, i] {
      auto session = client->NewSession();
      statuses[static_cast<size_t>(i)] = session.status();
      if (session.ok()) {
        for (int c = 0; c < plan.coroutines; ++c) {
          const auto stream =
              static_cast<uint64_t>((life * plan.threads + i) * plan.coroutines + c);
          (*session)->Spawn([&, stream] {
            Add(plan, session->get(), *tree, DeriveSeed(plan.seed, stream + 1), shared, tally);
          });
        }
        (*session)->Run();
      }
      --running;
    });
  }
  while (running > 0) {
    Say(*client, tally);
    std::this_thread::sleep_for(kSayEvery);
  }
  for (std::thread& thread : threads) thread.join();
  Say(*client, tally);
  for (const absl::Status& status : statuses) PANDO_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace pando::chaos

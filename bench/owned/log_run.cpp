#include "bench/owned/log_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/owned/log_world.h"
#include "common/base/random.h"
#include "compute/log/read_log.h"

namespace pando {
namespace {

constexpr int64_t kTimeoutNs = 2 * kSecondNs;
constexpr uint64_t kEventsMax = 2'000'000;
constexpr uint64_t kLookEvents = 40;
constexpr uint32_t kTree = 4;

// The newest message of a key, as the member has it in its memory.
struct Record {
  Lsn lsn = kNoLsn;
  std::string value;
  bool dirty = false;
};
using Records = std::map<std::string, Record>;

class LogRun {
 public:
  explicit LogRun(const LogRunOptions& options)
      : options_(options), world_(options.sim), random_(options.sim.seed * 31 + 5) {
    for (int i = 0; i < options.members; ++i)
      members_.push_back(world_.Join(options.sessions, options.coroutines));
    service_ = world_.Join(1, 4);
    log_options_ = LogWorld::OptionsOf(options.ring_bytes, options.batch_bytes_max);
    log_options_.first_lsn = options.first_lsn;
    log_options_.moves = options.lose_server_at_ns > 0;
    log_options_.packet_bytes = options.sim.packet_bytes;
    log_ = world_.Create(*service_.sessions[0], log_options_);
  }

  LogRunResult Run() {
    StartSessions();
    Start();
    const int64_t end_ns =
        options_.kill_at_ns == 0 ? kNeverNs : world_.NowNs() + options_.kill_at_ns;
    const uint64_t events_max = world_.world().stats().events + kEventsMax;
    while (!IsIdle()) {
      if (world_.NowNs() >= end_ns || IsSpent()) {
        KillAll();
        break;
      }
      if (!world_.world().Step() || world_.world().stats().events > events_max) {
        Problem("the work never ends");
        KillAll();
        break;
      }
      if (world_.world().stats().events % kLookEvents == 0) LookAtMemory();
    }
    result_.end_ns = world_.NowNs();
    End();
    if (result_.failed.empty() && !result_.killed) CheckProgress();
    Check();
    return std::move(result_);
  }

 private:
  void Problem(std::string what) {
    if (result_.problems.size() < 5) result_.problems.push_back(std::move(what));
  }
  std::vector<LogWorld::Member*> All() {
    std::vector<LogWorld::Member*> all = {&service_};
    for (LogWorld::Member& member : members_) all.push_back(&member);
    return all;
  }
  bool IsIdle() {
    for (const LogWorld::Member* member : All()) {
      for (const auto& session : member->sessions) {
        if (!session->scheduler().idle()) return false;
      }
    }
    return true;
  }
  bool IsSpent() {
    for (const LogWorld::Member* member : All()) {
      if (world_.world().PacketsSpent(*member->fabric)) return true;
    }
    return false;
  }
  void KillAll() {
    result_.killed = true;
    for (const LogWorld::Member* member : All()) world_.world().KillFabric(*member->fabric);
  }

  void StartSessions() {
    for (LogWorld::Member& member : members_) {
      world_.world().LimitPackets(*member.fabric, options_.packets);
      world_.world().SetBreakProbability(*member.fabric, options_.break_probability);
      for (const auto& session : member.sessions) {
        for (int i = 0; i < options_.coroutines; ++i) {
          ++putters_;
          LogWorld::Spawn(*session, kTimeoutNs,
                          [this](OperationContext& context) { PutAll(context); });
        }
      }
    }
    world_.world().SetBreakProbability(*service_.fabric, options_.break_probability);
  }
  void Start() {
    SessionContext& service = *service_.sessions[0];
    if (options_.flush) {
      LogWorld::Spawn(service, kTimeoutNs,
                      [this](OperationContext& context) { FlushAll(context); });
    }
    if (options_.tend) {
      LogWorld::Spawn(service, kTimeoutNs, [this](OperationContext& context) {
        while (putters_ > 0 && !result_.killed) {
          if (!log_->Tend(context).ok() && (options_.lose_server_at_ns == 0 || !Move(context)))
            break;
          Sleep(context, 5 * kMicrosecondNs);
        }
      });
    }
    if (options_.stop_every_ns > 0) Stop(0);
    if (options_.lose_server_at_ns > 0) {
      world_.world().At(world_.NowNs() + options_.lose_server_at_ns, [this] {
        lost_ = true;
        world_.world().KillServer(LogWorld::kServer);
      });
    }
  }
  static void Sleep(OperationContext& context, int64_t ns) {
    context.session.scheduler().SleepUntil(context.session.NowNs() + ns);
  }
  // Stops the members in turn, for as long as anybody puts.
  void Stop(size_t which) {
    world_.world().At(world_.NowNs() + options_.stop_every_ns, [this, which] {
      if (putters_ == 0 || result_.killed) return;
      const Fabric& fabric = *members_[which].fabric;
      world_.world().PauseFabric(fabric);
      world_.world().At(world_.NowNs() + options_.stop_ns, [this, which, &fabric] {
        if (result_.killed) return;
        world_.world().ResumeFabric(fabric);
        Stop((which + 1) % members_.size());
      });
    });
  }

  // Rule W6.
  bool Move(OperationContext& context) {
    LogExtent extent = log_options_.extent;
    extent.server = LogWorld::kOther;
    if (log_options_.extent == extent) return false;
    const absl::Status status = log_->Move(
        context, extent, log_options_.epoch + 1,
        [&] {
          for (auto& [key, record] : records_) {
            if (!record.dirty || record.lsn > log_->durable()) continue;
            auto room =
                log_->Reserve(context, key.size(), record.value.size(), RedoLog::Purpose::kMove);
            if (!room.ok()) return room.status();
            if (!record.dirty || record.lsn > log_->durable()) continue;  // it was put meanwhile
            record.lsn = log_->Append(*std::move(room),
                                      {.tree_id = kTree, .key = key, .value = record.value});
            values_[record.lsn] = {key, record.value};
          }
          return absl::OkStatus();
        },
        [&] {
          log_options_.extent = extent;
          ++log_options_.epoch;
          lost_ = false;
          ++result_.moves;
          return absl::OkStatus();
        });
    if (!status.ok()) NoteFailed("a move", status);
    return status.ok();
  }

  // --- The member's work.
  void PutAll(OperationContext& context) {
    for (int i = 0; i < options_.puts && !result_.killed; ++i) {
      const std::string key = absl::StrCat("key", 100 + random_.Uniform(options_.keys));
      const std::string value(1 + random_.Uniform(40),
                              static_cast<char>('a' + random_.Uniform(26)));
      auto room = log_->Reserve(context, key.size(), value.size());
      if (!room.ok()) {
        NoteFailed("room", room.status());
        break;
      }
      // Rule T4: number and record change are one step.
      const Lsn lsn =
          log_->Append(*std::move(room), {.tree_id = kTree, .key = key, .value = value});
      records_[key] = {lsn, value, true};
      values_[lsn] = {key, value};
      const absl::Status status = log_->AwaitDurable(context, lsn);
      if (result_.killed) return;
      if (!status.ok()) {
        NoteFailed("a put", status);
        continue;
      }
      ++result_.puts;
      acknowledged_[key] = std::max(acknowledged_[key], lsn);
    }
    --putters_;
  }
  void NoteFailed(const char* what, const absl::Status& status) {
    if (!result_.killed && result_.failed.size() < 5) {
      result_.failed.push_back(absl::StrCat(what, " ended in ", status.ToString()));
    }
  }

  void FlushAll(OperationContext& context) {
    while (putters_ > 0 && !result_.killed) {
      const auto used = static_cast<double>(log_->used_bytes());
      if (used < options_.flush_above * static_cast<double>(log_->capacity_bytes())) {
        Sleep(context, 2 * kMicrosecondNs);
        continue;
      }
      const Lsn end = log_->next_lsn();
      Lsn lowest = end;
      std::vector<std::pair<std::string, Record>> flushed;
      for (const auto& [key, record] : records_) {
        if (record.dirty && record.lsn <= log_->durable() && random_.Chance(0.6))
          flushed.push_back({key, record});
      }
      Sleep(context, static_cast<int64_t>(random_.Uniform(5 * kMicrosecondNs)));
      if (result_.killed) return;
      for (const auto& [key, record] : flushed) {
        leaves_[key] = record;
        Record& now = records_[key];
        if (now.lsn == record.lsn) now.dirty = false;
      }
      for (const auto& [key, record] : records_) {
        if (record.dirty) lowest = std::min(lowest, record.lsn);
      }
      const absl::Status status = log_->AdvanceBase(context, std::min(end, lowest));
      const bool lost = absl::IsUnavailable(status) && options_.lose_server_at_ns > 0;
      if (!status.ok() && !lost) NoteFailed("a base line", status);
      if (lost) Sleep(context, 10 * kMicrosecondNs);
    }
  }

  // A member may die at any time: whatever is durable is in the memory as it is.
  void LookAtMemory() {
    if (lost_) return;
    const std::byte* const log =
        world_.world().Memory(log_options_.extent.server).main.data() + log_options_.extent.offset;
    std::optional<LogBaseLine> base;
    for (int i = 0; i < 2; ++i) {
      const std::span<const std::byte, kLogLineBytes> line(log + i * kLogLineBytes, kLogLineBytes);
      const auto found = ParseLogBaseLine(line, log_options_.log_id, log_options_.epoch);
      if (found && (!base || found->sequence > base->sequence)) base = found;
    }
    if (!base) return Problem("the log cannot be read: no base line");
    const std::span<const std::byte> ring(log + kLogRingOffset, options_.ring_bytes);
    LogPlace next = base->place;
    uint64_t at = base->offset;
    while (true) {
      const LogBatchView view = LookAtLogBatch(ring.subspan(at), next);
      const bool is_filler = view.kind == LogBatchView::Kind::kFiller;
      if (!is_filler && view.kind != LogBatchView::Kind::kBatch) break;
      at = is_filler ? 0 : (at + view.bytes) % ring.size();
      PANDO_CHECK_OK(ParseLogMessages(view.messages, [&](const LogMessage&) {
        ++next.lsn;
        return absl::OkStatus();
      }));
      next.seed = view.seed;
      ++next.counter;
    }
    if (next.lsn > log_->durable()) return;
    Problem(absl::StrCat("what was durable is gone: ", log_->durable(), ", the memory ends at LSN ",
                         next.lsn));
  }

  // --- The end.
  void End() {
    if (result_.killed) {
      for (const LogWorld::Member* member : All())
        member->sessions[0]->endpoint().Wait(world_.NowNs());
      while (!IsIdle() && world_.world().Step()) {
      }
    }
    if (!IsIdle()) return Problem("a coroutine of the dead waits for ever");
    result_.counters = log_->counters();
    durable_ = log_->durable();
    log_.reset();
    for (LogWorld::Member* member : All()) {
      for (const auto& session : member->sessions)
        result_.chains += session->counters().chains.value();
      member->sessions.clear();
      member->fabric.reset();
    }
    world_.Quiet();
    result_.verbs_late = world_.world().stats().verbs_after_break;
  }
  void CheckProgress() {
    const uint64_t all =
        static_cast<uint64_t>(options_.members) * static_cast<uint64_t>(options_.sessions) *
        static_cast<uint64_t>(options_.coroutines) * static_cast<uint64_t>(options_.puts);
    if (result_.puts != all) Problem(absl::StrCat(result_.puts, " puts of ", all));
  }

  void Check() {
    if (lost_) return;  // it has died before it had moved
    Records found = leaves_;
    LogWorld::Member reader = world_.Join(1, 4);
    absl::StatusOr<LogSpan> span;
    Lsn last = kNoLsn;
    LogWorld::Run(*reader.sessions[0], [&](OperationContext& context) {
      span =
          ReadLog(context, log_options_.extent, log_options_.log_id, log_options_.epoch,
                  [&](Lsn lsn, const LogMessage& message) {
                    const auto& [key, value] = values_[lsn];
                    if (message.key != key || message.value != value || message.tree_id != kTree) {
                      Problem(absl::StrCat("LSN ", lsn, " is not what was logged"));
                    }
                    if (last != kNoLsn && lsn != last + 1) Problem("LSNs with a gap");
                    last = lsn;
                    found[key] = {lsn, value};
                    return absl::OkStatus();
                  });
    });
    if (!span.ok())
      return Problem(absl::StrCat("the log cannot be read: ", span.status().ToString()));
    if (span->end <= durable_)
      Problem(absl::StrCat("it ends at ", span->end, ", but ", durable_, " was durable"));
    for (const auto& [key, lsn] : acknowledged_) {
      if (found[key].lsn < lsn) {
        Problem(absl::StrCat("an acknowledged put is gone: LSN ", lsn, " of ", key, ", found is ",
                             found[key].lsn));
      }
    }
  }

  const LogRunOptions options_;
  LogWorld world_;
  Random random_;
  RedoLog::Options log_options_;
  std::vector<LogWorld::Member> members_;
  LogWorld::Member service_;
  std::unique_ptr<RedoLog> log_;
  int putters_ = 0;
  bool lost_ = false;
  Records records_, leaves_;
  std::map<Lsn, std::pair<std::string, std::string>> values_;
  std::map<std::string, Lsn> acknowledged_;
  Lsn durable_ = kNoLsn;
  LogRunResult result_;
};

}  // namespace

LogRunResult RunLog(const LogRunOptions& options) { return LogRun(options).Run(); }

}  // namespace pando

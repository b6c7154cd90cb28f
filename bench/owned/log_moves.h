// An owner with a log on a memory server that has nothing else, so that this alone is lost with it
// (rule W6).
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/history/checker.h"
#include "bench/owned/owned_stage.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/member.h"

namespace pando {

class LogMoves : public OwnedStage {
 public:
  static constexpr uint64_t kKeys = 10;  // of one leaf

  static OwnedStageOptions Options(uint64_t seed, int memory_servers = 3) {
    OwnedStageOptions options = {.circumstances = {.server_death = true, .owners_end = true}};
    options.cluster.sim.seed = seed;
    options.cluster.memory_servers = memory_servers;
    return options;
  }
  explicit LogMoves(const OwnedStageOptions& options) : OwnedStage(options) {}

  bool Put(OwnedActor* actor, uint64_t key) { return PutIn(actor, 0, key); }
  bool PutIn(OwnedActor* actor, size_t tree, uint64_t key) {
    return Do(actor, 0, tree, Make(history::OperationKind::kPut, KeyOf(key), NewValue()));
  }
  bool Get(OwnedActor* actor, uint64_t key) {
    return Do(actor, 0, 0, Make(history::OperationKind::kGet, KeyOf(key)));
  }
  ServerId LogServer(OwnedActor* actor) {
    const auto members = actor->client->ListMembers();
    if (!members.ok()) return 0;
    const MemberId self = ImplOf(*actor->client).member()->self();
    for (const MemberInfo& member : *members) {
      if (member.identity.incarnation == self.incarnation) return member.log_server;
    }
    return 0;
  }
  // Of a tree of few leaves: of all of them.
  ServerId RootServer(OwnedActor* actor) {
    const CatalogEntry& entry = ImplOf(*actor->trees[0]).context().entry;
    RootRecord root;
    (void)DecodeRootRecord(cluster().At(entry.root_record), entry.tree_id, /*crc=*/false, &root);
    return root.root.address.server();
  }
  // An owner with acknowledged records, its log on a server that nothing else is on; 0: no such.
  ServerId Begin(OwnedActor* owner) {
    if (!Open(owner, 0)) return 0;
    for (uint64_t key = 1; key <= kKeys; ++key) Put(owner, key);
    const ServerId log = LogServer(owner);
    const ServerId leaf = RootServer(owner);
    return log == 1 || log == leaf ? 0 : log;
  }
  // Its log's server dies, and a range is given just before the log moves, so that records are
  // appended again in the middle of their flush; they are to be in their leaves all the same, and
  // flushed by nobody afterwards. For many such moments of a seed. "" if all was given, and the
  // taker finds all that was acknowledged; or if the seed has no server with nothing but the log.
  static std::string GiveWhileTheLogMoves(uint64_t seed) {
    const int64_t moves_ns = LogMoves(Options(seed)).MovesAfterNs();
    for (int64_t before_ns = 2 * kMicrosecondNs; before_ns < std::min(moves_ns, kGivenBeforeNs);
         before_ns += 4 * kMicrosecondNs) {
      for (int64_t after_ns = 0; after_ns < kFlushedAfterNs; after_ns += 2 * kMicrosecondNs) {
        std::string wrong =
            LogMoves(Options(seed)).GiveAfter(moves_ns - before_ns, moves_ns + after_ns);
        if (!wrong.empty()) return wrong;
      }
    }
    return "";
  }
  // A session is slow, so the service writes its batch once more. Then their queue pairs break, and
  // the session's is open again first: its write has ended, and the service's may still land, when
  // the owner leaves. What goes wrong; `played` counts the seeds in which it came to that.
  static std::string LeaveWhileABatchIsWrittenAgain(uint64_t seed, int* played) {
    OwnedStageOptions options = Options(seed);
    options.circumstances.breaks = true;
    options.cluster.sim.reopen_ns = 5 * kMillisecondNs;
    LogMoves stage(options);
    OwnedActor* const owner = stage.Join(SmallOwner());
    const ServerId server = stage.Begin(owner);
    if (server == 0) return "";
    const RedoLog& log = ImplOf(*owner->client).member()->log();
    stage.world().LimitPackets(*owner->fabric, 0);
    stage.Spawn(owner, 0, [&] { stage.Put(owner, 1); });
    while (log.counters().written_again == 0) stage.Quiet(kMicrosecondNs);
    stage.world().BreakQueuePairs(*owner->fabric, server);
    stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
    owner->sessions[0]->Run();
    *played += log.idle() ? 0 : 1;
    bool is_over = false, too_early = false;
    std::function<void()> watch = [&] {
      if (is_over) return;
      if (stage.cluster().Counter("extents") > 0) {
        return stage.world().At(stage.NowNs() + kMicrosecondNs, watch);
      }
      is_over = true;
      too_early = !log.idle();
    };
    watch();
    stage.Leave(owner);
    const bool is_freed = std::exchange(is_over, true);
    if (!is_freed) return "the log is never freed";
    if (too_early) return "the log is freed, and a batch may still land in it";
    stage.LookAtTheEnd();
    return stage.what();
  }
  // Whoever comes later connects to all.
  void LookAgain(const std::vector<ServerId>& dead) {
    for (const ServerId server : dead) cluster().StartAgain(server);
    LookAtTheEnd();
  }

 private:
  static constexpr int64_t kGivenBeforeNs = 50 * kMicrosecondNs,
                           kFlushedAfterNs = 40 * kMicrosecondNs;

  // With two ranges that are dirty, the log's server just dead. False: the seed has no such.
  bool BeginToMove() {
    owner_ = Join(SmallOwner(), /*sessions=*/3);
    next_ = Join(SmallOwner());
    const ServerId log = Begin(owner_);
    if (log == 0 || !Open(next_, 0) || !Split(owner_, 0, 0, KeyOf(kKeys / 2 + 1)).ok())
      return false;
    for (uint64_t key = 1; key <= kKeys; ++key) Put(owner_, key);
    world().KillServer(log);
    return true;
  }
  // From the server's death on, until it goes on elsewhere. 0: it does not.
  int64_t MovesAfterNs() {
    if (!BeginToMove()) return 0;
    const RedoLog& log = ImplOf(*owner_->client).member()->log();
    const int64_t from_ns = NowNs();
    while (NowNs() < from_ns + 30 * kSecondNs) {
      Quiet(kMicrosecondNs / 5);
      if (log.failure().ok() && !log.is_in_place()) return NowNs() - from_ns;
    }
    return 0;
  }
  // So long after the server's death; and from then on somebody else flushes whatever is dirty.
  std::string GiveAfter(int64_t give_ns, int64_t flush_ns) {
    if (!BeginToMove()) return "";
    absl::Status given = absl::UnknownError("it was never given");
    bool done = false;
    world().At(NowNs() + give_ns, [&] {
      Spawn(owner_, 1, [&] {
        given = Give(owner_, 1, 0, KeyOf(1), next_);
        done = true;
      });
    });
    world().At(NowNs() + flush_ns, [&] {
      Spawn(owner_, 2, [&] {
        while (!done) {
          (void)owner_->sessions[2]->Flush(*owner_->trees[0]);
          owner_->sessions[2]->SleepUntil(NowNs() + 2 * kMicrosecondNs);
        }
      });
    });
    for (const int64_t from_ns = NowNs(); !done && NowNs() < from_ns + 30 * kSecondNs;) {
      Quiet(kMicrosecondNs);
    }
    for (const size_t session : {1, 2}) owner_->sessions[session]->Run();
    if (!given.ok()) return given.ToString();
    for (uint64_t key = 1; key <= kKeys; ++key) Get(next_, key);
    const history::CheckResult checked = history::CheckHistory(history(0), nullptr, nullptr);
    return checked.violations.empty() ? what() : checked.violations[0];
  }

  OwnedActor *owner_ = nullptr, *next_ = nullptr;
};

}  // namespace pando

// An owner with a log on a memory server that has nothing else, so that this alone is lost with it
// (rule W6).
#pragma once

#include <string>
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
  // A range is given while the log moves: its records are appended again in between, and are to be
  // in their leaves all the same. What the taker finds: "" if it is all that was acknowledged, or
  // if the seed has no server with nothing but the log.
  std::string GiveWhileTheLogMoves() {
    OwnedActor* const owner = Join(SmallOwner(), /*sessions=*/2);
    OwnedActor* const next = Join(SmallOwner());
    const ServerId log = Begin(owner);
    if (log == 0 || !Open(next, 0)) return "";
    const std::string border = KeyOf(kKeys / 2 + 1);
    if (const absl::Status split = Split(owner, 0, 0, border); !split.ok()) return split.ToString();
    world().KillServer(log);
    // Of the other range. It waits for the move, and so does whoever wants all to be durable.
    Spawn(owner, 0, [this, owner] { Put(owner, kKeys); });
    Quiet(2 * kMicrosecondNs);
    if (const absl::Status given = Give(owner, 1, 0, KeyOf(1), next); !given.ok())
      return given.ToString();
    owner->sessions[0]->Run();
    for (uint64_t key = 1; key <= kKeys; ++key) Get(next, key);
    const history::CheckResult checked = history::CheckHistory(history(0), nullptr, nullptr);
    return checked.violations.empty() ? what() : checked.violations[0];
  }
  // Whoever comes later connects to all.
  void LookAgain(const std::vector<ServerId>& dead) {
    for (const ServerId server : dead) cluster().StartAgain(server);
    LookAtTheEnd();
  }
};

}  // namespace pando

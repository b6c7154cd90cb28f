#include "bench/owned/owned_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/owned/owned_stage.h"
#include "common/base/check.h"

namespace pando {

using history::Operation;
using history::OperationKind;

namespace {

constexpr int64_t kServingLeaseNs = 8 * kMillisecondNs, kLeaseNs = 24 * kMillisecondNs;
constexpr uint64_t kRefusedMax = 20;
constexpr uint64_t kLifeNs = 6 * kMillisecondNs;
constexpr int64_t kReadLeaseNs = 200 * kMicrosecondNs, kPhaseNs = 800 * kMicrosecondNs;
constexpr char kBallast[] = "ballast";
constexpr uint64_t kBallastEntries = 6'000;

OwnedStageOptions StageOptions(const OwnedRunOptions& options) {
  OwnedStageOptions stage;
  stage.cluster.sim = {.seed = options.seed, .mode = options.mode};
  stage.cluster.memory_servers = options.memory_servers;
  stage.cluster.main_bytes = options.little_memory ? 1 << 20 : 4 << 20;
  stage.cluster.lock_words = 1024;
  stage.cluster.chunk_bytes = 64 << 10;
  if (options.leases) {
    stage.cluster.lease_ns = kLeaseNs;
    stage.cluster.serving_lease_ns = kServingLeaseNs;
  }
  stage.trees = options.trees;
  if (options.lends) stage.read_lease_ns = kReadLeaseNs;
  if (options.cells) stage.tree.inline_value_bytes_max = 4;
  stage.circumstances = {.leases = options.leases,
                         .breaks = options.break_probability > 0,
                         .little_memory = options.little_memory};
  return stage;
}

class OwnedRun : public OwnedStage {
 public:
  explicit OwnedRun(const OwnedRunOptions& options)
      : OwnedStage(StageOptions(options)), options_(options) {}

  OwnedRunResult Run() {
    ClientOptions client = SmallOwner();
    client.operation_timeout_ms = options_.timeout_ms;
    if (options_.lends) client.lend_after_ms = 0;
    if (options_.little_memory) FillUp();
    std::vector<OwnedActor*> actors;
    for (int life = 0; life < options_.lives && problems().empty(); ++life) {
      OwnedActor* const actor = Join(client, options_.sessions);
      actors.push_back(actor);
      for (size_t tree = 0; tree < options_.trees; ++tree) {
        if (!IsDropped(tree)) Open(actor, tree);
      }
      world().SetBreakProbability(*actor->fabric, options_.break_probability);
      Start(actor);
      if (random().Chance(options_.pause)) {
        Pause(actor, NowNs() + static_cast<int64_t>(random().Uniform(kLifeNs)),
              static_cast<int64_t>(random().Uniform(2 * kLeaseNs)));
      }
      Quiet(static_cast<int64_t>(random().Uniform(kLifeNs)));
      if (options_.drop && life == 1) Drop(actor, options_.trees - 1);
      if (random().Chance(options_.kill)) {
        world().At(NowNs() + static_cast<int64_t>(random().Uniform(kLifeNs)),
                   [this, actor] { Kill(actor); });
      } else if (random().Chance(0.5)) {
        if (options_.moves > 0 && !actor->dead && random().Chance(0.5)) {
          retired_ += Retire(actor, options_.timeout_ms).ok() ? 1 : 0;
        }
        End(actor);
      }
    }
    for (OwnedActor* const actor : actors) End(actor);
    if (options_.little_memory) EmptyAgain();
    LookAtTheEnd();
    OwnedRunResult result;
    result.problems = problems();
    result.concluded = concluded();
    result.unknown = unknown();
    result.refused = refused();
    result.adopted = adopted();
    result.refused_records = refused_records_;
    result.moves = moves();
    result.retired = retired_;
    result.lent = lent_;
    for (const OwnedActor* const actor : actors) result.cut_off += actor->cut_off;
    return result;
  }

 private:
  void End(OwnedActor* actor) {
    if (actor->closed) return;
    for (auto& session : actor->sessions) session->Run();
    if (!actor->dead) {
      world().SetBreakProbability(*actor->fabric, 0);
      refused_records_ += actor->client->Stats().owned.refused;
      lent_ += actor->client->Stats().owned.lent;
    }
    Leave(actor);
  }
  void Start(OwnedActor* actor) {
    for (size_t session = 0; session < options_.sessions; ++session) {
      for (int c = 0; c < options_.coroutines; ++c) {
        Spawn(actor, session, [this, actor, session] {
          // What others serve is waited for now and then.
          const uint64_t refused_max = refused() + kRefusedMax;
          for (int n = 0; n < options_.operations && problems().empty(); ++n) {
            if (refused() > refused_max && !options_.little_memory) return;
            const size_t tree = random().Uniform(options_.trees);
            if (actor->trees[tree] == nullptr || IsDropped(tree)) continue;
            if (options_.moves > 0 && random().Chance(options_.moves)) {
              MoveAny(actor, session, tree, KeyOf(1 + random().Uniform(options_.keys)));
              if (actor->dead) return;
            }
            if (options_.erase > 0 && random().Chance(options_.erase)) {
              if (!EraseRange(actor, session, tree, SomeKeys())) return;
            } else if (random().Uniform(OnlyReads() ? 10 : 50) == 0) {
              (void)actor->sessions[session]->Flush(*actor->trees[tree]);
            } else if (!Do(actor, session, tree, Any(tree))) {
              return;
            }
            if (actor->dead) return;
          }
        });
      }
    }
  }
  std::vector<std::string> SomeKeys() {
    const uint64_t first = 1 + random().Uniform(options_.keys);
    const uint64_t last = std::min(options_.keys, first + random().Uniform(20));
    std::vector<std::string> keys;
    for (uint64_t key = first; key <= last; ++key) keys.push_back(KeyOf(key));
    return keys;
  }
  bool OnlyReads() { return options_.lends && NowNs() / kPhaseNs % 2 == 1; }
  Operation Any(size_t tree) {
    const uint64_t keys = random().Uniform(2) == 0 ? 6 : options_.keys;
    const std::string key = KeyOf(1 + random().Uniform(keys));
    std::string& last = last_[{tree, key}];
    const auto store = [&](OperationKind kind) {
      Operation operation = Make(kind, key, NewValue());
      // Long ones are long in the log, too.
      operation.value.resize(std::max(operation.value.size(), random().Uniform(60)), '.');
      if (kind == OperationKind::kReplace) operation.expected = last;
      last = operation.value;
      return operation;
    };
    constexpr uint64_t kGet = 0, kScan = 11;
    const auto read = [&] { return random().Uniform(4) == 0 ? kScan : kGet; };
    switch (OnlyReads() ? read() : random().Uniform(16)) {
      case kGet:
      case 1:
      case 2:
      case 3:
        return Make(OperationKind::kGet, key);
      case 4:
      case 5:
        return store(OperationKind::kInsert);
      case 6:
      case 7:
        return Make(OperationKind::kDelete, key);
      case 8:
        return store(OperationKind::kUpdate);
      case 9:
        return store(OperationKind::kReplace);
      case 10: {
        Operation erase = Make(OperationKind::kEraseIf, key);
        erase.expected = last;
        return erase;
      }
      case kScan: {
        Operation scan = Make(OperationKind::kScan, key);
        scan.limit = 1 + random().Uniform(40);
        return scan;
      }
      default:
        return store(OperationKind::kPut);
    }
  }
  void Drop(OwnedActor* actor, size_t tree) {
    if (actor->dead || actor->trees[tree] == nullptr) return;
    NoteDropped(tree);
    const absl::Status dropped = actor->client->DropTree(TreeName(tree));
    if (!dropped.ok() && !actor->dead && !options_.leases) {
      Problem(absl::StrCat("drop: ", dropped.ToString()));
    }
  }
  // A shared tree takes nearly all there is.
  void FillUp() {
    ballast_ = Join({.index_cache_bytes = 1 << 20});
    auto tree =
        ballast_->client->CreateTree(kBallast, {.key_bytes_max = 8, .value_bytes_max = 200});
    PANDO_CHECK_OK(tree.status());
    for (uint64_t n = 0; n < kBallastEntries; ++n) {
      const absl::Status put = ballast_->sessions[0]->Put(**tree, KeyOf(n), std::string(200, 'b'));
      if (absl::IsResourceExhausted(put)) break;
      PANDO_CHECK_OK(put);
      if (n % 16 != 0) continue;
      uint64_t free = 0;
      for (const ServerStatus& server : ballast_->client->Servers()) free += server.free_bytes;
      if (free < (256 << 10) * static_cast<uint64_t>(options_.memory_servers)) break;
    }
  }
  void EmptyAgain() {
    PANDO_CHECK_OK(ballast_->client->DropTree(kBallast));
    Leave(ballast_);
    Quiet(4 * kSecondNs);
  }

  const OwnedRunOptions options_;
  std::map<std::pair<size_t, std::string>, std::string> last_;
  OwnedActor* ballast_ = nullptr;
  uint64_t refused_records_ = 0, retired_ = 0, lent_ = 0;
};

}  // namespace

OwnedRunResult RunOwners(const OwnedRunOptions& options) { return OwnedRun(options).Run(); }

}  // namespace pando

#include "bench/owned/sim_stage.h"

#include <string>

#include "common/base/check.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

constexpr uint64_t kEndWithinNs = 60'000;
// Everything of the dead has landed, and their locks are free.
constexpr int64_t kFencedNs = 3 * kSecondNs;
constexpr uint64_t kPauseWithinNs = 20'000'000, kPauseNsMax = 3'000'000;
constexpr uint32_t kOtherTrees = 9;
constexpr int kNeighbours = 2, kNeighboursWrites = 150;  // of a member; each
constexpr uint64_t kPatienceNs = 80'000;

}  // namespace

SimStage::SimStage(const SimStageOptions& options)
    : MapStage(options.seed, options.steps, options.patience_ns_max),
      options_(options),
      cluster_({.sim = {.seed = options.seed, .mode = options.mode},
                .main_bytes = 4 << 20,
                .lock_words = 1024,
                .chunk_bytes = 64 << 10}) {
  for (size_t i = 0; i < options.members; ++i) {
    ComputeServer& server = servers_.emplace_back();
    server.fabric = world().NewFabric();
    ClientOptions client_options;
    client_options.index_cache_bytes = 1 << 20;
    client_options.operation_timeout_ms = 5'000;
    client_options.seed = options.seed * 100 + i + 1;
    auto client = ConnectOverFabric(client_options, server.fabric);
    PANDO_CHECK_OK(client.status());
    server.client = *std::move(client);
    auto tree = server.client->CreateTree(
        "map", {.key_bytes_max = kClusterKeyBytesMax, .value_bytes_max = kClusterValueBytesMax});
    PANDO_CHECK_OK(tree.status());
    server.tree = *std::move(tree);
    auto session = server.client->NewSession();
    PANDO_CHECK_OK(session.status());
    server.session = *std::move(session);
    server.store = std::make_unique<SharedMapStore>(&ImplOf(*server.tree).context());
    AddActor(&ImplOf(*server.session).context(), server.store.get());
  }
  LoadOthers();
}

SimStage::~SimStage() {
  kind_ = true;
  for (const bool dead : {true, false}) {
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (actors()[i].dead == dead) Leave(&servers_[i]);
    }
  }
}

void SimStage::Leave(ComputeServer* server) {
  server->neighbour.reset();
  server->session.reset();
  server->store.reset();
  server->tree.reset();
  server->client.reset();
  server->fabric.reset();
}

void SimStage::LoadOthers() {
  StampSource stamps(1);
  for (int i = 0; i < options_.entries_before; ++i) {
    uint32_t tree = static_cast<uint32_t>(i) % kOtherTrees;
    if (tree >= kPlayTree) ++tree;
    const std::string border = std::string(60, 'b') + std::to_string(i);
    PANDO_CHECK_OK(servers_[0].session->Put(*servers_[0].tree, RangeKey(tree, border),
                                            Encode(RangeEntry{.stamp = stamps.Next()})));
  }
}

void SimStage::StartNeighbour(size_t which) {
  auto session = servers_[which].client->NewSession();
  PANDO_CHECK_OK(session.status());
  servers_[which].neighbour = *std::move(session);
  SessionContext* const context = &ImplOf(*servers_[which].neighbour).context();
  for (int i = 0; i < kNeighbours; ++i) {
    context->scheduler().Spawn([this, which, context] {
      StampSource stamps(100 + static_cast<uint32_t>(which));
      for (int n = 0; n < kNeighboursWrites && !kind_; ++n) {
        const auto patience_ns = static_cast<int64_t>(1 + random().Uniform(kPatienceNs));
        OperationContext operation(context, context->NowNs() + patience_ns);
        const std::string key = RangeKey(kPlayTree + 1, std::string(1 + which, 'n'));
        const std::string value = Encode(RangeEntry{.stamp = stamps.Next()});
        (void)servers_[which].store->Write(operation, {WriteKind::kPut, key, value}, nullptr);
        context->scheduler().SleepUntil(context->NowNs() + patience_ns / 4);
      }
    });
  }
  context->endpoint().Wake();
}

void SimStage::BeUnkind() {
  kind_ = false;
  for (size_t i = 0; i < servers_.size() && options_.neighbours; ++i) StartNeighbour(i);
  for (ComputeServer& server : servers_) {
    world().SetBreakProbability(*server.fabric, options_.break_probability);
  }
  for (int i = 0; i < options_.pauses; ++i) {
    Pause(random().Uniform(servers_.size()),
          world().clock().NowNs() + static_cast<int64_t>(random().Uniform(kPauseWithinNs)),
          static_cast<int64_t>(random().Uniform(kPauseNsMax)));
  }
}

void SimStage::Pause(size_t which, int64_t at_ns, int64_t for_ns) {
  world().At(at_ns, [this, which, for_ns] {
    if (actors()[which].dead || servers_[which].fabric == nullptr) return;
    world().PauseFabric(*servers_[which].fabric);
    world().At(world().clock().NowNs() + for_ns, [this, which] {
      if (actors()[which].dead || servers_[which].fabric == nullptr) return;
      world().ResumeFabric(*servers_[which].fabric);
    });
  });
}

void SimStage::BeKind() {
  kind_ = true;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!actors()[i].dead) world().SetBreakProbability(*servers_[i].fabric, 0);
  }
}

void SimStage::Kill(size_t which) {
  if (actors()[which].dead) return;
  actors()[which].dead = true;
  world().KillFabric(*servers_[which].fabric);
}

bool SimStage::End(size_t which) {
  world().At(world().clock().NowNs() + static_cast<int64_t>(random().Uniform(kEndWithinNs)),
             [this, which] { Kill(which); });
  return false;
}

void SimStage::AwaitFence(size_t) { world().RunUntil(world().clock().NowNs() + kFencedNs); }

}  // namespace pando

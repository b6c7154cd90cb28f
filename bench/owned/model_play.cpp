#include "bench/owned/model_play.h"

#include <memory>
#include <utility>
#include <vector>

#include "bench/owned/model_store.h"
#include "common/base/check.h"
#include "common/base/epoch.h"

namespace pando {
namespace {

constexpr size_t kMembers = 5;
constexpr int kSteps = 120;
constexpr uint64_t kPatienceNsMax = 60'000;

class ModelStage final : public MapStage {
 public:
  explicit ModelStage(uint64_t seed)
      : MapStage(seed, kSteps, kPatienceNsMax),
        world_({.seed = seed}),
        table_(&world_, random().Next()) {
    for (size_t i = 0; i < kMembers; ++i) {
      fabrics_.push_back(world_.NewFabric());
      auto endpoint = fabrics_.back()->Connect(0, 0);
      PANDO_CHECK_OK(endpoint.status());
      sessions_.push_back(
          std::make_unique<SessionContext>(*std::move(endpoint), &epochs_, 4, seed + i));
      stores_.push_back(std::make_unique<ModelStore>(&table_));
      AddActor(sessions_.back().get(), stores_.back().get());
    }
  }
  const ModelTable& table() const { return table_; }

 private:
  sim::SimWorld& world() override { return world_; }
  void BeUnkind() override { table_.unkind = 1 + static_cast<int>(random().Uniform(40)); }
  void BeKind() override { table_.unkind = 0; }
  // Between two steps: what it has left in flight goes on.
  bool End(size_t which) override {
    actors()[which].dead = true;
    return true;
  }
  void AwaitFence(size_t) override {
    while (table_.locked) PANDO_CHECK(world_.Step());
  }

  sim::SimWorld world_;
  EpochDomain epochs_;
  ModelTable table_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<SessionContext>> sessions_;
  std::vector<std::unique_ptr<ModelStore>> stores_;
};

}  // namespace

ModelPlayResult PlayModel(uint64_t seed) {
  ModelStage stage(seed);
  stage.Play();
  return {stage.result(), stage.table().late, stage.table().never};
}

}  // namespace pando

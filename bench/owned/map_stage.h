// A play of several MapMembers: they change the map side by side, one may end in the middle of
// that, another one while it recovers the first; then all is settled, looked at, and one leaves.
// Where it is played, and how a member ends, is the derived class's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/owned/map_play.h"
#include "common/base/random.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/core/session_context.h"
#include "compute/owner/map_store.h"

namespace pando {

struct MapPlayResult {
  std::vector<std::string> problems;
  uint64_t won = 0, lost = 0, uncertain = 0, refused = 0, recovered = 0;
};

class MapStage {
 public:
  MapStage(uint64_t seed, int steps, uint64_t patience_ns_max)
      : random_(seed), steps_(steps), patience_ns_max_(patience_ns_max) {}
  virtual ~MapStage() = default;

  // Once. Actors have been added.
  void Play();
  MapPlayResult result() const;

 protected:
  struct Actor {
    SessionContext* session;
    MapStore* store;
    std::unique_ptr<MapMember> member;
    bool dead = false;
  };

  void AddActor(SessionContext* session, MapStore* store);
  std::vector<Actor>& actors() { return actors_; }
  Random& random() { return random_; }

  virtual sim::SimWorld& world() = 0;
  virtual void BeUnkind() = 0;
  virtual void BeKind() = 0;
  // Ends the actor, now or soon. True: its coroutine is to return.
  virtual bool End(size_t which) = 0;
  // Returns when nothing of it is in flight any more (rule D2).
  virtual void AwaitFence(size_t which) = 0;
  // An event of the world is over.
  virtual void AfterStep() {}

  // --- What plays are made of. A job in the coroutine of each actor that lives; of one.
  void Together(const std::function<void(size_t, MapMember&)>& job);
  void Do(Actor* actor, const std::function<void(MapMember&, OperationContext&)>& job);
  OperationContext Hurried(size_t i);
  void Fence(size_t which);
  // One recovers what one, or any ended one, has left; it ends after `lives` calls, unless that
  // is negative.
  void Recover(size_t i, MemberId dead, int lives);
  void RecoverAll(size_t i);
  void SettleAll();
  void Look();

 private:
  void RunUntilIdle();
  void Start(Actor* actor, std::function<void()> job);
  void RecoverFrom(size_t first_dead);

  Random random_;
  const int steps_;
  const uint64_t patience_ns_max_;
  MapGhost ghost_;
  std::vector<Actor> actors_;
  std::vector<MemberId> ended_in_order_;
  std::set<MemberId> ended_;
  uint64_t recovered_ = 0;
};

}  // namespace pando

// Members that change the map of one owned tree at random, and what must hold whatever comes in
// between: the ranges that they serve never overlap, each begins where the one before it ends, and
// in the end the map says the same as they do.
//
// A member is one coroutine at a time. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "compute/core/session_context.h"
#include "compute/owner/claim.h"
#include "compute/owner/cluster_entries.h"
#include "compute/owner/map_change.h"
#include "compute/owner/map_store.h"

namespace pando {

inline constexpr uint32_t kPlayTree = 5;

// What is true, without asking the map.
class MapGhost {
 public:
  // The member answers for the range from now on.
  void Serves(MemberId member, const MappedRange& range);
  // It does not any more.
  void Stops(MemberId member, const std::string& high);
  // It has ended, and nothing of it is in flight.
  void Ends(MemberId member);
  // A border that may be inserted from now on; that has been; that never will be.
  void MayDivide(const std::string& border) { perhaps_.insert(border); }
  void Divides(const std::string& border) { borders_.insert(border); }
  void NeverDivides(const std::string& border) { perhaps_.erase(border); }

  // Of a map at rest, in which `living` have nothing under way and nobody else has a term.
  void CheckMap(const std::vector<MappedRange>& map);
  void Problem(std::string what);
  const std::vector<std::string>& problems() const { return problems_; }
  uint64_t served() const { return served_; }

 private:
  std::map<std::string, std::pair<MemberId, MappedRange>> serving_;  // by upper border
  std::set<std::string> borders_, perhaps_;
  std::vector<std::string> problems_;
  uint64_t served_ = 0;
};

class MapMember {
 public:
  enum class Act { kClaim, kGiveUp, kSplit, kFind, kAny };

  MapMember(MemberId id, MapStore* store, MapGhost* ghost, uint64_t seed)
      : id_(id), store_(*store), ghost_(*ghost), stamps_(id.incarnation), random_(seed) {}

  MemberId id() const { return id_; }
  // Inserts `m` and `l`, and the tree's first entry.
  void Join(OperationContext& context);
  // Settles what is not settled yet, or begins something.
  void Step(OperationContext& context, Act act = Act::kAny);
  bool settled() const { return !change_.has_value(); }
  // It has claimed a recovery, or tries to.
  bool recovers() const { return recovery_.has_value() || entry_change_.has_value(); }
  const std::vector<MappedRange>& own() const { return own_; }
  // Ends in order: gives everything up, and erases its entries. False: not yet, call again.
  bool Leave(OperationContext& context);
  // The whole recovery of another one that has ended; `claimant_ended` says whether one that has
  // claimed it before has ended, too. False: not yet, call again.
  bool Recover(OperationContext& context, MemberId dead, const std::set<MemberId>& ended);

  // How often each kind of end was met.
  uint64_t begun = 0, won = 0, lost = 0, uncertain = 0, refused = 0;

 private:
  void Begin(OperationContext& context, Act act);
  void Claim(OperationContext& context);
  void Split();
  void Settle(OperationContext& context);
  void Conclude();
  void TakeBack();
  // Settles a change of members' entries. Nullopt: not yet.
  std::optional<MapChange::Decision> SettleEntry(OperationContext& context, MapChange* change);
  bool AdoptAll(OperationContext& context, MemberId dead);
  // What is not explained by deadlines and broken queue pairs.
  void Explain(const absl::Status& status, const char* what);

  const MemberId id_;
  MapStore& store_;
  MapGhost& ghost_;
  StampSource stamps_;
  Random random_;
  Lsn next_lsn_ = 1;
  std::vector<MappedRange> own_;

  Act act_ = Act::kAny;  // what change_ is
  std::optional<RangeChange> change_;
  MappedRange changed_;  // the own range that it is about
  MemberEntry member_;
  LogEntry log_;
  std::optional<MapChange> entry_change_;  // of `d`, `m` or `l`
  std::optional<RecoveryEntry> recovery_;  // that is ours
};

}  // namespace pando

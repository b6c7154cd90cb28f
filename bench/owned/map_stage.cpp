#include "bench/owned/map_stage.h"

#include <utility>

#include "common/base/check.h"
#include "compute/owner/members.h"

namespace pando {
namespace {

constexpr int64_t kForEverNs = 10 * kSecondNs;
constexpr uint64_t kEventsMax = 20'000'000;
constexpr int kCallsMax = 2'000;  // of a recovery

}  // namespace

void MapStage::AddActor(SessionContext* session, MapStore* store) {
  const size_t i = actors_.size();
  const MemberId id = {static_cast<uint16_t>(i + 1), static_cast<uint32_t>(10 + i)};
  actors_.push_back(
      {session, store, std::make_unique<MapMember>(id, store, &ghost_, random_.Next())});
}

OperationContext MapStage::Hurried(size_t i) {
  SessionContext& session = *actors_[i].session;
  return {&session, session.NowNs() + static_cast<int64_t>(1 + random_.Uniform(patience_ns_max_))};
}

void MapStage::RunUntilIdle() {
  const uint64_t events_max = world().stats().events + kEventsMax;
  const auto busy = [&] {
    for (const Actor& actor : actors_) {
      if (!actor.dead && !actor.session->scheduler().idle()) return true;
    }
    return false;
  };
  while (busy()) {
    PANDO_CHECK(world().Step() && world().stats().events < events_max) << "it never ends";
    AfterStep();
  }
}

void MapStage::Start(Actor* actor, std::function<void()> job) {
  actor->session->scheduler().Spawn(std::move(job));
  actor->session->endpoint().Wake();
}

void MapStage::Together(const std::function<void(size_t, MapMember&)>& job) {
  for (size_t i = 0; i < actors_.size(); ++i) {
    // A copy: a coroutine that is killed outlasts the play.
    if (!actors_[i].dead) Start(&actors_[i], [job, i, this] { job(i, *actors_[i].member); });
  }
  RunUntilIdle();
}

void MapStage::Do(Actor* actor, const std::function<void(MapMember&, OperationContext&)>& job) {
  Start(actor, [&] {
    OperationContext context(actor->session, actor->session->NowNs() + kForEverNs);
    job(*actor->member, context);
  });
  RunUntilIdle();
}

void MapStage::Fence(size_t which) {
  AwaitFence(which);
  const MemberId member = actors_[which].member->id();
  ended_.insert(member);
  ended_in_order_.push_back(member);
  ghost_.Ends(member);
}

void MapStage::Play() {
  for (Actor& actor : actors_) {
    Do(&actor, [](MapMember& member, OperationContext& context) { member.Join(context); });
  }
  BeUnkind();
  const size_t first_dead = random_.Uniform(2 * actors_.size());  // in half of the plays
  const auto lives = static_cast<int>(random_.Uniform(static_cast<uint64_t>(steps_)));
  Together([=, this](size_t i, MapMember& member) {
    for (int step = 0; step < steps_; ++step) {
      if (i == first_dead && step == lives && End(i)) return;
      OperationContext context = Hurried(i);
      member.Step(context);
    }
  });
  if (first_dead < actors_.size()) RecoverFrom(first_dead);
  BeKind();
  SettleAll();
  Look();
  for (Actor& actor : actors_) {
    if (actor.dead) continue;
    Do(&actor, [&](MapMember& member, OperationContext& context) {
      if (!member.Leave(context)) ghost_.Problem("somebody cannot leave");
    });
    break;
  }
  Look();
}

void MapStage::Recover(size_t i, MemberId dead, int lives) {
  MapMember& member = *actors_[i].member;
  bool over = false;
  for (int call = 0; call < kCallsMax && !over; ++call) {
    if (call == lives && End(i)) return;
    OperationContext context = Hurried(i);
    // What it has begun before it heard of the death is settled first.
    if (!member.settled() && !member.recovers()) {
      member.Step(context);
    } else {
      over = member.Recover(context, dead, ended_);
    }
  }
}

void MapStage::RecoverFrom(size_t first_dead) {
  // It may have come to its end before its time.
  if (!actors_[first_dead].dead) world().RunUntil(world().clock().NowNs() + kMillisecondNs);
  PANDO_CHECK(actors_[first_dead].dead);
  Fence(first_dead);
  const MemberId dead = actors_[first_dead].member->id();
  const size_t second_dead = random_.Uniform(actors_.size());
  const auto lives = static_cast<int>(random_.Uniform(8));
  Together([=, this](size_t i, MapMember&) { Recover(i, dead, i == second_dead ? lives : -1); });
  world().RunUntil(world().clock().NowNs() + kMillisecondNs);
  if (second_dead != first_dead && actors_[second_dead].dead) Fence(second_dead);
  Together([this](size_t i, MapMember&) { RecoverAll(i); });
  ++recovered_;
}

void MapStage::RecoverAll(size_t i) {
  for (const MemberId dead : ended_in_order_) Recover(i, dead, -1);
}

void MapStage::SettleAll() {
  Together([this](size_t i, MapMember& member) {
    while (!member.settled()) {
      OperationContext context(actors_[i].session, world().clock().NowNs() + kForEverNs);
      member.Step(context);
    }
    RecoverAll(i);
  });
}

void MapStage::Look() {
  for (Actor& actor : actors_) {
    if (actor.dead) continue;
    Do(&actor, [&](MapMember&, OperationContext& context) {
      const auto map = ListRanges(context, *actor.store, kPlayTree);
      if (!map.ok()) return ghost_.Problem(map.status().ToString());
      ghost_.CheckMap(*map);
      const auto recoveries = ListEntries<RecoveryEntry>(context, *actor.store);
      if (!recoveries.ok() || !recoveries->empty()) ghost_.Problem("a recovery is not over");
      const auto logs = ListEntries<LogEntry>(context, *actor.store);
      const auto members = ListEntries<MemberEntry>(context, *actor.store);
      PANDO_CHECK(logs.ok() && members.ok());
      for (const auto& [member, log] : *logs) {
        if (ended_.contains(member)) ghost_.Problem("a log of one that has ended");
      }
      if (logs->size() != members->size()) ghost_.Problem("members and logs differ");
    });
    return;
  }
}

MapPlayResult MapStage::result() const {
  MapPlayResult result = {.problems = ghost_.problems(), .recovered = recovered_};
  for (const Actor& actor : actors_) {
    result.won += actor.member->won;
    result.lost += actor.member->lost;
    result.uncertain += actor.member->uncertain;
    result.refused += actor.member->refused;
  }
  return result;
}

}  // namespace pando

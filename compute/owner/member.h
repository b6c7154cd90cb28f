// A member: a client that owns ranges of owned trees (rules O): it has a redo log, a serving lease
// where there are leases, and a session of its own for what goes on beside its users' operations:
// claims and recoveries, flushes, pings, and a look at the cluster now and then.
//
// A client with an owned tree open has one. It joins the cluster tree when it first needs a range,
// or at once if its options say so.
//
// Thread safety: from any thread, but for those for the client, which are called outside
// coroutines. Invariants:
//   1. One job at a time changes the cluster tree for this member (rule O4).
//   2. A range is added to a tree after its claim has succeeded, and nothing is appended to the log
//      before a client that recovers this member can find it (rule O9).
//   3. Only durable messages are flushed, and a record is in one flush at a time (rule B3).
//   4. The log's base passes no message that a record still needs (rule W5).
//   5. A member that cannot give up everything does not leave in order: it is recovered (rule O9).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/random.h"
#include "common/base/time_constants.h"
#include "common/fabric/peer.h"
#include "compute/core/control_channel.h"
#include "compute/core/membership.h"
#include "compute/core/session_context.h"
#include "compute/core/session_thread.h"
#include "compute/index/tree_context.h"
#include "compute/log/redo_log.h"
#include "compute/owner/append_times.h"
#include "compute/owner/claim.h"
#include "compute/owner/failed_recoveries.h"
#include "compute/owner/flush_team.h"
#include "compute/owner/load_report.h"
#include "compute/owner/log_room.h"
#include "compute/owner/loss.h"
#include "compute/owner/map_store.h"
#include "compute/owner/member_parts.h"
#include "compute/owner/owned_tree.h"
#include "compute/owner/peer_desk.h"
#include "compute/owner/serving_lease.h"
#include "compute/owner/spread_plan.h"
#include "compute/owner/turnstile.h"
#include "compute/peer/peer_client.h"
#include "compute/peer/peer_service.h"
#include "pando/owners.h"
#include "pando/stats.h"

namespace pando {

class GroupList;
class LogMove;
class Recovery;

class Member : private MemberLimits {
 public:
  using Parts = MemberParts;
  // In a tree: more are divided no further.
  static constexpr size_t kRangesMax = 64;

  // AlreadyExists, InvalidArgument: the service's address is taken, or is none.
  static absl::StatusOr<std::unique_ptr<Member>> Create(Parts parts);
  // Left, or without ranges; else whatever it owns is recovered by others.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // --- For the client. Block, to the deadline.
  // The tree's upper end has an entry from now on (rule O2).
  absl::Status Open(OwnedTree* tree, int64_t deadline_ns);
  // Flushes and gives up what it owns of the tree, which no session uses any more. An error: it
  // owns some of it still, and must not leave in order.
  absl::Status Close(OwnedTree* tree, int64_t deadline_ns);
  absl::Status Join(int64_t deadline_ns);
  // Rule O9: it owns nothing any more.
  absl::Status Leave(int64_t deadline_ns);
  // Rule O14: others get what it owns, while its trees are in use; then it takes nothing more. An
  // error: it goes on as before; or, where its entries are going, has nothing until another call.
  absl::Status Retire(int64_t deadline_ns);
  // Of a tree that was dropped: its entries of nobody go, and logs that no tree needs any more.
  absl::Status Tidy(uint32_t dropped_tree_id, int64_t deadline_ns);
  // Rule D6: recovers all that have ended, with what an operator has said.
  absl::Status AcceptLoss(LossAcceptance* acceptance, int64_t timeout_ns);
  // All of the tree's records that are dirty now are in their leaves (rule B4).
  absl::Status Flush(OwnedTree* tree, int64_t deadline_ns);
  // member_view.cpp: hints. The owner of the key; all ranges of the tree; all members with a log.
  absl::StatusOr<OwnerInfo> OwnerOf(OwnedTree* tree, std::string_view key, int64_t deadline_ns);
  absl::StatusOr<std::vector<RangeInfo>> ListRanges(OwnedTree* tree, int64_t deadline_ns);
  absl::StatusOr<std::vector<MemberInfo>> ListMembers(int64_t deadline_ns);
  // Of what it has and has done, but hits and misses, which sessions count.
  void AddTo(OwnedStats* stats) const;
  // Of its threads, which flush, and execute what peers ask: for whoever measures them.
  struct Sessions {
    std::vector<const SessionContext*> flushes, service;
  };
  Sessions sessions() const;

  // --- For operations, in coroutines.
  // Claims the range of the key, or takes it over from an owner that has ended. Ok: look again.
  absl::Status Obtain(OperationContext& context, OwnedTree* tree, std::string_view key);
  absl::Status Flush(OperationContext& context, OwnedTree* tree);  // as the one above
  // Before a range's leaves are written without messages (rule O8): its messages below `since` are
  // all in its leaves, and count no more in a recovery.
  absl::Status BeginLoad(OperationContext& context, OwnedTree* tree, OwnRange* range, Lsn since);
  // Rules O10, O11: for spreading, and tests of it. The range of the border, which is not its lower
  // one, is divided there; the range of the key is given to another member. Aborted: not now.
  absl::Status Split(OperationContext& context, OwnedTree* tree, std::string_view border);
  absl::Status Give(OperationContext& context, OwnedTree* tree, std::string_view key, MemberId to);
  // For a peer that asks (rules O12, O13). Whether the range of the key is this member's now; it
  // comes with so many operations a second.
  bool TakeFor(OperationContext& context, OwnedTree* tree, std::string_view key, uint64_t rate);
  LoadReport ReportLoad(OwnedTree* tree, std::string_view key) const;
  MemberId self() const { return {control_.compute_server(), control_.incarnation()}; }
  // Has another member execute it. As PeerClient::Call().
  absl::Status Ask(OperationContext& context, MemberId owner, std::string_view address,
                   const PeerRequest& request, PeerAnswer* answer);
  // The tree stays open between the two; nullptr: it is not open.
  OwnedTree* BeginVisit(uint32_t tree_id);
  void EndVisit(OwnedTree* tree);
  // Appends a message without waiting, under the mutex of its partition. Nothing: there is no room
  // in the log, or in memory for one more dirty record: ReserveForWrite(), which waits for it.
  std::optional<Lsn> TryAppend(const LogMessage& message);
  // Room in the log for one message, and in memory for one more dirty record (rules T4, W5, B2).
  absl::StatusOr<RedoLog::Reservation> ReserveForWrite(OperationContext& context, size_t key_bytes,
                                                       size_t value_bytes);
  RedoLog& log() { return *log_; }  // of one that has joined, as whoever has a range has
  ServingLease& lease() { return lease_; }
  int64_t retry_ns() const { return times_.lock_recovery_poll_ns; }  // before another look
  int64_t read_lease_ns() const { return times_.read_lease_ns; }
  int64_t lend_after_ns() const { return options_.lend_after_ns; }
  // Nothing of them is lent any more then (rule O15), nor lent anew for a while.
  void StopLending(Scheduler* scheduler, std::span<OwnRange* const> ranges) const;
  bool MayKeep(Random& random) const;  // a record that was READ
  // What a partition, whose mutex is held, takes, before and after a change.
  struct Sizes {
    size_t bytes = 0, dirty_bytes = 0, refused_bytes = 0;
  };
  static Sizes SizesOf(const Partition& partition);
  void NoteChange(const Sizes& before, const Partition& partition);
  // Makes room in this partition, whose mutex is held, if there is too little.
  void Evict(Partition* partition);
  // Memory servers have refused records (rule B3): new keys are refused. Ok: they have not.
  bool is_refusing() const { return is_refusing_.load(std::memory_order_relaxed); }
  absl::Status Refusal(bool overfills) const;  // of a longer value of what was refused
  // That takes as much as it may: no longer values either, nor others whose leaves are gone.
  bool refused_is_full() const;

 private:
  explicit Member(Parts* parts);
  absl::Status OpenPort(Parts* parts);  // for peers
  absl::Status StartThreads();

  using Job = std::function<absl::Status(OperationContext&)>;
  Scheduler& scheduler() { return session_->scheduler(); }
  int64_t NowNs() const { return session_->NowNs(); }
  bool log_failed() const;  // and does not move
  bool IsOpen(const OwnedTree* tree) const;
  OwnedTree* FindOpen(uint32_t tree_id) const;  // nullptr: it is not
  std::vector<OwnedTree*> OpenTrees() const;
  std::vector<uint32_t> OpenTreeIds() const;

  // --- member.cpp
  // Runs the job in a coroutine of the service and waits: outside coroutines, or in another's.
  absl::Status RunBlocking(int64_t deadline_ns, const Job& job);
  // A job gets `longest_ns`, a recovery more. Its caller waits for it, or until that is enough.
  absl::Status RunForCaller(OperationContext& caller, Job job, int64_t longest_ns = kJobNsMax,
                            const std::function<bool()>& is_enough = nullptr);
  void StartLoop(void (Member::*loop)(Parking*));
  void Stop();
  bool Pause(Parking* parking, int64_t until_ns);  // suspends a loop; false: it is to end
  // Of a range that could not be given up, at both turnstiles: its messages stay in the log.
  void Abandon(OwnedTree* tree, OwnRange* range);
  // Its records are nobody's any more, and no flush is under way.
  void DropRecords(OwnRange* range);
  // --- member_join.cpp: at the turnstile.
  LogRoom::Parts LogRoomParts();
  absl::Status JoinCluster(OperationContext& context);
  // Aborted: it has no room, but somebody else may have got it, for what this one has left.
  absl::Status JoinToOwn(OperationContext& context, MemberId owner);
  absl::StatusOr<std::vector<MemberId>> ListEnded(OperationContext& context);
  absl::Status LeaveToNobody(OperationContext& context, const MappedRange& range);
  // --- member_jobs.cpp, member_leave.cpp: at the turnstile.
  absl::StatusOr<bool> IsInCatalog(OperationContext& context, uint32_t tree_id);
  // The same, for a second at most: others wait for the turnstile. An error says neither.
  absl::StatusOr<bool> IsStillThere(OperationContext& context, uint32_t tree_id);
  absl::Status LeaveCluster(OperationContext& context);
  absl::Status FreeLog(OperationContext& context);  // that no entry names any more
  // A change of unknown outcome is settled before another one is begun (rule O3).
  absl::Status SettlePending(OperationContext& context);
  absl::Status ObtainRange(OperationContext& context, OwnedTree* tree, const std::string& key);
  // Whether the range is this member's now. An error, and pending_: perhaps.
  absl::StatusOr<bool> Take(OperationContext& context, OwnedTree* tree, RangeChange change);
  // A range whose entry is this member's, if its tree is there still (rule O8). OK: look again.
  absl::Status TakeUp(OperationContext& context, OwnedTree* tree, const MappedRange& range);
  static void ServeAgain(OwnRange* range);
  absl::Status Renew(OperationContext& context, OwnedTree* tree, OwnRange* range, Lsn since);
  static absl::Status KeptError();
  // If a tree is given, the key's range is first, and once that is here, each other has one turn.
  absl::Status Recover(OperationContext& context, MemberId ended, LossAcceptance* loss = nullptr,
                       OwnedTree* tree = nullptr, std::string_view key = {});
  struct Recovering;  // a range
  absl::Status RecoverRange(OperationContext& context, int64_t until_ns, Recovery* recovery,
                            Recovering* one);
  // For a tree that no session uses any more.
  absl::Status GiveUp(OperationContext& context, OwnedTree* tree, OwnRange* range);
  absl::Status GiveUpOrDiscard(OperationContext& context, OwnedTree* tree);
  bool DiscardIfDropped(OwnedTree* tree);
  int64_t ShareEndNs(OperationContext& context, size_t ranges) const;  // of one of them
  // For a range whose operations wait: it loses its owner, or serves again.
  absl::Status HandOver(OperationContext& context, OwnedTree* tree, OwnRange* range,
                        MemberId wished);
  bool OwnsSome() const;

  // --- member_moves.cpp: at the turnstile.
  static absl::Status Hold(OwnRange* range);
  absl::Status SplitRange(OperationContext& context, OwnedTree* tree, const std::string& border);
  void Divide(OwnedTree* tree, OwnRange* range, const RangeChange& split);  // at flushing_, too
  absl::Status GiveRange(OperationContext& context, OwnedTree* tree, OwnRange* range, MemberId to);
  // Somebody else is to claim it, and has some time for that.
  bool AwaitsWished(const MappedRange& range);
  // The same, looked at just now.
  bool IsOnItsWay(const OwnedTree& tree, std::string_view key) const;
  // A member that has left asks others to claim ranges without an owner.
  absl::Status AskOtherToClaim(OperationContext& context, OwnedTree* tree, const std::string& key);
  // --- Not at the turnstile. Little is left to be flushed then once nothing is written any more.
  absl::Status FlushAhead(OperationContext& context, OwnedTree* tree, OwnRange* range);
  // Of a division's lower part: before it what is dirty, after it what is clean.
  absl::Status FlushBelow(OperationContext& context, OwnedTree* tree, OwnRange* range,
                          const std::string& border);
  void FollowRecords(OperationContext& context, OwnedTree* tree);
  using Other = OtherMember;
  // Whether it has taken it.
  bool Tell(OperationContext& context, OwnedTree* tree, const MappedRange& range, const Other& to,
            double rate);
  absl::Status GiveEverything(OperationContext& context);
  absl::Status GiveAll(OperationContext& context, OwnedTree* tree);

  // --- member_lend.cpp: how long nobody wrote; what is to be lent is flushed.
  void LookAtLending(OwnedTree* tree);

  // --- member_spread.cpp
  // The tree is not closed meanwhile; nullptr: it is closed.
  class Visit;
  void MeasureLoop(Parking* parking);
  void LendLoop(Parking* parking);
  void SpreadLoop(Parking* parking);
  void Measure();
  void SumLoads(const std::vector<OwnPlace>& places);
  void Spread(OwnedTree* tree);
  absl::Status Follow(OwnedTree* tree, OwnRange* range, const SpreadStep& step, Other* to);
  void DivideBusiest(OwnedTree* tree);  // until it has ranges_min of the tree's
  // What is dirty below the border is flushed before: little is moved in the step.
  absl::Status FlushAndSplit(OwnedTree* tree, OwnRange* range, const std::string& border);
  absl::StatusOr<std::vector<Other>> ListOthers(OperationContext& context, uint32_t tree_id);
  // In a coroutine of the service session. The answer's status, too.
  absl::Status AskInService(OperationContext& context, const Other& other,
                            const PeerRequest& request, PeerAnswer* answer);

  // --- member_flush.cpp, member_room.cpp
  using Place = OwnPlace;
  std::vector<Place> Places() const;  // in the order of trees and keys
  void FlushLoop(Parking* parking);
  // Does something, if there is something. True: there is more, and others waited for their turn.
  bool FlushUntilLow(OperationContext& context);
  void TryRefused(OperationContext& context);
  // Of all trees, the one with most of them last. None: in the order of keys.
  std::vector<DirtyGroup> FullestGroups(OperationContext& context);
  bool AddGroups(OperationContext& context, const Place& place, size_t* descents,
                 std::vector<DirtyGroup>* groups);
  // Some of the records of the last ones, which are taken from the list; how many. In any session
  // that flushes.
  size_t FlushGroups(OperationContext& context, GroupList* groups);
  // The team does so as well, until there are no more of them, or enough was flushed.
  std::unique_ptr<FlushTeam::Run> CallTeam(OperationContext& context,
                                           std::shared_ptr<GroupList> groups);
  bool WantsFlush() const;  // too much is dirty, or in the log
  // Some of the dirty records with messages below that, from where the last call ended; how many.
  size_t FlushSome(OperationContext& context, Lsn below, bool refused);
  // In any session that flushes; how many.
  absl::StatusOr<size_t> FlushItems(OperationContext& context, OwnedTree* tree, OwnRange* range,
                                    const std::vector<FlushItem>& items);
  // What is refused (erases, too: that cannot be flushed), and has messages below that, gets new
  // ones (rule W5), the oldest first.
  size_t AppendAgain(OperationContext& context, Lsn below, bool erases);
  // What is dirty in the range, a part of it at a time under its mutex.
  void SeeDirty(OperationContext& context, OwnRange* range,
                absl::FunctionRef<void(const Partition::Seen&)> see);
  absl::Status FlushTree(OperationContext& context, OwnedTree* tree);
  // All that is dirty in it now (rule B4). `pass`: of the flushes' turnstile: others have turns
  // between rounds. nullptr: only the jobs' is held, the range on hold. Aborted: divided, or gone.
  absl::Status FlushRange(OperationContext& context, OwnedTree* tree, OwnRange* range,
                          Turnstile::Pass* pass);
  // What is owed in it since then (Partition::owing()).
  absl::Status FlushOwed(OperationContext& context, OwnedTree* tree, OwnRange* range,
                         Turnstile::Pass* pass, uint64_t owing);
  absl::Status LetOthersFlush(OperationContext& context, Turnstile::Pass* pass, OwnedTree* tree,
                              OwnRange* range);
  // In a second at most, but for a chain to the log that has failed, and not while the log moves:
  // others wait for the turnstile. `exactly`: to the oldest needed message, with a look at each.
  absl::Status AdvanceBase(OperationContext& context, bool exactly = false);
  // --- member_deletes.cpp (rule B5)
  // Until the flush loop looks again, at most so long.
  int64_t DeletePauseNs(int64_t longest_ns) const;
  // Of what is collected: what has not come to its leaf by then stays dirty for another turn.
  int64_t FlushRoundNs() const;
  void NoteTime();
  // Tombstones whose time has come; notes how old the oldest is. At the flushes' turnstile.
  void FlushOverdue(OperationContext& context);
  bool FlushTombstones(OperationContext& context, OwnedTree* tree, OwnRange* range, Lsn below);
  uint64_t OldestTombstoneMs() const;
  // Tells the catalog's server, for whoever wants to know; it has been told of `*told`.
  void SayDeletes(OperationContext& context, bool* told) const;
  // Of a range that is being adopted, what memory servers have no room for goes to this member's
  // log and to adopted_ (rule D4). Ok: it is durable. Else none of it is there. At the turnstile.
  absl::Status AppendAdopted(OperationContext& context, const MappedRange& range,
                             const std::vector<FlushItem>& refused, const absl::Status& why);
  void DropAdopted();
  void NoteRefusing();
  void KickFlush();
  void WakeWriters();
  // Of dirty records; the second, which is less while some are refused: beyond it writers wait;
  // beyond the third they are flushed, until the fourth is reached.
  size_t DirtyBytesMax() const;
  size_t DirtyBytesMaxNow() const;
  size_t HighMark() const { return DirtyBytesMaxNow() / 8 * 7; }
  size_t LowMark() const { return DirtyBytesMaxNow() / 4 * 3; }
  bool HasRoom() const;
  absl::Status AwaitRoom(OperationContext& context);
  bool LogIsFull() const;  // so that what holds its base is flushed first (rule W5)

  // --- member_loops.cpp
  absl::Status RenewLease(OperationContext& context);  // rule O5
  void LeaseLoop(Parking* parking);
  void TendLoop(Parking* parking);
  void LogLoop(Parking* parking);
  void LookLoop(Parking* parking);
  void LinkLoop(Parking* parking);
  void NoteEnded(MemberId member);  // to whom there may be a link
  // `pass`: others have their turn between two of them; nullptr: they have not.
  absl::Status LookForEnded(OperationContext& context, Turnstile::Pass* pass = nullptr);
  absl::Status LookAtEnded(OperationContext& context, MemberId ended);
  // With its address, if it has one.
  absl::StatusOr<OwnerInfo> Describe(OperationContext& context, MemberId member);
  // Nothing: it does not answer.
  std::optional<LoadReport> AskForLoad(OperationContext& context, OwnedTree* tree,
                                       const MappedRange& range, const OwnerInfo& owner);
  absl::Status FreeLostExtents(OperationContext& context);
  absl::Status FreeLostExtentsOf(OperationContext& context, ServerId server);
  // Whether this member can bring the recovery of who had these to its end.
  absl::StatusOr<bool> CanTake(OperationContext& context, const std::vector<MappedRange>& ranges);
  // The tree was dropped, or is lost: its records are discarded.
  void Discard(OwnedTree* tree);

  SessionThread thread_;  // without one if event-driven
  SessionContext* const session_;
  const std::function<void(const SessionContext*)> on_session_end_;
  const bool event_driven_;
  ControlChannel& control_;
  Membership& members_;
  const ServerId catalog_server_;
  TreeContext& cluster_tree_;
  const std::function<bool(ServerId)> is_gone_;
  const std::function<void()> on_fenced_;
  const uint32_t packet_bytes_;
  const TimeConstants times_;
  const MemberOptions options_;
  SharedMapStore map_;
  StampSource stamps_;
  ServingLease lease_;

  PeerDesk desk_;
  std::vector<const SessionContext*> service_sessions_;
  std::unique_ptr<PeerService> service_;
  std::unique_ptr<PeerClient> peers_;
  std::unique_ptr<PeerPort> port_;  // nullptr: no links, or the member is being closed
  std::string address_;             // of the port, as long as there are loops; "": no links

  // Of rules O11 to O14.
  std::vector<RangeWish> wishes_;         // the service's; few, the newest last
  std::map<uint32_t, SpreadPlan> plans_;  // the service's; by tree
  std::atomic<uint64_t> load_{0};         // operations a second
  std::atomic<bool> retired_{false};      // it takes nothing
  std::atomic<int> asking_{0};            // of the service's coroutines, whom others have to answer
  std::atomic<bool> asks_end_{false};     // nothing is asked any more

  LogRoom log_room_;  // at turnstile_
  // Of a member that has joined.
  std::unique_ptr<RedoLog> log_;
  std::unique_ptr<LogMove> log_move_;
  LogEntry log_entry_;
  MemberEntry member_entry_;
  std::atomic<bool> joined_{false}, has_log_{false};  // the second: and perhaps entries, too
  // It could not give up what it owned: from the lowest of these messages on the log is needed.
  std::atomic<bool> keeps_entries_{false};
  bool erases_entries_ = false;            // the service's: it leaves, and nothing takes that back
  bool frees_log_ = false;                 // the service's: it has left, and its log is not freed
  Lsn kept_lsn_ = UINT64_MAX;              // the service's
  std::optional<AdoptedRecords> adopted_;  // the service's; perhaps, while there is pending_

  mutable std::mutex mutex_;
  std::vector<OwnedTree*> trees_;                 // that are open
  std::deque<std::shared_ptr<Parking>> writers_;  // that wait for room
  absl::Status refused_;                          // why memory servers took no new keys
  OwnedStats stats_;
  std::atomic<size_t> bytes_{0}, dirty_bytes_{0}, refused_bytes_{0}, adopting_bytes_{0};
  std::atomic<bool> is_refusing_{false}, flush_wanted_{false}, stopping_{false};
  std::mutex refusing_mutex_;  // before partitions' mutexes: no refusal is told while that is noted

  // The service's coroutines.
  std::unique_ptr<Turnstile> turnstile_, flushing_, retiring_;
  std::unique_ptr<FlushTeam> team_;              // at work only while a coroutine is at flushing_
  std::vector<std::unique_ptr<Parking>> loops_;  // under mutex_
  Parking* flush_parking_ = nullptr;             // under mutex_
  uint32_t flush_tree_id_ = 0;                   // where the last round has ended
  std::string flush_from_;
  int64_t try_refused_ns_ = 0;
  AppendTimes appended_;
  std::atomic<uint64_t> tombstones_{0};
  std::atomic<int64_t> oldest_tombstone_ns_{INT64_MAX};  // appended then, or later
  std::optional<RangeChange> pending_;                   // not settled yet
  std::atomic<int> hurries_{0};  // of who waits for a recovery, without a deadline
  FailedRecoveries failed_;      // at turnstile_
};

}  // namespace pando

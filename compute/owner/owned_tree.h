// An open owned tree as a session executes operations on it (rules O, T, B): at the owner of the
// key, in its memory, with the leaves of a shared tree below.
//
// Thread safety: shared by all sessions of a client. Invariants:
//   1. Whether a key is owned, its message's LSN and the change of its record are one step under
//      the mutex of its partition (rule T4). No mutex is held across a suspension.
//   2. An answer is given when what it says is durable in the log and, after that, the serving
//      lease was still held (rules T3 to T5, O5). So no answer says what a death can undo.
//   3. What is said of a key that has no record is what its leaf held at a READ during which the
//      key had none (rule T3).
//   4. A write whose message was appended is done, or of unknown outcome; before that it had no
//      effect (rule T6).
//   5. In a tree with large values records, log and leaves have what slots hold (value_cell.h). A
//      reference is appended by the member that was granted its cell, and who appends knows what it
//      replaces, whose cell is freed once the message is durable (rules K6, K7: owned_cells.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/core/session_context.h"
#include "compute/index/erase_range.h"
#include "compute/index/operations.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "compute/log/redo_log.h"
#include "compute/owner/own_range.h"
#include "compute/owner/read_leases.h"
#include "compute/peer/peer_format.h"
#include "compute/value/cell_store.h"
#include "compute/value/owned_slots.h"

namespace pando {

class Member;

// What of a range was erased.
struct ErasedPiece {
  KeyCut reached;                 // so far
  std::vector<std::string> keys;  // these, unless somebody else was quicker
};

class OwnedTree final : public OwnedSlots {
 public:
  // Both outlive this.
  OwnedTree(TreeContext* leaves, Member* member);
  OwnedTree(const OwnedTree&) = delete;
  OwnedTree& operator=(const OwnedTree&) = delete;

  // Results and errors: as the operations of a shared tree of that name
  // (compute/index/operations.h). At the key's owner, whoever that is: owned_route.cpp.
  absl::Status Get(OperationContext& context, std::string_view key, std::string* value) override;
  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* answer) override;
  // Writes at the head of `writes`, at least one; how many have their results. Puts share a
  // commit.
  size_t WriteRun(OperationContext& context, absl::Span<const RunWrite> writes) override;
  // All keys of the range, leaves at a time, each by its owner.
  absl::Status EraseRange(OperationContext& context, const KeyRange& range, NoteErased note,
                          ErasedKeys* keys);
  // Up to where writes go to the same place as one to this key, as far as is known; "": to the end.
  std::optional<std::string> NextBorder(std::string_view key) const override;
  // OwnedReader, from one place to the next.
  absl::Status ReadOn(OperationContext& context, KeyCut* at, const KeyCut& end, bool down,
                      size_t leaves_max, LeafReader::Take take) override;

  // The same where this member owns the key. Nothing: it does not, and nothing has happened.
  std::optional<absl::Status> GetHere(OperationContext& context, std::string_view key,
                                      std::string* value);
  std::optional<absl::Status> WriteHere(OperationContext& context, const WriteOperation& operation,
                                        std::string* answer);
  // Of a write that a peer has sent. Where its value is a reference that is to the peer's cell:
  // what is there goes to one of this member's own (rule K6).
  std::optional<absl::Status> WriteForPeer(OperationContext& context,
                                           const WriteOperation& operation, std::string* answer);
  // Keys of the range, which has some place between its cuts, from its beginning on: those of the
  // next leaves, or as many of them as three quarters of the time allow, are erased by messages,
  // and their leaves hear of it as of others. OK: it has got on. Unknown: some of them may be
  // erased.
  std::optional<absl::Status> EraseHere(OperationContext& context, const KeyRange& range,
                                        ErasedPiece* piece);

  // For a peer that asks for the key's range (rule O15): its borders, and whether it is lent.
  // False: this member does not own it.
  bool LendHere(OperationContext& context, std::string_view key, PeerAnswer* answer);

  // Rule O8: of a tree without any records. Others' operations wait meanwhile.
  absl::Status BulkLoad(OperationContext& context, NextEntry next) override;
  // All records that are dirty now are in their leaves (rule B4).
  absl::Status Flush(OperationContext& context);

  TreeContext& leaves() { return leaves_; }
  uint32_t id() const { return leaves_.id(); }
  // Rule B5; 0: there is no deadline.
  uint32_t delete_persistence_ms() const { return leaves_.entry.delete_persistence_ms; }

  // The range of the key that this member serves, or waits with; nullptr: none. Valid for as long
  // as this tree.
  OwnRange* FindOwn(std::string_view key) const;
  // All of them, ascending.
  std::vector<OwnRange*> OwnRanges() const;

  // --- For the member: ranges come and go.
  // From now on operations find it.
  OwnRange* Add(std::unique_ptr<OwnRange> range);
  // Operations that find it have to look again (State::kGone).
  void Remove(OwnRange* range);
  // The same in one step, with two for one; under the mutexes of all three.
  void Divide(OwnRange* range, std::unique_ptr<OwnRange> lower, std::unique_ptr<OwnRange> upper);
  // Another member that owns some keys, as the map was seen: a hint.
  struct Owner {
    MemberId id;
    std::string address;
  };
  void Learn(const MappedRange& range, std::string address);
  void Forget(std::string_view key);
  std::optional<Owner> OwnerOf(std::string_view key) const;
  // The catalog has said that it is no more: nothing of it is served that is not served now.
  void NoteDropped() { dropped_.store(true, std::memory_order_release); }
  bool dropped() const { return dropped_.load(std::memory_order_acquire); }
  absl::Status DroppedError() const;  // FailedPrecondition
  // Peers whose requests are being executed.
  std::atomic<int> visitors{0};

 private:
  friend class OwnedReader;
  // Of all lists there were the one with these instead.
  void SetRanges(std::vector<OwnRange*> ranges);
  // What a write decided, under the partition's mutex.
  struct Decision;

  using Lock = std::unique_lock<Partition::Mutex>;

  // --- owned_erase.cpp. The next piece of the range, which becomes what is left. An error: nothing
  // is known to have happened. `keys`: of the caller; may be null.
  absl::Status EraseNext(OperationContext& context, KeyRange* range, uint64_t* erased,
                         ErasedKeys* keys);

  struct Hint {
    MappedRange range;
    Owner owner;
  };

  // --- owned_route.cpp
  // Until somebody has executed it: `here`, which is GetHere() or the like, or a peer, whose answer
  // `answer` is then.
  absl::Status Route(OperationContext& context, std::string_view key,
                     absl::FunctionRef<std::optional<absl::Status>()> here,
                     const PeerRequest& request, PeerAnswer* answer);
  absl::Status WriteElsewhere(OperationContext& context, const WriteOperation& operation,
                              std::string* answer);
  // --- owned_lent.cpp: reads of others' keys from leaves on loan (rule O15).
  // The key's range, if it is lent to this client, which asks for that now and then. What is READ
  // from here on counts, however long that takes: at this moment leaves had all of the range.
  ReadLease* Borrow(OperationContext& context, std::string_view key);
  // Some leaf of it could not be READ. Its owner may have in memory what is there. The
  // READ began then: where the caller had less time than a read lease has, and it is over, that
  // says nothing about the leaf.
  void NoteUnreadable(OperationContext& context, int64_t began_ns, ReadLease* lease);
  // Nothing: it is not lent.
  std::optional<absl::Status> GetLent(OperationContext& context, std::string_view key,
                                      std::string* value);
  // A write of an own range that is lent waits for the end of that, in this hold or without the
  // lock. True: it has waited, and looks again.
  absl::StatusOr<bool> AwaitUnlent(OperationContext& context, OwnRange* range, Lock* lock);

  // After a piece of bad luck: nothing was done. An error: the deadline has passed.
  absl::Status AwaitRetry(OperationContext& context, const absl::Status& why);

  // OK: the range serves, or has gone. The lock is let go meanwhile.
  absl::Status AwaitServing(OperationContext& context, OwnRange* range, Lock* lock);
  // Somebody READs the leaf for this key, as `view` says: waits for that. `is_absent`: the tree did
  // not have the key meanwhile, and that is the answer; else look again.
  absl::Status AwaitLoad(OperationContext& context, OwnRange* range, std::string_view key,
                         const Partition::View& view, Lock* lock, bool* is_absent);
  // READs the leaf for a key without a record, as `view` says; `found` has what it holds (no value:
  // the key is absent). Whether that counts is not known yet: the caller looks, in this hold of the
  // lock, and puts a message over the placeholder, if it is still this READ's, or keeps what was
  // found.
  absl::StatusOr<Load> ReadLeaf(OperationContext& context, OwnRange* range, std::string_view key,
                                const Partition::View& view, Lock* lock,
                                std::optional<std::string>* found);
  // False: the READ does not count, look again.
  bool KeepLoaded(OperationContext& context, OwnRange* range, std::string_view key, Load load,
                  const std::optional<std::string>& found);
  // Rule T9: a record that is found, as `view` says, before it is touched.
  void Show(OwnRange* range, const Partition::View& view);
  // What a key that is erased was READ to have (rule K7).
  struct Replaced {
    std::optional<CellReference> cell;
    // As of before the READ.
    const OwnRange* range = nullptr;
    Partition::Moment read;
    bool may_be_another = false;  // the key may have a newer cell, that nobody knows of
  };
  // What the record, or the lack of one, says of that.
  static void NoteReplaced(const OwnRange& range, const Partition::View& view, Replaced* replaced);
  // Rule T4: a put, or an erase (no value), that need not know what is there. An error: it has no
  // effect. kNoLsn: neither has a put that has to know now, as memory servers have begun to refuse
  // new keys (rule B3). `replaced`, if given: becomes what there is when it is erased.
  std::optional<absl::StatusOr<Lsn>> AppendBlind(OperationContext& context, std::string_view key,
                                                 std::optional<std::string_view> value,
                                                 Replaced* replaced = nullptr);
  // What a write has appended, which nobody has waited for.
  struct Appended {
    Lsn lsn = kNoLsn;                       // none: it had no effect
    std::optional<CellReference> replaced;  // the cell of what was there
  };
  // Rule T5. `appended`, if given: it is not concluded.
  std::optional<absl::Status> WriteKnowing(OperationContext& context,
                                           const WriteOperation& operation, std::string* answer,
                                           Appended* appended = nullptr);
  // --- owned_cells.cpp: of a tree with large values.
  std::optional<absl::Status> WriteWithCells(OperationContext& context,
                                             const WriteOperation& operation, std::string* answer);
  // How many of the first ones are appended, or refused.
  size_t WriteRunWithCells(OperationContext& context, absl::Span<const RunWrite> writes);
  // The end of a write of which `appended` is known; its status, if it was appended.
  absl::Status ConcludeWithCells(OperationContext& context, const WriteOperation& operation,
                                 const Appended& appended, absl::Status refusal);
  void FreeCell(OperationContext& context, std::string_view key, const CellReference& cell);
  // This client has written the cell, and no message refers to it (rule K6).
  void FreeUnlinked(OperationContext& context, const WriteOperation& operation);
  Decision Decide(const WriteOperation& operation, std::optional<std::string_view> present,
                  std::string* answer) const;
  // Appends the message, with room that is reserved or there, and changes the record, which `view`
  // has just shown, in one step under the lock. No value: a tombstone. Nothing: there is no room.
  std::optional<Lsn> Store(OwnRange* range, RedoLog::Reservation* reservation,
                           const Partition::View& view, std::string_view key,
                           std::optional<std::string_view> value);
  // Whether a value of this size is too much for the log, where the record will not leave it for
  // want of memory (rule B3).
  bool Overfills(const Partition::View& view, size_t value_bytes) const;
  absl::Status AwaitLease(OperationContext& context);
  // The last look before an answer: what has this LSN is durable, and then the lease is held.
  absl::Status ConcludeRead(OperationContext& context, Lsn lsn);
  // Of a write that was appended: an error is an unknown outcome.
  absl::Status ConcludeWrite(OperationContext& context, Lsn lsn);

  TreeContext& leaves_;
  Member& member_;
  std::optional<CellStore> cells_;  // of a tree with large values
  std::atomic<bool> dropped_{false};

  using Ranges = std::vector<OwnRange*>;  // ascending
  std::atomic<const Ranges*> ranges_{nullptr};
  std::mutex ranges_mutex_;
  // Whatever a session may still look at: few, and kept as long as the tree is open.
  std::vector<std::unique_ptr<const Ranges>> all_lists_;
  std::vector<std::unique_ptr<OwnRange>> all_ranges_;

  std::vector<Hint>::const_iterator HintAt(std::string_view key) const;
  ReadLeases read_leases_;
  mutable std::mutex hints_mutex_;
  std::vector<Hint> hints_;  // ascending; of no key are there two
};

}  // namespace pando

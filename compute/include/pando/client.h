// The Pando client library: a distributed ordered index over the memory of memory servers.
//
//   auto client = pando::Client::Connect({.registry = "/run/pando"});
//   auto tree = (*client)->CreateTree("words", {.key_bytes_max = 64});
//   auto session = (*client)->NewSession();
//   (*session)->Put(**tree, "key", "value");
//   auto value = (*session)->Get(**tree, "key");          // StatusOr<std::string>
//
// Statuses (absl): NotFound, AlreadyExists, InvalidArgument (keys, values, options),
// FailedPrecondition (another value than expected: IsConditionFailed(); other options for an
// existing tree, another format or kind of tree; this client was fenced: Client::fenced()),
// ResourceExhausted (memory servers are full: reads, updates and erases go on), DeadlineExceeded
// (the operation had no effect), Unknown = IsOutcomeUnknown() (it may or may not have had one),
// Unavailable (a memory server is gone), DataLoss (damaged remote memory, or a memory server has
// started again without what the tree had there).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pando/check.h"
#include "pando/cursor.h"
#include "pando/erase.h"
#include "pando/options.h"
#include "pando/owners.h"
#include "pando/size.h"
#include "pando/stats.h"
#include "pando/upsert.h"
#include "pando/write.h"

namespace pando {

// The library's inside, which is not installed.
class ClientImpl;
class SessionImpl;
class TreeImpl;
struct ImplAccess;
class Session;

// True for the status of an operation that may or may not have taken effect.
bool IsOutcomeUnknown(const absl::Status& status);
// True for the FailedPrecondition of a conditional write or an upsert that was refused because of
// the key's value, and of nothing else: it had no effect.
bool IsConditionFailed(const absl::Status& status);

// A handle to an open tree. Thread-safe. Keep it while operations use it; the memory of a dropped
// tree is given back when the last handle of the last client is gone.
class Tree {
 public:
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  const std::string& name() const;
  uint32_t key_bytes_max() const;
  uint32_t value_bytes_max() const;
  uint32_t node_bytes() const;
  TreeOptions::Mode mode() const;

 private:
  friend struct ImplAccess;
  explicit Tree(std::shared_ptr<TreeImpl> impl);

  std::shared_ptr<TreeImpl> impl_;
};

struct TreeInfo {
  std::string name;
  uint32_t key_bytes_max = 0, value_bytes_max = 0, node_bytes = 0;
  TreeOptions::Mode mode = TreeOptions::Mode::kShared;
  uint32_t delete_persistence_ms = 0;
};

// Memory servers as the client sees them.
struct ServerStatus {
  uint16_t id = 0;
  bool available = false;
  bool is_catalog = false;
  uint64_t region_bytes = 0, free_bytes = 0, used_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> counters;
};

// One compute server: index cache and local lock tables shared by its sessions. Thread-safe. Memory
// servers may come, go and come back: it takes up a new one within two seconds.
// Sessions and trees must be gone before the client is destroyed (CHECKed).
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();  // leaves in order

  // Create if absent; an existing tree with other options is FailedPrecondition. Names that begin
  // with a dot are the library's own: InvalidArgument, here and below; no list has them.
  absl::StatusOr<std::unique_ptr<Tree>> CreateTree(std::string_view name,
                                                   const TreeOptions& options);
  absl::StatusOr<std::unique_ptr<Tree>> OpenTree(std::string_view name);
  // The name is free at once; open handles go on working until they are closed, without growing.
  absl::Status DropTree(std::string_view name);
  absl::StatusOr<std::vector<TreeInfo>> ListTrees();
  // Whether every memory server on which the tree may have nodes is there, and is the one it was:
  // what a program asks before it says that all went well. Unavailable: one is gone, or does not
  // answer; DataLoss: one has started again without what the tree had there; NotFound: the tree was
  // dropped.
  absl::Status TreeStatus(const Tree& tree);
  std::vector<ServerStatus> Servers();

  // Owned trees (FailedPrecondition for a shared one, and inside a task of a session). All of it is
  // a hint: owners come and go.
  // Whose the key is now: a round trip or none. A service that sends a request there spares the
  // message that the operation would cost here.
  absl::StatusOr<OwnerInfo> OwnerOf(const Tree& tree, std::string_view key);
  // In the order of keys.
  absl::StatusOr<std::vector<RangeInfo>> ListRanges(const Tree& tree);
  // In the order of compute servers; without owned trees there are none.
  absl::StatusOr<std::vector<MemberInfo>> ListMembers();
  // Before a program ends, while it is still in use: all keys that this client owns go to others
  // that have their trees open (or to nobody, where there are none), its redo log is freed, and it
  // owns nothing more for its life; its operations are executed by others. Up to `timeout_ms`
  // milliseconds (0: ClientOptions::connect_timeout_ms). DeadlineExceeded, or what else keeps its
  // records from their leaves: it owns some keys still, goes on as before, and may be asked again.
  // FailedPrecondition: it was cut off, or a task of a session calls. Thread-safe; blocks.
  absl::Status Leave(int64_t timeout_ms = 0);

  absl::StatusOr<std::unique_ptr<Session>> NewSession();

  // Gives a function to Session::Upsert() under a number from kFirstRegistered on, for as long as
  // the client lives. Compute servers that upsert the same keys should have the same functions:
  // nobody checks that. InvalidArgument (number, no function), AlreadyExists.
  absl::Status RegisterUpsertFunction(uint32_t number, UpsertCallback function);

  // True: a memory server has not heard of this compute server for a lease or has lost its
  // connection, has declared it dead and cut it off (only on fabrics that can; not on shm). Or the
  // client itself leaves, so that others get a lock that it could not free for fifteen seconds.
  // Nothing it does reaches memory any more, every operation is FailedPrecondition; one that was
  // under way may be of unknown outcome. Close it and connect again: that is another incarnation.
  bool fenced() const;

  ClientStats Stats() const;
  uint16_t compute_server_id() const;

 private:
  friend struct ImplAccess;
  explicit Client(std::unique_ptr<ClientImpl> impl);

  std::unique_ptr<ClientImpl> impl_;
};

// What a sweep did.
struct SweepResult {
  uint64_t freed = 0;    // nodes that nothing reached
  uint64_t settled = 0;  // nodes of the dead that are the tree's
  uint64_t left = 0;     // held by a client that not every memory server knows to be dead yet
};

struct KeyValue {
  std::string key, value;
  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

// One thread's handle: its own queue pairs and coroutines. Not thread-safe: all calls from one
// thread. Every operation may be called from outside (it blocks) or inside a task of this session
// (it suspends the task). An operation is linearizable per key. Keys: 1..key_bytes_max bytes;
// values: 0..value_bytes_max; any bytes.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  absl::StatusOr<std::string> Get(const Tree& tree, std::string_view key,
                                  const OperationOptions& options = {});
  // As Get, into a caller's string (no allocation once it has capacity).
  absl::Status GetTo(const Tree& tree, std::string_view key, std::string* value,
                     const OperationOptions& options = {});
  // Blind upsert.
  absl::Status Put(const Tree& tree, std::string_view key, std::string_view value,
                   const OperationOptions& options = {});
  absl::Status Insert(const Tree& tree, std::string_view key, std::string_view value,
                      const OperationOptions& options = {});  // AlreadyExists
  absl::Status Update(const Tree& tree, std::string_view key, std::string_view value,
                      const OperationOptions& options = {});  // NotFound
  absl::Status Erase(const Tree& tree, std::string_view key,
                     const OperationOptions& options = {});  // NotFound

  // Decided and done in one step, under the leaf's lock. NotFound: the key is absent.
  // IsConditionFailed(): it holds another value, which is copied to `*actual`; nothing is changed.
  // `*actual` counts only then.
  absl::Status Replace(const Tree& tree, std::string_view key, std::string_view expected,
                       std::string_view desired, const OperationOptions& options = {},
                       std::string* actual = nullptr);
  absl::Status EraseIf(const Tree& tree, std::string_view key, std::string_view expected,
                       const OperationOptions& options = {}, std::string* actual = nullptr);
  // The function's new value (upsert.h), which is stored; it is applied once, or not at all where
  // that is not IsOutcomeUnknown(). InvalidArgument: no such function, or an operand that it does
  // not take. IsConditionFailed(): the function refused, or its result is longer than
  // value_bytes_max; nothing is changed.
  absl::StatusOr<std::string> Upsert(const Tree& tree, std::string_view key,
                                     UpsertFunction function, std::string_view operand,
                                     const OperationOptions& options = {});
  // As Upsert, into a caller's string; where IsConditionFailed() that gets the present value.
  absl::Status UpsertTo(const Tree& tree, std::string_view key, UpsertFunction function,
                        std::string_view operand, std::string* value,
                        const OperationOptions& options = {});

  // At most `limit` entries with key >= from, ascending; `from` may be any bytes. Sorted, each key
  // once, every key that was present throughout, each pair having been current at some moment of
  // the scan; not a snapshot. On error `rows` holds nothing.
  absl::Status Scan(const Tree& tree, std::string_view from, size_t limit,
                    std::vector<KeyValue>* rows, const OperationOptions& options = {});
  // All entries of the range at once, descending if it is reverse: {.from = "a", .to = "b"}.
  absl::Status Scan(const Tree& tree, const CursorOptions& options, std::vector<KeyValue>* rows);
  // The same entry by entry, in both directions (cursor.h). Never null: what is wrong with the
  // options is said by its status(). No round trip. The tree's handle outlives the cursor.
  std::unique_ptr<Cursor> NewCursor(const Tree& tree, const CursorOptions& options = {});

  // Many gets at once over this session's coroutines. One result per key, in order. The timeout is
  // of the call: what has had no turn by then is DeadlineExceeded.
  std::vector<absl::StatusOr<std::string>> MultiGet(const Tree& tree,
                                                    const std::vector<std::string>& keys,
                                                    const OperationOptions& options = {});
  // Many writes at once, of any kinds; one result each, in the order of `writes`. Sorted and shared
  // out among this session's coroutines by leaf (as PALM does among threads: Sewall et al., VLDB
  // 2011), so that those of one leaf are one locked update: some 2 round trips a leaf, not a write.
  //
  // Each is an operation by itself, linearizable and whole or absent; of several nothing is
  // promised together: others may see some of them and not yet the rest, and one that fails undoes,
  // and holds up, no other. Those on one key take effect in the order of `writes`; those on
  // different keys in any.
  //
  // Errors are each write's own, as its Session operation has them. A key, value, operand or
  // function that is no good is InvalidArgument, and concerns that write alone. The timeout is of
  // the call: what has had no turn by then is DeadlineExceeded, without effect; what was under way
  // may be IsOutcomeUnknown(). A negative one is InvalidArgument for all of them. Where memory
  // servers are full those that need more of it are ResourceExhausted, and the others are stored.
  std::vector<WriteResult> WriteMany(const Tree& tree, const std::vector<Write>& writes,
                                     const OperationOptions& options = {});
  // WriteMany() of puts, or of erases (NotFound): one status each, in order.
  std::vector<absl::Status> MultiPut(const Tree& tree, const std::vector<KeyValue>& entries,
                                     const OperationOptions& options = {});
  std::vector<absl::Status> MultiErase(const Tree& tree, const std::vector<std::string>& keys,
                                       const OperationOptions& options = {});

  // Erases all keys with from <= key < to; bounds are any bytes, and without `to` it goes to the
  // end. Of shared trees by leaf: less than three round trips each, and leaves that are emptied go.
  // Of owned ones by messages, many to a round trip; the leaves hear of it later.
  //
  // Not atomic: each key is erased at a moment of its own, once, between call and return, and what
  // others put meanwhile may stay. So where the call ends early (DeadlineExceeded, Unknown,
  // Unavailable, Cancelled) some keys are erased and others are not. `*result` (erase.h) says how
  // far it has come and where to go on; a call of the same range does as well. Others' operations
  // go on all the while.
  absl::Status EraseRange(const Tree& tree, std::string_view from,
                          std::optional<std::string_view> to, RangeErased* result = nullptr,
                          const EraseRangeOptions& options = {});

  // Fills an empty tree from strictly ascending entries: `next` returns false at the end.
  // FailedPrecondition if the tree is not empty; InvalidArgument if the keys are not ascending, and
  // Cancelled if `next` throws, with what it says (nothing becomes visible then). DataLoss: a
  // memory server has started again without what was loaded there. Unknown: also where the entries
  // were stored, and nobody could say whether all memory servers still have them
  // (Client::TreeStatus()).
  absl::Status BulkLoad(const Tree& tree, const std::function<bool(KeyValue*)>& next);

  // Of an owned tree: what was acknowledged before is in the tree's leaves when this returns, and
  // in no log alone; of this client, if it owns keys of the tree. Writers go on meanwhile. Shared
  // trees have nothing to flush. ResourceExhausted: memory servers take no more keys; what they
  // refused stays in log and memory.
  absl::Status Flush(const Tree& tree, const OperationOptions& options = {});

  // Looks after what dead clients left of this tree: nodes that they held and nothing refers to are
  // given back, merges that they had begun are finished. Sessions do this by themselves when a
  // memory server tells them of such nodes; this is for tools and tests. An error: not everything
  // was looked at; call again.
  absl::Status Sweep(const Tree& tree, SweepResult* result, const OperationOptions& options = {});
  // READs the whole tree and says what is wrong with it (check.h). Errors say why it could not be
  // checked: Unavailable, DeadlineExceeded.
  absl::StatusOr<CheckReport> Check(const Tree& tree, const CheckOptions& options = {});

  // About how large the tree is, from some of its leaves (size.h); also while others work on it.
  absl::StatusOr<SizeEstimate> EstimateSize(const Tree& tree, const EstimateOptions& options = {});

  // Runs `task` in a coroutine of this session; operations inside it suspend. Run() returns when
  // all are finished. The library throws nothing; what a task throws and does not catch ends that
  // task alone, and Run() throws it when all others have finished, too (of several the first; the
  // others are lines in the log). A task calls no operation from inside a catch block: a coroutine
  // that suspends there mixes up the exceptions of its thread.
  void Spawn(std::function<void()> task);
  void Run();
  // Inside a task: suspends it until this time, CLOCK_MONOTONIC nanoseconds (virtual time on a
  // simulated fabric). Outside: lets the session's tasks run at least until then.
  void SleepUntil(int64_t time_ns);

 private:
  friend struct ImplAccess;
  explicit Session(std::unique_ptr<SessionImpl> impl);

  std::unique_ptr<SessionImpl> impl_;
};

}  // namespace pando

// The Pando client library: a distributed ordered index over the memory of memory servers.
//
//   auto client = pando::Client::Connect({.registry = "/run/pando"});
//   auto tree = (*client)->CreateTree("words", {.key_bytes_max = 64});
//   auto session = (*client)->NewSession();
//   (*session)->Put(**tree, "key", "value");
//   auto value = (*session)->Get(**tree, "key");          // StatusOr<std::string>
//
// Statuses (absl): NotFound (there is no such key or tree; TreeStatus() and Check(): the tree was
// dropped), AlreadyExists, InvalidArgument (keys, values, options), FailedPrecondition
// (the key has another value than expected: IsConditionFailed(); an existing tree has other
// options; a tree has another format or kind, or was dropped; this client was fenced:
// Client::fenced()), ResourceExhausted (memory servers are full: reads, updates and erases go on),
// DeadlineExceeded (the operation had no effect; EraseRange(), Flush() and Client::Leave() may be
// part done), Cancelled (a callback of the caller ended the call), Unknown = IsOutcomeUnknown() (it
// may or may not have had one; CreateTree() and DropTree() may be part done), Unavailable (a memory
// server is gone), DataLoss (remote memory is damaged, or a memory server has restarted without
// what the tree had there).
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

// Internals of the library, which are not installed.
class ClientImpl;
class SessionImpl;
class TreeImpl;
struct ImplAccess;
class Session;

// True for the status of an operation that may or may not have taken effect.
bool IsOutcomeUnknown(const absl::Status& status);
// True only for the FailedPrecondition of a conditional write or an upsert that was refused because
// of the key's value: it had no effect.
bool IsConditionFailed(const absl::Status& status);

// A handle to an open tree. Thread-safe. Keep it while operations use it. Memory servers reclaim
// the memory of a dropped tree when the last client has closed its last handle.
class Tree {
 public:
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  const std::string& name() const;
  uint32_t key_bytes_max() const;
  uint32_t value_bytes_max() const;
  // Longer values lie outside the leaves (TreeOptions).
  uint32_t inline_value_bytes_max() const;
  uint32_t node_bytes() const;
  TreeOptions::Mode mode() const;
  bool narrow_reads() const;
  uint32_t delete_persistence_ms() const;

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
  bool narrow_reads = false;
  uint32_t inline_value_bytes_max = 0;
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
// servers may come, go and come back: the client connects to a new one within two seconds. Destroy
// sessions and trees before the client (CHECKed).
class Client {
 public:
  // Blocks, up to ClientOptions::connect_timeout_ms. Thread-safe. Unavailable: too few memory
  // servers, or none that keeps the catalog. InvalidArgument: options, a fabric that this build
  // lacks. PermissionDenied: another secret. ResourceExhausted: no more threads or coroutines. A
  // child process (fork()) must not use its parent's.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();  // leaves in order

  // What follows blocks: FailedPrecondition inside a task of a session, or an executor's callback
  // (of Servers() an empty list). Handles to trees are closed outside of those as well.
  // Creates the tree if it is absent. FailedPrecondition: it exists and has other options. Names
  // that begin with a dot are reserved: InvalidArgument, here and below; no list shows them.
  // IsOutcomeUnknown(): the tree may exist now; call again.
  absl::StatusOr<std::unique_ptr<Tree>> CreateTree(std::string_view name,
                                                   const TreeOptions& options);
  absl::StatusOr<std::unique_ptr<Tree>> OpenTree(std::string_view name);
  // The name is free at once. Open handles of a shared tree go on working until they are closed,
  // without growing; but once a memory server has started again, their operations are refused
  // (FailedPrecondition), as are those of an owned tree from now on.
  // IsOutcomeUnknown(): it may be dropped on some memory servers and not on others; then it cannot
  // be opened (NotFound), nor its name used, until another call of DropTree() has ended it.
  absl::Status DropTree(std::string_view name);
  absl::StatusOr<std::vector<TreeInfo>> ListTrees();
  // Checks that every memory server that may have nodes of the tree answers and has not restarted.
  // Programs ask this before they report success. Unavailable: a server is gone, or does not
  // answer. DataLoss: a server has restarted without what the tree had there. NotFound: the tree
  // was dropped. DeadlineExceeded: nobody was asked; other calls of this client went on too long.
  absl::Status TreeStatus(const Tree& tree);
  // All are asked at once; waits for those that do not answer, up to the deadline. None is
  // `available` where nobody was asked, since other calls of this client went on too long.
  std::vector<ServerStatus> Servers();

  // Owned trees (FailedPrecondition for a shared one, and inside a task of a session). All answers
  // are hints: owners come and go.
  // The owner of the key; one round trip or none. A service that sends a request to its key's owner
  // saves the message that the operation would cost here.
  absl::StatusOr<OwnerInfo> OwnerOf(const Tree& tree, std::string_view key);
  // Sorted by key.
  absl::StatusOr<std::vector<RangeInfo>> ListRanges(const Tree& tree);
  // Sorted by compute server; empty where there are no owned trees.
  absl::StatusOr<std::vector<MemberInfo>> ListMembers();
  // For the end of a program whose sessions are still in use. This client gives all keys that it
  // owns to other clients that have their trees open (to nobody, where there are none), and frees
  // its redo log. From then on it owns nothing; others execute its operations. Takes up to
  // `timeout_ms` milliseconds (0: ClientOptions::connect_timeout_ms). DeadlineExceeded, or the
  // error that keeps its records from their leaves: the client goes on as before, with keys that
  // it owns still or claims again; call again. If its entries were going already, it owns nothing,
  // and another call ends that. FailedPrecondition: the client was cut off, has closed a tree whose
  // records are in its log still, or a task of a session calls.
  // Thread-safe; blocks.
  absl::Status Leave(int64_t timeout_ms = 0);

  // Blocks, as the above. Memory servers that are gone are left out. On shm one that is stopped is
  // not: Unavailable after a second, until it goes on or its process ends (without a place there a
  // session could not give back a lock that another one hands over to it). Sessions that exist go
  // on; an executor, and a client's first owned tree, need new ones. ResourceExhausted: this
  // process has no room for one more.
  absl::StatusOr<std::unique_ptr<Session>> NewSession();

  // Registers a function for Session::Upsert() under a number from kFirstRegistered on, for the
  // life of the client. Compute servers that upsert the same keys should register the same
  // functions; the library does not check that. InvalidArgument (number, no function),
  // AlreadyExists.
  absl::Status RegisterUpsertFunction(uint32_t number, UpsertCallback function);

  // True after a memory server has declared this client dead and cut it off: it heard nothing of
  // the client for a lease, or lost its connection (only on fabrics that can cut clients off; not
  // on shm). Also true after the client has left because it could not free a lock for fifteen
  // seconds: then memory servers free it. Nothing that the client does reaches memory any more, and
  // every operation is FailedPrecondition. An operation may be told so by a memory server up to a
  // quarter of a lease earlier. The outcome of one that was under way may be unknown. Close the
  // client and connect again, as another incarnation.
  bool fenced() const;

  ClientStats Stats() const;
  uint16_t compute_server_id() const;

 private:
  friend struct ImplAccess;
  explicit Client(std::unique_ptr<ClientImpl> impl);

  std::unique_ptr<ClientImpl> impl_;
};

// The result of a sweep.
struct SweepResult {
  uint64_t freed = 0;    // nodes that nothing reached
  uint64_t settled = 0;  // nodes of dead clients that are part of the tree
  // Held by a client that some memory server does not know to be dead yet, or not looked at, since
  // somebody is stopped there.
  uint64_t left = 0;
};

struct KeyValue {
  std::string key = {}, value = {};
  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

// One thread's handle: its own queue pairs and coroutines. Not thread-safe: all calls from one
// thread. An operation blocks when it is called from outside; inside a task of this session it
// suspends the task. Operations are linearizable per key. Keys have 1..key_bytes_max bytes, values
// 0..value_bytes_max; any bytes.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  absl::StatusOr<std::string> Get(const Tree& tree, std::string_view key,
                                  const OperationOptions& options = {});
  // Like Get, into the caller's string (no allocation once it has capacity).
  absl::Status GetTo(const Tree& tree, std::string_view key, std::string* value,
                     const OperationOptions& options = {});
  // Stores the value, whether the key is there or not, and does not read the old one.
  absl::Status Put(const Tree& tree, std::string_view key, std::string_view value,
                   const OperationOptions& options = {});
  absl::Status Insert(const Tree& tree, std::string_view key, std::string_view value,
                      const OperationOptions& options = {});  // AlreadyExists
  absl::Status Update(const Tree& tree, std::string_view key, std::string_view value,
                      const OperationOptions& options = {});  // NotFound
  absl::Status Erase(const Tree& tree, std::string_view key,
                     const OperationOptions& options = {});  // NotFound

  // Compares and writes in one step, under the leaf's lock. NotFound: the key is absent.
  // IsConditionFailed(): it has another value, which is copied to `*actual`; nothing is changed.
  // `*actual` is valid only then.
  absl::Status Replace(const Tree& tree, std::string_view key, std::string_view expected,
                       std::string_view desired, const OperationOptions& options = {},
                       std::string* actual = nullptr);
  absl::Status EraseIf(const Tree& tree, std::string_view key, std::string_view expected,
                       const OperationOptions& options = {}, std::string* actual = nullptr);
  // Applies the function (upsert.h), stores the new value and returns it. OK: it was applied once.
  // An error: it was not applied, unless IsOutcomeUnknown(). InvalidArgument: there is no such
  // function, or it does not take this operand. IsConditionFailed(): the function refused, or its
  // result is longer than value_bytes_max; nothing is changed.
  absl::StatusOr<std::string> Upsert(const Tree& tree, std::string_view key,
                                     UpsertFunction function, std::string_view operand,
                                     const OperationOptions& options = {});
  // Like Upsert, into the caller's string. IsConditionFailed(): the string gets the present value.
  absl::Status UpsertTo(const Tree& tree, std::string_view key, UpsertFunction function,
                        std::string_view operand, std::string* value,
                        const OperationOptions& options = {});

  // At most `limit` entries with key >= from, ascending; `from` may be any bytes. The result is
  // sorted, has each key once and every key that was present throughout. Each pair was current at
  // some moment of the scan; it is not a snapshot. On an error `rows` is empty.
  absl::Status Scan(const Tree& tree, std::string_view from, size_t limit,
                    std::vector<KeyValue>* rows, const OperationOptions& options = {});
  // All entries of the range at once, descending if `reverse` is set: {.from = "a", .to = "b"}.
  absl::Status Scan(const Tree& tree, const CursorOptions& options, std::vector<KeyValue>* rows);
  // The same entry by entry, in both directions (cursor.h). Never null: if the options are wrong,
  // its status() says so. No round trip. The tree's handle must outlive the cursor.
  std::unique_ptr<Cursor> NewCursor(const Tree& tree, const CursorOptions& options = {});

  // Many gets at once over this session's coroutines. One result per key, in order. The timeout is
  // for the call: keys whose turn has not come by then are DeadlineExceeded.
  std::vector<absl::StatusOr<std::string>> MultiGet(const Tree& tree,
                                                    const std::vector<std::string>& keys,
                                                    const OperationOptions& options = {});
  // Many writes at once, of any kinds; one result each, in the order of `writes`. The session sorts
  // them and distributes them by leaf among its coroutines (as PALM does among threads: Sewall et
  // al., VLDB 2011). All writes to one leaf are one locked update: about 2 round trips per leaf,
  // not per write.
  //
  // Each write is an operation of its own, linearizable and whole or absent. Several together are
  // not atomic: others may see some of them before the rest, and a write that fails undoes no other
  // and delays no other. Writes to one key take effect in the order of `writes`, writes to
  // different keys in any order.
  //
  // Each write has its own error, the same as its Session operation would have. InvalidArgument:
  // its key, value, operand or function is invalid; the other writes are executed. The timeout is
  // for the call: writes whose turn has not come by then are DeadlineExceeded, without effect;
  // those under way may be IsOutcomeUnknown(). A negative timeout is InvalidArgument for all
  // writes. If memory servers are full, writes that need more memory are ResourceExhausted; the
  // others are stored.
  std::vector<WriteResult> WriteMany(const Tree& tree, const std::vector<Write>& writes,
                                     const OperationOptions& options = {});
  // WriteMany() of puts, or of erases (NotFound): one status each, in order.
  std::vector<absl::Status> MultiPut(const Tree& tree, const std::vector<KeyValue>& entries,
                                     const OperationOptions& options = {});
  std::vector<absl::Status> MultiErase(const Tree& tree, const std::vector<std::string>& keys,
                                       const OperationOptions& options = {});

  // Erases all keys with from <= key < to. Bounds are any bytes; without `to` the range goes to the
  // end. A shared tree is erased by leaf: each takes less than three round trips, and emptied
  // leaves are merged away. An owned tree is erased by messages, many to a round trip, which reach
  // the leaves later.
  //
  // Not atomic: each key is erased once, at some moment between call and return, and keys that
  // others put meanwhile may stay. A call that ends early (DeadlineExceeded, Unknown, Unavailable,
  // Cancelled) has erased some keys and not others. `*result` (erase.h) says how far it got and
  // where to go on; a new call with the same range works as well. Others' operations go on
  // meanwhile.
  absl::Status EraseRange(const Tree& tree, std::string_view from,
                          std::optional<std::string_view> to, RangeErased* result = nullptr,
                          const EraseRangeOptions& options = {});

  // Fills an empty tree from strictly ascending entries: `next` returns false at the end.
  // FailedPrecondition: the tree is not empty. InvalidArgument: the keys are not ascending.
  // Cancelled: `next` threw; the message is that of the exception. In these cases nothing becomes
  // visible. DataLoss: a memory server has restarted and lost what was loaded there. Unknown: also
  // if the entries were stored, but some memory server did not confirm that it still has them
  // (Client::TreeStatus()). `next` runs on a coroutine's stack of 128 KiB: no deep recursion, no
  // large arrays.
  absl::Status BulkLoad(const Tree& tree, const std::function<bool(KeyValue*)>& next);

  // For owned trees: when this returns, the leaves have every write that this client, as an owner,
  // acknowledged before the call, or a newer one of the same key. Writers go on meanwhile. Shared
  // trees have nothing to flush. ResourceExhausted: memory servers have no room for more keys; the
  // refused writes stay in the log and in the owner's memory.
  absl::Status Flush(const Tree& tree, const OperationOptions& options = {});

  // Cleans up after dead clients in this tree: gives back nodes that they held and nothing refers
  // to, and finishes merges that they had begun. Sessions do this by themselves when a memory
  // server tells them of such nodes; this is for tools and tests. An error: the sweep is
  // incomplete; call again.
  absl::Status Sweep(const Tree& tree, SweepResult* result, const OperationOptions& options = {});
  // READs the whole tree and reports what is wrong with it (check.h). Errors say why the check
  // failed: Unavailable, DeadlineExceeded; NotFound, the tree was dropped; ResourceExhausted, as
  // Flush() has it, which the check of an owned tree begins with.
  absl::StatusOr<CheckReport> Check(const Tree& tree, const CheckOptions& options = {});

  // Estimates the tree's size from some of its leaves (size.h); also while others work on it.
  absl::StatusOr<SizeEstimate> EstimateSize(const Tree& tree, const EstimateOptions& options = {});

  // Runs `task` in a coroutine of this session; operations inside it suspend. Run() returns when
  // all are finished. The library throws nothing. An exception that a task does not catch ends that
  // task alone; Run() throws it again when all others have finished (the first of several; the rest
  // are logged). A task must not call an operation inside a catch block: a coroutine that suspends
  // there mixes up the exceptions of its thread. Its stack has 128 KiB: no deep recursion, no large
  // arrays.
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

// Many writes of one tree, shared out by leaf among coroutines of one session: what calls of many
// writes do, and flushes of an owned tree's records (PALM does so among threads: Sewall et al.,
// VLDB 2011).
//
// Not thread-safe: all of it in the session's thread. Invariants:
//   1. Writes are sorted by key, those of one key in the caller's order. A coroutine that claims a
//      key has all of its writes and executes them one after the other: so they take effect in that
//      order.
//   2. A claim ends where a leaf does, as far as the cached parent knows, or where the tree does:
//      ascending keys beyond the end belong to one coroutine, so that no two meet in the last leaf.
//      Claims only share out work: the fences of the leaf decide which writes are one change.
//   3. A coroutine that splits a leaf leaves the separators to one coroutine, which inserts all
//      that have come together: a parent is written once for many leaves. A write has its result
//      before that.
//   4. Each write gets one result. No run begins after the deadline, and what had no turn by then
//      had no effect. Sorting looks at the clock on the way: a call of very many ends by its
//      deadline, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/core/session_context.h"
#include "compute/index/write_operation.h"

namespace pando {

// Of what had no turn by the deadline of a call of many.
absl::Status NoTurnError();

class WriteWorkers {
 public:
  // Executes the writes. All methods are called in coroutines of its session.
  class Host {
   public:
    virtual SessionContext& session() = 0;
    // Coroutines that may work at once.
    virtual size_t coroutines_max() const = 0;
    // As compute/index/write_run.h has them.
    virtual size_t WriteRun(absl::Span<const RunWrite> writes,
                            std::vector<MissingSeparator>* later) = 0;
    virtual std::optional<std::string> NextBorder(std::string_view key) = 0;
    virtual void LeadTo(std::string_view key) = 0;
    // Those of one level; others insert what is left undone.
    virtual void InsertSeparators(std::vector<MissingSeparator>* separators) = 0;

   protected:
    ~Host() = default;
  };

  // `done` outlives this. `done(i)` is called as soon as writes[i] has its result, in any order,
  // while others go on; it suspends nowhere.
  WriteWorkers(Host* host, absl::Span<const RunWrite> writes, int64_t deadline_ns,
               absl::FunctionRef<void(size_t)> done);

  // By key, those of one key as they are. False: the deadline has passed, and nothing is sorted.
  [[nodiscard]] bool Sort();
  // None of them has had a turn.
  void RefuseAll() { Refuse(0, sorted_.size()); }

  // Once they are sorted. In a coroutine, which works too: it finishes even if no helper ever gets
  // one.
  void Run();

 private:
  // What helpers find whose turn comes late.
  struct Link;
  struct Claim {
    size_t begin = 0, end = 0;
  };

  std::string_view KeyOf(size_t i) const { return sorted_[i].operation->key; }
  bool IsLate() const { return host_.session().NowNs() >= deadline_ns_; }
  size_t helpers_max() const { return host_.coroutines_max() - 1; }

  bool IsBefore(size_t a, size_t b) const { return KeyOf(a) < KeyOf(b); }
  // Each two pieces of `width` that are sorted become one. False: the deadline has passed.
  bool Merge(size_t width, std::vector<size_t>* order) const;
  // The first one from `end` on that is of another key than the one before it.
  size_t WholeKeys(size_t end) const;
  // Where the writes of the i-th one's leaf end; no value: unknown.
  std::optional<size_t> EndOfLeaf(size_t i) const;
  Claim Take();
  void CallHelper();
  void Work();
  void ExecuteClaim(Claim* claim);
  // One coroutine at a time, also for the others: those of one parent go into it in one write.
  void InsertSeparators();
  // Returns writes of other leaves, unless another coroutine has claimed writes behind them.
  void GiveBack(Claim* claim);
  void Refuse(size_t begin, size_t end);

  Host& host_;
  const int64_t deadline_ns_;
  const absl::FunctionRef<void(size_t)> done_;
  std::vector<size_t> order_;     // by place in `sorted_`: the caller's number
  std::vector<RunWrite> sorted_;  // by key
  size_t next_ = 0;               // those before are somebody's
  size_t busy_ = 0;               // who have a claim
  size_t helpers_ = 0;
  std::vector<MissingSeparator> separators_;  // of leaves that were split
  bool is_inserting_ = false;
  std::shared_ptr<Link> link_;
};

}  // namespace pando

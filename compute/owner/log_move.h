// A member's log on its way to another memory server, where its own is gone (rule W6).
//
// Not thread-safe: in coroutines of the service's session, beside its jobs. It needs no turnstile
// of theirs: it changes `l` alone, and jobs that wait for the log hold theirs meanwhile.
// Invariants:
//   1. `l` names an extent only when that holds all that was acknowledged and is dirty, and all
//      that is not durable; nothing more is acknowledged before.
//   2. A change of `l` whose outcome is unknown is settled before anything else is done (rule O3):
//      the extent that it names stays complete, as nothing was acknowledged since.
//   3. An attempt that fails has taken an extent for nothing, until this member has ended: none
//      begins that could not change `l`, because that is out of reach or another's. If the last one
//      came to its end but could not change it (somebody who is stopped may hold its leaf's lock),
//      `l` is changed first, to what it says. What fails before that (the new server dies) has
//      taken one.
//   4. Messages that no record has any more cannot be written again: then the log stays where it
//      was, and whoever recovers this member finds it lost, not empty (rule D3).
// What is known to be in no entry (extents of attempts that failed, the log's old one where its
// server lives after all) may have chains in flight still: others free it when this member has
// ended.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/hot/partition.h"
#include "compute/log/redo_log.h"
#include "compute/owner/map_change.h"
#include "compute/owner/members.h"
#include "compute/owner/turnstile.h"

namespace pando {

class LogMove {
 public:
  static constexpr Lsn kNoneKept = UINT64_MAX;
  struct Source {
    uint32_t tree_id;
    std::shared_ptr<Partition> records;
  };
  struct Parts {
    MemberId self;
    MapStore* map = nullptr;
    StampSource* stamps = nullptr;
    // All partitions that may have something dirty; from which LSN on there may be messages that no
    // record has any more, kNoneKept: there are none.
    std::function<std::vector<Source>()> sources;
    std::function<Lsn()> kept_lsn;
    // Of so many bytes; not on `without`, and on `last` only if no other server has room.
    std::function<absl::StatusOr<LogExtent>(OperationContext&, uint64_t bytes, ServerId without,
                                            ServerId last)>
        find_extent;
  };

  LogMove(Parts parts, Scheduler* scheduler) : parts_(std::move(parts)), turnstile_(scheduler) {}

  // The log, which has failed and waits for this, goes on elsewhere; `entry`, which is `l` as far
  // as is known, is what it is then. ResourceExhausted: no other memory server has room for it now,
  // or `l` is on one that is gone. FailedPrecondition: it stays for good (invariant 4, or this
  // client was cut off). Others: again.
  absl::Status Run(OperationContext& context, RedoLog* log, LogEntry* entry);
  // `l` is known, and does not change while the caller has the turnstile.
  absl::Status SettleEntry(OperationContext& context, LogEntry* entry);
  Turnstile* turnstile() { return &turnstile_; }
  // An attempt: from then on the log may be in an extent that `l` does not name yet.
  bool has_begun() const { return has_begun_; }

 private:
  absl::Status AppendAgain(OperationContext& context, RedoLog* log) const;
  // Some of the keys of what is dirty with messages below that; in key order, from there on.
  static std::vector<std::string> SomeKeys(Partition* records, Lsn below, std::string* from);
  absl::Status AppendAgain(OperationContext& context, RedoLog* log, const Source& source,
                           const std::string& key, Lsn below) const;
  // Whether `l` can be read, and is that.
  absl::Status CheckEntry(OperationContext& context, const LogEntry& entry) const;
  // `l` can be changed: it is, and names what it named.
  absl::Status Touch(OperationContext& context, LogEntry* entry);
  absl::Status Commit(OperationContext& context, const LogEntry& desired, LogEntry* entry);

  const Parts parts_;
  Turnstile turnstile_;
  std::optional<std::pair<MapChange, LogEntry>> change_;  // not settled
  bool has_begun_ = false;
  bool is_stuck_ = false;         // the last attempt could not change `l`
  uint32_t epoch_ = 0;            // of the last attempt
  uint32_t blameless_epoch_ = 0;  // of a log that failed while it moved; no chain there has
  ServerId failed_on_ = 0;        // the last attempt, and the log was not to blame
  uint64_t bytes_ = 0;  // of the next extents, until one does: those of the log are too few
};

}  // namespace pando

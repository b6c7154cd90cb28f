// An open tree as the index code sees it: its shape, what is known of its root, and the client-wide
// parts.
//
// Thread safety: shared by all sessions of a client.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/time_constants.h"
#include "common/fabric/fabric.h"
#include "common/wire/control.h"
#include "common/wire/node_layout.h"
#include "common/wire/root_record.h"
#include "compute/cache/index_cache.h"
#include "compute/cache/value_places.h"
#include "compute/core/node_allocator.h"
#include "compute/core/session_context.h"
#include "compute/index/read_limits.h"
#include "compute/lock/hocl.h"
#include "pando/options.h"

namespace pando {

// The client-wide parts, owned by the client.
struct IndexEnvironment {
  const Capabilities& capabilities;
  Hocl& hocl;
  IndexCache& cache;
  ValuePlaces& places;
  NodeAllocator& allocator;
  ControlChannel& control;
  const Membership& members;
  Techniques techniques;
  int combine_max = 64;
  bool crc = false;  // lines carry checksums
  TimeConstants times;
};

// The root as last read. Its fields are loaded one by one: a mix of two roots is caught by
// validation like any other stale reference.
class RootHint {
 public:
  void Store(const RootRecord& record) {
    life_.store(record.root.life, std::memory_order_relaxed);
    level_.store(record.level, std::memory_order_relaxed);
    address_.store(record.root.address.raw(), std::memory_order_release);
  }
  // Level of the root; -1: not known yet.
  int Load(Reference* root) const {
    const uint64_t raw = address_.load(std::memory_order_acquire);
    if (raw == 0) return -1;
    *root = {RemoteAddress::FromRaw(raw), life_.load(std::memory_order_relaxed)};
    return level_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> address_{0};
  std::atomic<uint32_t> life_{0};
  std::atomic<uint8_t> level_{0};
};

// How many entries leaves have, as scans have met them lately: a moving mean. Thread-safe; of two
// that note something at once one may count alone.
class LeafFill {
 public:
  static constexpr uint64_t kOne = 64;  // an entry, in what Mean() says

  void Note(size_t entries) {
    const uint64_t met = std::max<uint64_t>(1, entries * kOne);
    const uint64_t mean = mean_.load(std::memory_order_relaxed);
    const uint64_t now = mean == 0 ? met : std::max<uint64_t>(1, (mean * 15 + met) / 16);
    if (now != mean) mean_.store(now, std::memory_order_relaxed);
  }
  // 0: none was met.
  uint64_t Mean() const { return mean_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> mean_{0};
};

// Whether gets READ the near groups of windows alone (rule N2): as long as more than 99 % of them
// end there. Thread-safe; of two that note something at once one may count alone.
class NearGets {
 public:
  bool pay() const { return credit_.load(std::memory_order_relaxed) >= kPays; }
  // A get ended, or would have ended, in the near groups.
  void NoteNear() {
    const int32_t credit = credit_.load(std::memory_order_relaxed);
    if (credit < kMax) credit_.store(credit + 1, std::memory_order_relaxed);
  }
  // It did not, or would not have.
  void NoteFar() {
    const int32_t credit = credit_.load(std::memory_order_relaxed);
    if (credit > 0) credit_.store(std::max(credit - kFar, 0), std::memory_order_relaxed);
  }
  // NoteNear() is for one get of so many, so that threads rarely write here side by side.
  static constexpr uint64_t kNoted = 16;

 private:
  // One in 8 * 16 others, and it pays no more. Sixteen in a row, and it does not pay.
  static constexpr int32_t kFar = 8, kMax = 256, kPays = 128;

  std::atomic<int32_t> credit_{kMax};
};

// How far sweeps that are not thorough have come on each memory server (rule C5). Thread-safe.
class SweepPlaces {
 public:
  uint64_t Of(ServerId server) const {  // 0: at the beginning
    std::lock_guard lock(mutex_);
    const auto place = places_.find(server);
    return place == places_.end() ? 0 : place->second;
  }
  void Set(ServerId server, uint64_t offset) {
    std::lock_guard lock(mutex_);
    places_[server] = offset;
  }

 private:
  mutable std::mutex mutex_;
  std::map<ServerId, uint64_t> places_;
};

// DataLoss: what to do about a tree whose nodes went with a life of a memory server.
absl::Status LostNodesError(const std::string& tree, ServerId server);
// FailedPrecondition: it was dropped. NotFound would be taken for an answer about a key.
absl::Status DroppedTreeError(const std::string& tree, const std::string& detail);

class TreeContext {
 public:
  TreeContext(CatalogEntry entry, NodeLayout layout, IndexEnvironment* environment)
      : entry(std::move(entry)),
        layout(layout),
        environment(*environment),
        read_max_ns(environment->times.read_max_ns),
        read_limits(ReadLimits::Of(environment->capabilities, this->layout, environment->crc)),
        narrow_reads(
            this->layout.window_groups() > 0 && environment->techniques.narrow_reads &&
            (environment->capabilities.few_bytes_pay || environment->techniques.narrow_anywhere)),
        near_reads(this->narrow_reads && this->layout.near_groups() < this->layout.window_groups()),
        near_always(environment->techniques.narrow_anywhere),
        narrow_writes(this->narrow_reads && environment->techniques.narrow_writes &&
                      environment->techniques.two_level_versions &&
                      environment->techniques.lock_and_read && environment->techniques.local_locks),
        parents(environment->cache.DirectoryOf(this->entry.tree_id)) {}
  TreeContext(const TreeContext&) = delete;
  TreeContext& operator=(const TreeContext&) = delete;

  const CatalogEntry entry;
  const NodeLayout layout;
  IndexEnvironment& environment;
  const int64_t read_max_ns;  // of the environment's times: each READ looks at it
  const ReadLimits read_limits;
  const bool narrow_reads;   // gets READ windows (rule N2)
  const bool near_reads;     // or their near groups, which are fewer, where these pay
  const bool near_always;    // or anyway
  const bool narrow_writes;  // so do writes to a key (rule N8)
  RootHint root;
  LeafFill fill;
  NearGets near_gets;
  SweepPlaces sweep_places;
  const std::shared_ptr<const ParentDirectory> parents;  // the cache's shortcut
  TreeFate fate;

  uint32_t id() const { return entry.tree_id; }
  // More spare nodes, near `preferred`; notes in the context where a sweep is due (rule C5).
  absl::Status Refill(OperationContext& context, ServerId preferred);
  // The same for cells of so many lines (rule K2).
  absl::Status RefillCells(OperationContext& context, uint16_t lines);
  // Whose refill took the turn to sweep (context.sweep_due), and who cannot sweep, leaves it to the
  // next refill (rule C5).
  void GiveBackSweep(OperationContext& context);
  // Unavailable: the node lies on a memory server that this client is not connected to (references
  // are remote data, and servers may have joined since). With a context it waits for one that has
  // just come.
  absl::StatusOr<LockTarget> NodeLock(const Reference& node) const;
  absl::StatusOr<LockTarget> NodeLock(OperationContext& context, const Reference& node) const {
    if (!Knows(node)) [[unlikely]]
      (void)context.AwaitServer(node.address.server());
    return NodeLock(node);
  }
  // Whether this client knows the node's memory server. Who holds a lock asks first: a chain to one
  // that has just come waits for it, and others for the lock (rule L2).
  bool Knows(const Reference& node) const {
    return environment.hocl.Words(node.address.server()) != 0;
  }
  LockTarget RootLock() const;
  // fate.status() for those who ask about the tree, and not about a key. NotFound: it was dropped.
  absl::Status CheckFate() const;
  // As the catalog knows it now (rule R7). NotFound: the tree was dropped.
  absl::StatusOr<bool> MayHaveNodesOn(OperationContext& context, ServerId server) const;
  // Whether all memory servers on which the tree may have nodes, as the catalog knows it now, are
  // there in the lives that they were (rule R7). Unavailable: one is gone; DeadlineExceeded: one
  // does not answer; DataLoss: one has started again; NotFound: the tree was dropped. `waits`: for
  // servers that have just come. Not in the session that takes servers up.
  absl::Status CheckServers(OperationContext& context, bool waits) const;

  // Rule S3: one insertion a (level, separator) and compute server at a time.
  bool BeginSeparator(const MissingSeparator& separator);
  void EndSeparator(const MissingSeparator& separator);
  // True between the two: mostly, the cached parent is about to be replaced by one that leads to
  // `child`.
  bool IsInsertingSeparatorOf(const Reference& child, uint8_t parent_level);

 private:
  absl::Status RefillPool(OperationContext& context, NodePoolId pool, uint32_t bytes,
                          ServerId preferred);
  absl::StatusOr<TreeServerList> ServersOnRecord(OperationContext& context) const;

  std::atomic<int64_t> next_sweep_ns_{0};
  std::mutex separators_mutex_;
  std::vector<MissingSeparator> separators_;  // as many as splits are under way
};

}  // namespace pando

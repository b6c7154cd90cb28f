// The chains of one endpoint to one memory server: posted to a queue pair in order, those that wait
// together as one list with one doorbell (chain_list.h); or waiting for that, for room, or for a
// queue pair. Not thread-safe.
//
// Invariants:
//   1. Work requests complete in the order they were posted; only a chain's last one is signaled,
//      so the oldest chain's is the next completion, and one that failed is the oldest.
//   2. Completions of an earlier queue pair are recognised (their generation) and ignored.
//   3. After TakeAll() no chain is known here, and nothing touches the buffers of those there were.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/fabric/chain.h"
#include "common/fabric/chain_list.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {

class ChainQueue {
 public:
  struct Entry {
    Chain* chain = nullptr;
    uint32_t verbs = 0;    // how many of them are executed
    absl::Status refused;  // why the next one is not
    uint32_t first = 0;    // number of its first work request
  };
  struct Failure {
    size_t verb = 0;  // of the oldest chain
    ibv_wc_status status = IBV_WC_SUCCESS;
  };

  // Work requests behind one doorbell, at most.
  static constexpr uint32_t kListMax = kChainListVerbsMax;
  // Where lists are made; one an endpoint.
  struct List {
    std::array<ibv_send_wr, kListMax> requests;
    std::array<ibv_sge, kListMax * Verb::kMaxPieces> pieces;
  };

  // At most `depth` work requests at once, a power of two; `index`, `list`, `counters`: the
  // endpoint's.
  ChainQueue(uint16_t index, const VerbsMemory& server, uint32_t depth, List* list,
             VerbsCounters* counters);
  ChainQueue(ChainQueue&&) = default;

  // Is for another server from now on, or another life of one. There are no chains.
  void SetServer(const VerbsMemory& server);
  bool connected() const { return static_cast<bool>(pair_); }
  // `pair` is connected; nothing was posted to an earlier one. `results` has a word for each of
  // `depth` work requests.
  void Attach(QueuePair pair, LocalBuffer results);
  size_t size() const { return posted_.size() + waiting_.size(); }
  // When the oldest chain was posted (Chain::started_ns()); 0: none was.
  int64_t oldest_ns() const { return posted_.empty() ? 0 : posted_.front().chain->started_ns(); }

  // Queues the chain's first `verbs` verbs, at least one.
  void Push(Chain* chain, uint32_t verbs, absl::Status refused);
  // What waits is as much as one doorbell takes.
  bool list_is_full() const { return waiting_verbs_ >= kListMax; }
  // Posts what there is room for; nothing while there is no queue pair. `now_ns`: no later than the
  // doorbell. `alone`: the session has one chain in flight, and a short one has a doorbell for each
  // verb. An error: the queue pair is of no more use.
  absl::Status Pump(int64_t now_ns, bool alone = false);

  // For chains that wait for their first queue pair: those whose time is up (Chain::StartByNs()),
  // taken out; and when the next one's is, if before `until_ns`.
  std::vector<Entry> TakeLate(int64_t now_ns, int64_t within_ns);
  int64_t NextLateNs(int64_t until_ns, int64_t within_ns) const;

  // Whose completion it is.
  static uint16_t IndexOf(const ibv_wc& completion) {
    return static_cast<uint16_t>(completion.wr_id >> 48);
  }
  // A chain that is done, its atomics' results filled in. nullopt: a completion of no interest, or
  // `failure` says that the queue pair broke.
  std::optional<Entry> OnCompletion(const ibv_wc& completion, std::optional<Failure>* failure);

  // Destroys the queue pair. The chains that were posted or queued, oldest first.
  std::vector<Entry> TakeAll();

 private:
  bool HasRoom(uint32_t listed) const {
    return !waiting_.empty() && used_ + waiting_.front().verbs <= depth_ &&
           listed + waiting_.front().verbs <= kListMax;
  }
  // Appends the chain to the `*count` work requests of the list.
  void Append(const Entry& entry, uint32_t* count);
  // For the first `count` work requests of the list from `first` on.
  absl::Status Ring(uint32_t count, uint32_t first = 0);
  absl::Status RingForEach(uint32_t count);
  void Fill(const Verb& verb, uint32_t number, ibv_send_wr* request, ibv_sge* pieces) const;
  uint64_t RequestId(uint32_t number) const {
    return uint64_t{index_} << 48 | uint64_t{generation_} << 32 | number;
  }

  const uint16_t index_;
  const uint32_t depth_;
  List* const list_;
  VerbsCounters* const counters_;
  uint64_t address_[2] = {};
  uint32_t key_[2] = {};
  QueuePair pair_;
  LocalBuffer results_;
  uint16_t generation_ = 0;
  uint32_t next_number_ = 0u - 1024;  // of the next work request; wraps, soon: every test sees it
  uint32_t used_ = 0;                 // work requests posted and not known to be done
  uint32_t waiting_verbs_ = 0;
  std::deque<Entry> posted_, waiting_;
};

}  // namespace pando

// Where the queue pairs of a compute server's links (verbs_peers.h) complete, and where their
// messages arrive: a completion queue and a shared receive queue for some of them. A port has as
// many rooms as it needs.
//
// PeerRoom belongs to the thread of its port, but for its getters; a PeerPlace may go on any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/peer.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/queue_pair_opener.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_handles.h"

namespace pando {

// Messages that one end may have under way, and what else may be: two that only give credit back,
// as each stands for half of all credit.
inline constexpr uint32_t kPeerCredits = 16;
inline constexpr uint32_t kPeerSlots = kPeerCredits + 2;

class PeerRoom {
 public:
  static constexpr uint32_t kLinksMax = 128;
  static constexpr uint64_t kSendId = UINT64_MAX;  // of work requests that send

  // ResourceExhausted: the device has no queues of this size left.
  static absl::StatusOr<std::shared_ptr<PeerRoom>> Create(std::shared_ptr<VerbsDevice> device,
                                                          ibv_comp_channel* channel);

  // Receive buffers for as many links as have a place. ResourceExhausted: there is no memory.
  absl::Status Provide();
  // Of a receive completion.
  std::string_view Message(uint64_t id, uint32_t bytes) const;
  // The buffer may receive again.
  void PostReceive(uint64_t id);

  ibv_cq* completions() const { return completions_.get(); }
  ibv_srq* receives() const { return receives_.get(); }
  uint32_t links() const { return links_.load(std::memory_order_acquire); }

 private:
  friend class PeerPlace;
  explicit PeerRoom(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}

  const std::shared_ptr<VerbsDevice> device_;
  std::vector<RegisteredMemory> buffers_;  // of one link's number of messages each
  CompletionQueueHandle completions_;
  SharedReceivesHandle receives_;
  std::atomic<uint32_t> links_{0};
};

// One link's place in a room. Move-only.
class PeerPlace {
 public:
  PeerPlace() = default;
  explicit PeerPlace(std::shared_ptr<PeerRoom> room) : room_(std::move(room)) { ++room_->links_; }
  PeerPlace(PeerPlace&&) = default;
  PeerPlace& operator=(PeerPlace&& other) noexcept {
    std::swap(room_, other.room_);
    return *this;
  }
  ~PeerPlace() {
    if (room_ != nullptr) --room_->links_;
  }

  PeerRoom* get() const { return room_.get(); }

 private:
  std::shared_ptr<PeerRoom> room_;
};

// One end of a link: a queue pair, and the memory that it sends from.
class PeerPair final : public ServedPair {
 public:
  // Connects `pair` (made, if it is none yet) to the other end's. Blocks; any thread.
  static absl::StatusOr<std::unique_ptr<PeerPair>> Connect(const VerbsDevice& device,
                                                           PeerPlace place, QueuePair pair,
                                                           const QueuePairAddress& remote);
  // Not connected yet.
  static absl::StatusOr<QueuePair> Make(const VerbsDevice& device, const PeerRoom& room);

  QueuePairAddress address() const override { return pair_.address(); }
  // Posts a message, empty for none, with credit for the other end, from the buffer of this number.
  // 0 or an errno.
  int Post(uint32_t slot, std::string_view message, uint32_t credit);
  void Break() { pair_.Break(); }

 private:
  PeerPair(PeerPlace place, RegisteredMemory memory, QueuePair pair)
      : place_(std::move(place)), memory_(std::move(memory)), pair_(std::move(pair)) {}

  PeerPlace place_;
  RegisteredMemory memory_;
  QueuePair pair_;  // goes first
};

}  // namespace pando

// One reliable-connected queue pair: made, connected to another one, posted to, broken, destroyed.
// Not thread-safe.
//
// Invariants:
//   1. It starts with a random packet sequence number, so that packets of an earlier queue pair
//      with the same number are not taken for its own (rule C2).
//   2. Once Destroy() (or the destructor) has returned, the NIC touches no local memory for it.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_handles.h"

namespace pando {

// What the other side has to know of a queue pair. Travels as it is.
struct QueuePairAddress {
  uint32_t number = 0;
  uint32_t sequence = 0;  // of its first packet, 24 bits
  uint32_t mtu_bytes = 0;
  uint16_t local_id = 0;  // InfiniBand; 0 on Ethernet
  uint8_t responder_depth = 0;
  uint8_t reserved = 0;
  std::array<uint8_t, 16> gid = {};
};
static_assert(std::is_trivially_copyable_v<QueuePairAddress> && sizeof(QueuePairAddress) == 32);

// DataLoss: what cannot be the address of a queue pair.
absl::Status CheckQueuePairAddress(const QueuePairAddress& address);

struct QueuePairLimits {
  uint32_t work_requests = 1;
  uint32_t pieces = 1;
  uint32_t inline_bytes = 0;
  ibv_pd* domain = nullptr;     // of the device, or a thread's of it; nullptr: the device's
  ibv_srq* receives = nullptr;  // where it receives messages; nullptr: it receives none
  bool remote_access = true;    // the other side may READ and WRITE
};

class QueuePair {
 public:
  QueuePair() = default;
  // For tests: a pair that is connected, or none at all.
  QueuePair(QueuePairHandle pair, uint32_t inline_bytes)
      : pair_(std::move(pair)), inline_bytes_(inline_bytes) {}
  QueuePair(QueuePair&&) = default;
  QueuePair& operator=(QueuePair&&) = default;

  // ResourceExhausted: the device has none left, or not of this size.
  static absl::StatusOr<QueuePair> Create(const VerbsDevice& device, ibv_cq* completions,
                                          const QueuePairLimits& limits);

  QueuePairAddress address() const { return address_; }
  uint32_t number() const { return address_.number; }
  explicit operator bool() const { return pair_ != nullptr; }
  ibv_qp* get() const { return pair_.get(); }
  uint32_t inline_bytes() const { return inline_bytes_; }

  // Both sides; afterwards the pair answers, and may be posted to. Unavailable: the device refuses
  // (says which step).
  absl::Status Connect(const VerbsDevice& device, const QueuePairAddress& remote);
  // Everything posted completes, with an error if it was not done yet.
  void Break();
  void Destroy() { pair_.reset(); }

 private:
  QueuePairHandle pair_;
  QueuePairAddress address_;
  uint32_t inline_bytes_ = 0;
};

// Posts a list of which the last verb is signaled, and yields until it has completed; for queue
// pairs of this host to itself. Unavailable: it failed, or has not completed after `give_up_ns`.
absl::Status PostAndAwait(const VerbsDevice& device, const QueuePair& from, ibv_cq* completions,
                          ibv_send_wr* list, int64_t give_up_ns);

}  // namespace pando

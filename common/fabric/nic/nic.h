// The resources of a simulated NIC: what is busy until when.
//
// Each is a queue with one server: a later call is served later. Callers ask in the order of
// (virtual) time, up to what one host's thread computes ahead. Times are picoseconds here, because
// a message takes a few nanoseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/fabric/nic/nic_profile.h"

namespace pando {

using Picoseconds = int64_t;

inline Picoseconds ToPs(double ns) { return static_cast<Picoseconds>(ns * 1000 + 0.5); }

class BusyUntil {
 public:
  // When a service of this length can begin that is asked for at `at`; takes the time.
  Picoseconds Take(Picoseconds at, Picoseconds service) {
    const Picoseconds start = std::max(at, free_);
    free_ = start + service;
    busy_ += service;
    return start;
  }
  // The same for something whose last part comes at `end` and that may have begun before:
  // cut-through. Returns when it is over.
  Picoseconds TakeUntil(Picoseconds end, Picoseconds service) {
    return Take(end - service, service) + service;
  }
  Picoseconds free_at() const { return free_; }
  // All that was asked for so far, together.
  Picoseconds busy() const { return busy_; }

 private:
  Picoseconds free_ = 0, busy_ = 0;
};

// The constants of a profile in the units of the model.
struct NicTimes {
  explicit NicTimes(const NicProfile& profile);

  // On the wire, each way.
  Picoseconds Serialise(uint64_t payload_bytes) const {
    const uint64_t packets =
        std::max<uint64_t>(1, (payload_bytes + packet_bytes - 1) / packet_bytes);
    return static_cast<Picoseconds>(static_cast<double>(payload_bytes + packets * header_bytes) *
                                    link_ps_per_byte);
  }
  Picoseconds OverPcie(uint64_t bytes) const {
    return static_cast<Picoseconds>(static_cast<double>(bytes) * pcie_ps_per_byte);
  }

  Picoseconds doorbell, fetch_chain, fetch_payload, send, receive, queue_pair, completion;
  Picoseconds wire;  // propagation and switch
  Picoseconds pcie_read;
  Picoseconds hold[2], engine[2], atomic_latency[2];  // atomics; [1]: on-chip
  Picoseconds on_chip_read;
  double link_ps_per_byte, pcie_ps_per_byte;
  uint64_t header_bytes, packet_bytes, inline_bytes, bucket_mask, waiting_max;
};

// Verbs that have arrived and are not received yet, in the order in which they came.
class HeldUp {
 public:
  struct Arrival {
    uint32_t flight;
    uint8_t verb;
  };

  bool empty() const { return head_ == arrivals_.size(); }
  void Push(Arrival arrival) {
    // What has left makes room before the list grows.
    if (head_ > 0 && arrivals_.size() == arrivals_.capacity()) {
      arrivals_.erase(arrivals_.begin(), arrivals_.begin() + static_cast<ptrdiff_t>(head_));
      head_ = 0;
    }
    arrivals_.push_back(arrival);
  }
  const Arrival& front() const { return arrivals_[head_]; }
  void Pop() {
    if (++head_ < arrivals_.size()) return;
    head_ = 0;
    arrivals_.clear();  // its capacity stays
  }

 private:
  std::vector<Arrival> arrivals_;
  size_t head_ = 0;
};

// One host's NIC: that of a memory server, of a compute server, or of both.
struct Nic {
  explicit Nic(const NicTimes& times)
      : buckets{std::vector<BusyUntil>(times.bucket_mask + 1),
                std::vector<BusyUntil>(times.bucket_mask + 1)} {}

  BusyUntil send_engine, receive_engine;
  BusyUntil link_out, link_in;
  BusyUntil pcie;               // out of the host's memory
  BusyUntil atomic_engines[2];  // [1]: on-chip
  std::vector<BusyUntil> buckets[2];
  uint64_t waiting_atomics = 0;
  HeldUp held_up;           // while no place is free
  bool letting_in = false;  // some of them, just now
};

}  // namespace pando

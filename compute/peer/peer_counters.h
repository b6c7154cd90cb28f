// What one side of the links to peers has sent and received: these numbers do not depend on the
// machine, so tests assert them. Written and read by any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace pando {

struct PeerCounters {
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> messages_received{0};
  std::atomic<uint64_t> requests{0};  // sent by a client, received by a service
  std::atomic<uint64_t> answers{0};   // received by a client, sent by a service
  std::atomic<uint64_t> links{0};     // that were opened, or taken
  std::atomic<uint64_t> refused{0};   // requests that a service had no room for
  // By this side: the other has sent what no peer sends, owes too many answers, or has ended.
  std::atomic<uint64_t> links_closed{0};

  static void Add(std::atomic<uint64_t>* counter, uint64_t n = 1) {
    counter->fetch_add(n, std::memory_order_relaxed);
  }
};

}  // namespace pando

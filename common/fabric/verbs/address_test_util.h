// For tests without a device: addresses of queue pairs that are none.
#pragma once

#include <cstdint>

#include "common/fabric/verbs/queue_pair.h"

namespace pando {

// Of a host in a network, which fakes tell apart by its number.
inline QueuePairAddress FakeAddress(uint8_t network, int host) {
  QueuePairAddress address = {.number = 1, .mtu_bytes = 1024, .responder_depth = 1};
  address.gid[10] = network;
  address.gid[14] = static_cast<uint8_t>(host >> 8);
  address.gid[15] = static_cast<uint8_t>(host);
  return address;
}

}  // namespace pando

// Where a redo log lies: an extent of a memory server's region (rule W1).
#pragma once

#include <cstdint>

#include "common/wire/remote_address.h"

namespace pando {

struct LogExtent {
  ServerId server = 0;
  uint64_t server_life = 0;  // what was on another life of the server is gone with it (rule R7)
  uint64_t offset = 0;       // in the main region; whole chunks, so whole lines
  uint64_t bytes = 0;
  // Tells the extent from others that lay in the same place, earlier or later; 0: not known.
  uint64_t id = 0;

  RemoteAddress address() const { return {server, offset}; }
  friend bool operator==(const LogExtent&, const LogExtent&) = default;
};

}  // namespace pando

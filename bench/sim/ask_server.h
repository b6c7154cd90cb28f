// What memory servers know of a client, asked past the network: no event, and no time.
#pragma once

#include <cstdint>

#include "common/wire/control.h"
#include "memory/memory_server.h"

namespace pando {

struct AskedClient {
  uint16_t compute_server = 0;
  uint32_t incarnation = 0;
};

ClientLiveness AskState(memory::MemoryServer* server, const AskedClient& client);
// Whether it has a log there.
bool AskHasLog(memory::MemoryServer* server, const AskedClient& client);

}  // namespace pando

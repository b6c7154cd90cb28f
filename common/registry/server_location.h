// Where a memory server is found. A type of its own so that fabrics need no registry.
#pragma once

#include <string>

#include "common/wire/remote_address.h"

namespace pando {

struct ServerLocation {
  ServerId id = 0;
  std::string address;  // shm: path of the server's Unix socket

  friend bool operator==(const ServerLocation&, const ServerLocation&) = default;
};

}  // namespace pando

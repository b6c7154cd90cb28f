// What the scenarios with one memory server share.
#pragma once

#include <memory>

#include "common/fabric/fabric.h"
#include "common/wire/remote_address.h"
#include "pando/client.h"

namespace pando {

inline constexpr ServerId kOnlyServer = 1;

struct OneClient {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;
};

}  // namespace pando

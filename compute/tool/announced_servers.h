// The memory servers that a registry announces, beside those that a client is connected to.
//
// A client goes on without a server that does not answer, and Client::Servers() leaves it out: who
// tells what is wrong must not.
// Thread safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/registry/registry.h"
#include "compute/tool/commands.h"

namespace pando::tool {

class AnnouncedServers {
 public:
  // Looks at the registry: before the client connects, which then had the chance to find all that
  // are announced by now.
  explicit AnnouncedServers(const Settings& settings);

  // What the client's servers say, and those without an answer that the client had time to connect
  // to and is not connected to. By ascending id. Where the registry does not answer only the
  // client's.
  std::vector<ServerStatus> Ask(Client* client);

 private:
  // Those that this client can use.
  std::vector<uint16_t> List();

  const std::string fabric_;
  std::unique_ptr<Registry> registry_;  // nullptr: there is none
  std::vector<uint16_t> before_;        // what it listed the last time
};

}  // namespace pando::tool

#include "compute/tool/announced_servers.h"

#include <algorithm>
#include <utility>

namespace pando::tool {

AnnouncedServers::AnnouncedServers(const Settings& settings) : fabric_(settings.fabric) {
  auto registry = OpenRegistry(settings.registry);
  if (registry.ok()) registry_ = *std::move(registry);
  before_ = List();
}

std::vector<uint16_t> AnnouncedServers::List() {
  std::vector<uint16_t> ids;
  if (registry_ == nullptr) return ids;
  std::vector<absl::Status> bad;  // the client says what is wrong with an entry
  const auto servers = registry_->List(&bad);
  if (!servers.ok()) return ids;
  for (const ServerLocation& server : *servers) {
    if (CheckReachable({server}, fabric_).ok()) ids.push_back(server.id);
  }
  return ids;
}

std::vector<ServerStatus> AnnouncedServers::Ask(Client* client) {
  std::vector<ServerStatus> servers = client->Servers();
  // One that was stopped meanwhile, or has just come, is not missed.
  std::vector<uint16_t> now = List();
  for (const uint16_t id : now) {
    const bool connected = std::any_of(servers.begin(), servers.end(),
                                       [id](const ServerStatus& known) { return known.id == id; });
    if (!connected && std::find(before_.begin(), before_.end(), id) != before_.end()) {
      servers.push_back({.id = id});
    }
  }
  std::sort(servers.begin(), servers.end(),
            [](const ServerStatus& a, const ServerStatus& b) { return a.id < b.id; });
  before_ = std::move(now);
  return servers;
}

}  // namespace pando::tool

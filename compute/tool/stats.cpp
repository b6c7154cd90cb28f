// pando stats: the memory servers' memory and counters, once or again and again.

#include <chrono>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compute/tool/announced_servers.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"

namespace pando::tool {
namespace {

using Servers = std::vector<ServerStatus>;
// Values of the counters a round ago, by server and name.
using Counters = std::map<std::pair<uint16_t, std::string>, uint64_t>;

Json ServerJson(const ServerStatus& server) {
  Json json = {{"id", server.id}, {"available", server.available}};
  if (!server.available) return json;
  json["is_catalog"] = server.is_catalog;
  json["region_bytes"] = server.region_bytes;
  json["used_bytes"] = server.used_bytes;
  json["free_bytes"] = server.free_bytes;
  json["counters"] = Json::object();
  for (const auto& [name, value] : server.counters) json["counters"][name] = value;
  return json;
}

Json ServersJson(const Servers& servers) {
  Json list = Json::array();
  for (const ServerStatus& server : servers) list.push_back(ServerJson(server));
  return list;
}

std::string CounterText(const ServerStatus& server, const std::string& name, uint64_t value,
                        const Counters& before) {
  std::string text = absl::StrCat("  ", Column(name, 20), value);
  const auto old = before.find({server.id, name});
  if (old == before.end() || value == old->second) return text + "\n";
  // Some go down, and all do when a server has started again.
  const bool grew = value > old->second;
  return absl::StrCat(text, grew ? "  +" : "  -", grew ? value - old->second : old->second - value,
                      "\n");
}

std::string ServerText(const ServerStatus& server, const Counters& before) {
  const std::string title = absl::StrCat("memory server ", server.id);
  if (!server.available) return title + " does not answer\n";
  std::string text = absl::StrCat(title, server.is_catalog ? " (catalog)" : "", ": ",
                                  SizeText(server.region_bytes), ", ", SizeText(server.used_bytes),
                                  " used, ", SizeText(server.free_bytes), " free\n");
  for (const auto& [name, value] : server.counters)
    text += CounterText(server, name, value, before);
  return text;
}

absl::Status PrintOnce(const Settings& settings, const Servers& servers) {
  absl::Status problem;
  for (const ServerStatus& server : servers) {
    absl::Status status;
    if (!server.available) {
      problem =
          absl::UnavailableError(absl::StrCat("memory server ", server.id, " does not answer"));
    } else if (!settings.json) {
      status = Print(ServerText(server, {}));
    }
    if (!status.ok()) return status;
  }
  if (settings.json) {
    absl::Status status = Print(JsonText({{"memory_servers", ServersJson(servers)}}, true));
    if (!status.ok()) return status;
  }
  return problem;
}

absl::Status Watch(const Settings& settings, Client* client, AnnouncedServers* announced) {
  using std::chrono::system_clock;
  Counters before;
  for (auto next = std::chrono::steady_clock::now();;) {
    const Servers servers = announced->Ask(client);
    const auto now = system_clock::now().time_since_epoch();
    const int64_t time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    std::string text;
    if (settings.json) {
      text = JsonText({{"time_ms", time_ms}, {"memory_servers", ServersJson(servers)}});
    } else {
      for (const ServerStatus& server : servers) text += ServerText(server, before);
      text += "\n";
    }
    absl::Status status = Print(text);
    if (status.ok()) status = FlushOutput();
    if (!status.ok()) return status;
    for (const ServerStatus& server : servers) {
      for (const auto& [name, value] : server.counters) before[{server.id, name}] = value;
    }
    next += std::chrono::milliseconds(static_cast<int64_t>(settings.watch_seconds * 1000));
    std::this_thread::sleep_until(next);
  }
}

}  // namespace

absl::Status Stats(const Settings& settings, const Arguments&) {
  AnnouncedServers announced(settings);
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  if (settings.watch_seconds > 0) return Watch(settings, client->get(), &announced);
  return PrintOnce(settings, announced.Ask(client->get()));
}

}  // namespace pando::tool

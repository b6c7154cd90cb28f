// Connecting to several memory servers, for backends with connections.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/quiet_thread.h"
#include "common/fabric/server_index.h"
#include "common/registry/server_location.h"

namespace pando {

// Calls `connect` for each of the servers, on threads at the same time: one that says nothing takes
// its whole time-out, and the others do not wait for it. The links, in the order of the servers;
// those that cannot be connected are left out, and `missing` says why. Where it is nullptr, or none
// is left, their status is returned. InvalidArgument: no servers, an id twice.
template <typename Link>
absl::StatusOr<std::vector<std::unique_ptr<Link>>> ConnectAll(
    const std::vector<ServerLocation>& servers, std::vector<absl::Status>* missing,
    const std::function<absl::StatusOr<std::unique_ptr<Link>>(const ServerLocation&)>& connect) {
  if (servers.empty()) return absl::InvalidArgumentError("no memory servers to connect to");
  std::vector<ServerId> ids;
  for (const ServerLocation& location : servers) ids.push_back(location.id);
  const absl::Status distinct = ServerIndex::Create(ids).status();
  if (!distinct.ok()) return distinct;

  std::vector<absl::StatusOr<std::unique_ptr<Link>>> results(servers.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < servers.size(); ++i) {
    const auto run = [&, i] { results[i] = connect(servers[i]); };
    absl::StatusOr<std::thread> thread = StartQuietThread("pando-connect", run);
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      run();
    }
  }
  results[0] = connect(servers[0]);
  for (std::thread& thread : threads) thread.join();

  std::vector<std::unique_ptr<Link>> links;
  absl::Status last;
  for (auto& result : results) {
    if (result.ok()) {
      links.push_back(*std::move(result));
      continue;
    }
    last = result.status();
    if (missing == nullptr) return last;
    missing->push_back(last);
  }
  if (links.empty()) return last;
  return links;
}

}  // namespace pando

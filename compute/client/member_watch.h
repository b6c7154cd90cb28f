// Looks for memory servers that have come, or come back, once a second and whenever an operation
// meets a node on one that its client does not know.
//
// A thread of its own; nothing of it is on the path of an operation. Construction and destruction
// by one thread, outside coroutines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/registry/registry.h"
#include "compute/core/membership.h"

namespace pando {

class MemberWatch {
 public:
  struct Callbacks {
    // Whether the client is connected to the server, as far as it knows.
    std::function<bool(ServerId server)> is_connected;
    // Makes the server one of the client's. Blocks; an error is said once and tried again later.
    std::function<absl::Status(const ServerLocation& location)> add;
  };

  // `members` outlives this.
  MemberWatch(std::shared_ptr<Registry> registry, std::string fabric, Membership* members,
              Callbacks callbacks);
  // ResourceExhausted: the system has no thread for it.
  absl::Status Start();
  ~MemberWatch();
  MemberWatch(const MemberWatch&) = delete;
  MemberWatch& operator=(const MemberWatch&) = delete;

 private:
  struct Failure {
    int64_t again_ns = 0, pause_ns = 0;
    std::string said;
  };
  // Announced, and not connected.
  std::vector<ServerLocation> Wanted() const;
  void Run();
  void Look();
  // False: it failed.
  bool Try(const ServerLocation& location);
  int64_t AgainNs(ServerId server) const;  // below 0: it has not failed yet

  const std::shared_ptr<Registry> registry_;
  const std::string fabric_;
  Membership* const members_;
  const Callbacks callbacks_;
  absl::flat_hash_map<ServerId, Failure> failures_;
  std::thread thread_;
};

}  // namespace pando

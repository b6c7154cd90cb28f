// The transport of a memory server, chosen at run time: shm or verbs behind one interface.
//
// Thread safety: as ShmServer and VerbsServer: Serve() on one thread; Stop() from any thread and
// from a signal handler.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/wire/remote_address.h"

namespace pando::memory {

struct ServerFabricOptions {
  std::string fabric = "shm";  // or "verbs", where this build has it
  ServerId server_id = 1;
  uint64_t main_bytes = uint64_t{1} << 30;
  uint64_t lock_bytes = 256 << 10;
  uint32_t packet_bytes = 0;  // rule F6; 0: 4096 on shm, at most the path's MTU on verbs
  int numa_node = -1;
  bool huge_pages = false;
  uint32_t connections_max = 1024;  // client processes at once
  uint32_t endpoints_max = 0;       // of all clients; 0: 1024 on shm, 4096 on verbs
  // shm.
  std::string socket_path;
  // verbs (common/fabric/verbs): "" and 0 and -1 are found.
  std::string listen, device, secret_file;
  int port = 0, gid_index = -1;
  uint32_t mtu_bytes = 0;
  int traffic_class = 0, service_level = 0, pkey_index = 0;
  bool device_memory = true;
  // A connection that has not joined by then is closed.
  int64_t identity_timeout_ms = 30'000;
};

class ServerFabric {
 public:
  // InvalidArgument: another fabric; else as ShmServer::Create() and VerbsServer::Create().
  static absl::StatusOr<std::unique_ptr<ServerFabric>> Create(const ServerFabricOptions& options);
  virtual ~ServerFabric() = default;

  virtual ServerMemory memory() = 0;
  virtual uint32_t packet_bytes() const = 0;
  virtual bool needs_crc() const = 0;
  // nullptr: a living client cannot be cut off, so that there are no leases (rule C1).
  virtual PeerFence* fence() = 0;
  // For the registry.
  virtual std::string address() const = 0;
  // For the log: "" or " over rxe0 port 1, ...".
  virtual std::string description() const = 0;
  virtual absl::Status Serve(ControlHandler* handler) = 0;
  virtual void Stop() = 0;
};

// "shm, verbs", of this build.
std::string ServerFabricNames();

}  // namespace pando::memory

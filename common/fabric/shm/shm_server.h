// The memory-server side of the shm fabric: shared memory, the control socket and the completion of
// what killed clients had begun.
//
// One memfd holds [main | locks | intents] (shm_geometry.h). Clients get it over a Unix socket and
// execute their verbs on it themselves; the server only answers control calls and sleeps otherwise.
//
// Thread safety: Serve() runs on one thread and calls the handler there. Stop() may be called from
// any thread and from a signal handler. memory() and the getters are thread-safe. Invariants:
//   1. Which peer owns an intent slot is recorded in the server's own memory; shared memory is
//      never asked.
//   2. A peer's valid intents are completed, bounds-checked, after its process has exited (pidfd)
//      and before ControlHandler::OnPeerGone (rule F7). A process that lives on keeps its slots.
//   3. Nothing a client sends makes the server read out of bounds, block, or allocate without a
//      bound.
//   4. Memory the clients map cannot shrink (sealed).
//   5. A refused client is told which limit is reached (clients, endpoints, file descriptors) and
//      what to do; connected clients notice nothing. A client takes two descriptors.
//   6. Connections without an identity are bounded, all together and a process, and have their time
//      (strangers.h): a newcomer is turned away only by clients that have one. Their endpoints are
//      bounded a process (a quarter of all, or four), with those of connections that have ended:
//      these keep their endpoints while the process lives, but no client's place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/wire/remote_address.h"

namespace pando {

struct ShmServerOptions {
  // At most 107 bytes. The file is made with mode 0600; a socket file left behind by a dead server
  // is replaced.
  std::string socket_path;
  ServerId server_id = 1;
  uint64_t main_bytes = uint64_t{64}
                        << 20;  // multiple of 4096; sparse: pages cost memory once they are written
  uint64_t lock_bytes = 256 << 10;  // multiple of 64; what NICs offer as on-chip memory
  uint32_t packet_bytes = 4096;     // largest WRITE (rule F6); a multiple of 64, 64..65536
  uint32_t endpoints_max = 1024;    // intent slots; a session takes one on each server
  // Client processes at once. Who was let in before it was reached, and joins after, is one more.
  uint32_t connections_max = 1024;
  int64_t hello_timeout_ms =
      2'000;  // a connection that has not introduced itself by then is closed
  // Nor does one stay so long without an identity (ControlHandler::IsKnown()).
  int64_t identity_timeout_ms = 30'000;
  int numa_node = -1;  // -1: wherever the pages are touched first
  bool huge_pages =
      false;  // try huge pages first; normal pages (one log line) where there are none
};

class ShmServer {
 public:
  // Allocates the memory and listens, so that clients may connect from now on (they wait until
  // Serve() runs). AlreadyExists: a live server listens there; InvalidArgument: options;
  // ResourceExhausted: memory. The process must not fork between Create() and Serve(): its death is
  // what clients watch.
  static absl::StatusOr<std::unique_ptr<ShmServer>> Create(const ShmServerOptions& options);
  virtual ~ShmServer() = default;

  virtual const ShmServerOptions& options() const = 0;
  virtual ServerMemory memory() = 0;

  // Serves until Stop(), then closes every connection and removes the socket. Once per server:
  // FailedPrecondition afterwards. Peers still connected when it stops are not reported gone.
  virtual absl::Status Serve(ControlHandler* handler) = 0;
  // Makes Serve() return, or a later Serve() return at once. Async-signal-safe.
  virtual void Stop() = 0;

  // WRITEs that were completed on behalf of clients that had exited in the middle of them.
  virtual uint64_t intents_completed() const = 0;
};

}  // namespace pando

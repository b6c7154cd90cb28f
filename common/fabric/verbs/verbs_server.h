// The memory-server side of the verbs fabric: registered memory, the control connections (TCP), and
// the queue pairs that its clients' verbs arrive at. No data operation runs on its processor.
//
// Thread safety: Serve() runs on one thread and calls the handler there. Stop() may be called from
// any thread and from a signal handler. memory() and the getters are thread-safe; CutOff() belongs
// to the thread of Serve(). Invariants:
//   1. Nobody gets a remote key or a queue pair before the hello, and where there is a secret
//      before having proved that he knows it.
//   2. A peer is reported gone only when all of its queue pairs are destroyed and a READ by
//      loopback has passed the NIC behind them: nothing of it is in flight any more (rules C2, L5).
//   3. The same holds before a broken queue pair's replacement is handed out.
//   4. A peer that was cut off gets no queue pair again; its calls are still answered.
//   5. Nothing that arrives makes the server read out of bounds, block, or allocate without a
//      bound. Control connections are control_port.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/auth/cluster_secret.h"
#include "common/fabric/server.h"
#include "common/fabric/verbs/device_choice.h"
#include "common/wire/remote_address.h"

namespace pando {

class DeviceMemoryCalls;

struct VerbsServerOptions {
  VerbsDeviceOptions device;
  // "host:port" for the control connections, ":port" for every address of this host; "": the
  // address of the GID in use (every address where that is none), and a port that the kernel
  // chooses (service_address.h).
  std::string listen;
  ServerId server_id = 1;
  uint64_t main_bytes = uint64_t{64} << 20;  // multiple of 4096; locked in memory while it serves
  uint64_t lock_bytes = 256 << 10;           // multiple of 64; what NICs have on chip
  bool device_memory = true;                 // lock table on the NIC where it has enough
  uint32_t packet_bytes = 0;      // largest WRITE (rule F6): 64 times 1..1024; 0: the path's MTU
  uint32_t endpoints_max = 4096;  // queue pairs
  // Client processes at once. Who was let in before it was reached, and joins after, is one more.
  uint32_t connections_max = 1024;
  int64_t hello_timeout_ms = 2'000;  // who has not introduced himself by then is closed
  // Nor does one stay so long without an identity (ControlHandler::IsKnown()).
  int64_t identity_timeout_ms = 30'000;
  int silence_ms = 10'000;  // a host that gives no sign of life for so long is gone
  int numa_node = -1;       // -1: wherever the pages are touched first
  bool huge_pages = false;  // where there are some, else normal pages
  std::shared_ptr<const ClusterSecret> secret;       // nullptr: the cluster has none
  DeviceMemoryCalls* device_memory_calls = nullptr;  // nullptr: the library's; tests have a fake
};

class VerbsServer : public PeerFence {
 public:
  // Opens the device, registers the memory and listens; clients wait until Serve() runs. As
  // VerbsDevice::Open(), and: AlreadyExists: somebody listens there; InvalidArgument: options;
  // ResourceExhausted: memory.
  static absl::StatusOr<std::unique_ptr<VerbsServer>> Create(const VerbsServerOptions& options);

  // As asked for, with packet_bytes filled in.
  virtual const VerbsServerOptions& options() const = 0;
  // "host:port" for the registry.
  virtual const std::string& address() const = 0;
  // Lines need checksums (rule F1): this device executes verbs in software.
  virtual bool needs_crc() const = 0;
  // Of the lock table; 0: it lies in host memory.
  virtual uint32_t on_chip_bytes() const = 0;
  // "rxe0 port 1, GID 10.77.0.1, MTU 4096".
  virtual std::string DescribeDevice() const = 0;
  virtual ServerMemory memory() = 0;
  virtual size_t queue_pairs() const = 0;

  // Serves until Stop(), then destroys every queue pair and closes every connection. Once per
  // server: FailedPrecondition afterwards. Peers still connected then are not reported gone.
  virtual absl::Status Serve(ControlHandler* handler) = 0;
  // Makes Serve() return, or a later Serve() return at once. Async-signal-safe.
  virtual void Stop() = 0;
};

}  // namespace pando

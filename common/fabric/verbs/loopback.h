// A memory server's verbs on its own memory: two queue pairs of one process, connected to each
// other. What they READ has passed the NIC behind everything that was on its way to memory, and
// their CAS is atomic against other hosts' (a processor's is not).
//
// Not thread-safe. Blocks for as long as a verb takes; gives up after a second.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {

// Memory as a remote verb names it.
struct RemoteSpace {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;
};

class Loopback {
 public:
  static constexpr uint32_t kReadBytesMax = 4096;

  static absl::StatusOr<std::unique_ptr<Loopback>> Create(std::shared_ptr<VerbsDevice> device);

  // `into` has at most kReadBytesMax bytes. Unavailable: the device failed; the next call tries
  // with new queue pairs.
  absl::Status Read(const RemoteSpace& space, uint64_t offset, std::span<std::byte> into);
  // The value found.
  absl::StatusOr<uint64_t> CompareSwap(const RemoteSpace& space, uint64_t offset, uint64_t compare,
                                       uint64_t swap);

 private:
  explicit Loopback(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}
  absl::Status Connect();
  absl::Status Execute(ibv_send_wr* request, uint32_t bytes);

  const std::shared_ptr<VerbsDevice> device_;
  RegisteredMemory buffer_;
  CompletionQueueHandle completions_;
  QueuePair from_, to_;
  bool connected_ = false;
};

}  // namespace pando

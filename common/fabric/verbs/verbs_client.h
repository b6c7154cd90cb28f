// What a verbs fabric and its endpoints share: the device, and the links to the memory servers
// (link_client.h, with its thread safety and invariants), over TCP.
//
// One more invariant:
//   The addresses and keys of one life of a server are never used with a queue pair of another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"
#include "common/fabric/link/link_client.h"
#include "common/fabric/verbs/thread_domain.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {

// Memory is fixed once connected, too.
struct VerbsLink : Link {
  using FrameType = VerbsFrameType;

  VerbsMemory memory;
  VerbsFrameReader reader;  // the watcher's, after the handshake

  std::mutex mutex;
  std::string out;  // waits for the socket; guarded by mutex
};

class VerbsClient final : public LinkClient<VerbsLink> {
 public:
  static absl::StatusOr<std::shared_ptr<VerbsClient>> Connect(
      const std::vector<ServerLocation>& servers, const VerbsFabricOptions& options);
  ~VerbsClient() { StopWatching(); }

  const VerbsDevice& device() const { return *device_; }
  const std::shared_ptr<VerbsDevice>& shared_device() const { return device_; }
  const VerbsFabricOptions& options() const { return options_; }
  ThreadDomainCalls* thread_domain_calls() const {
    return options_.thread_domain_calls != nullptr ? options_.thread_domain_calls
                                                   : RealThreadDomainCalls();
  }
  // Sessions take the device's completion vectors, each an interrupt of its own, in turn.
  int NextCompletionVector() {
    const int vectors = device_->context()->num_comp_vectors;
    return static_cast<int>(next_vector_.fetch_add(1, std::memory_order_relaxed) %
                            static_cast<uint32_t>(std::max(vectors, 1)));
  }

  // Statuses as Fabric::AddServer(); `capabilities` are what the fabric has promised.
  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add,
                                     const Capabilities& capabilities);

  // Tells the server that a queue pair of this client's exists no more.
  void CloseHandle(VerbsLink* link, uint32_t handle);
  // For tests (BreakVerbsConnection()).
  void BreakConnection(ServerId server);

 private:
  explicit VerbsClient(const VerbsFabricOptions& options) : options_(options) {
    options_.connect_timeout_ms = std::max(options_.connect_timeout_ms, kLaterHandshakeMsMin);
  }

  SendResult Transmit(VerbsLink* link, VerbsFrameType type, uint32_t sequence,
                      std::string_view body) override;
  absl::Status Serve(VerbsLink* link) override;
  absl::Status GiveBack(VerbsLink* link, std::string_view body) override;
  int16_t EventsOf(VerbsLink* link) override;

  // False: too much waits for the socket already, and `always` is not set.
  bool Enqueue(VerbsLink* link, std::string_view frame, bool always);
  static absl::StatusOr<Reply> ReplyIn(VerbsFrame frame);

  VerbsFabricOptions options_;
  std::shared_ptr<VerbsDevice> device_;
  std::atomic<uint32_t> next_vector_{0};
};

}  // namespace pando

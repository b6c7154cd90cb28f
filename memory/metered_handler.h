// A memory server with a metrics endpoint beside it. Control calls and scrapes take turns under a
// mutex; data operations are one-sided and know of neither.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/fabric/server.h"
#include "common/metrics/endpoint.h"
#include "memory/memory_server.h"

namespace pando::memory {

// To be served instead of the server itself, which must outlive it.
class MeteredHandler : public ControlHandler {
 public:
  // Listens on `address` (common/metrics/endpoint.h; InvalidArgument, Unavailable as there).
  static absl::StatusOr<std::unique_ptr<MeteredHandler>> Create(MemoryServer* server,
                                                                const std::string& address);

  std::string Handle(PeerId peer, std::string_view request) override;
  bool IsKnown(PeerId peer) const override;
  void OnPeerGone(PeerId peer) override;
  int64_t OnTimer(int64_t now_ns) override;

  int port() const { return endpoint_->port(); }

 private:
  explicit MeteredHandler(MemoryServer* server) : server_(server) {}
  MetricList Metrics();

  mutable absl::Mutex mutex_;
  MemoryServer* const server_;
  std::unique_ptr<MetricsEndpoint> endpoint_;  // last: its threads ask for Metrics()
};

}  // namespace pando::memory

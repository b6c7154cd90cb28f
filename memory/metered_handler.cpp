#include "memory/metered_handler.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/metrics/memory_metrics.h"

namespace pando::memory {

absl::StatusOr<std::unique_ptr<MeteredHandler>> MeteredHandler::Create(MemoryServer* server,
                                                                       const std::string& address) {
  std::unique_ptr<MeteredHandler> handler(new MeteredHandler(server));
  PANDO_ASSIGN_OR_RETURN(
      handler->endpoint_,
      MetricsEndpoint::Start(address, {"server_id", absl::StrCat(server->superblock().server_id)},
                             [handler = handler.get()] { return handler->Metrics(); }));
  return handler;
}

std::string MeteredHandler::Handle(PeerId peer, std::string_view request) {
  absl::MutexLock lock(&mutex_);
  return server_->Handle(peer, request);
}

bool MeteredHandler::IsKnown(PeerId peer) const {
  absl::MutexLock lock(&mutex_);
  return server_->IsKnown(peer);
}

void MeteredHandler::OnPeerGone(PeerId peer) {
  absl::MutexLock lock(&mutex_);
  server_->OnPeerGone(peer);
}

int64_t MeteredHandler::OnTimer(int64_t now_ns) {
  absl::MutexLock lock(&mutex_);
  return server_->OnTimer(now_ns);
}

MetricList MeteredHandler::Metrics() {
  absl::MutexLock lock(&mutex_);
  return MemoryMetrics(server_->Info(), server_->Counters());
}

}  // namespace pando::memory

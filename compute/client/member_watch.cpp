#include "compute/client/member_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/quiet_thread.h"

namespace pando {
namespace {

constexpr int64_t kPauseMs = 1'000;
// After failures, doubled from the first: a server that does not answer takes up to a second.
constexpr int64_t kFirstPauseNs = kSecondNs / 2;
constexpr int64_t kLastPauseNs = 30 * kSecondNs;

}  // namespace

MemberWatch::MemberWatch(std::shared_ptr<Registry> registry, std::string fabric,
                         Membership* members, Callbacks callbacks)
    : registry_(std::move(registry)),
      fabric_(std::move(fabric)),
      members_(members),
      callbacks_(std::move(callbacks)) {
  members_->StartLooking();
  thread_ = StartQuietThread("pando-members", [this] {
    while (members_->AwaitLook(kPauseMs)) {
      Look();
      members_->EndLook();
    }
  });
}

MemberWatch::~MemberWatch() {
  members_->StopLooking();
  thread_.join();
}

void MemberWatch::Look() {
  // Who is connected does not need the registry: what is wrong with it is said to those who
  // connect.
  std::vector<absl::Status> bad;
  const absl::StatusOr<std::vector<ServerLocation>> servers = registry_->List(&bad);
  if (!servers.ok()) return;
  for (const ServerLocation& server : *servers) {
    if (!callbacks_.is_connected(server.id) && CheckReachable({server}, fabric_).ok()) Try(server);
  }
}

void MemberWatch::Try(const ServerLocation& location) {
  Failure& failure = failures_[location.id];
  if (RealClock().NowNs() < failure.again_ns) return;
  const absl::Status status = callbacks_.add(location);
  if (status.ok()) {
    failures_.erase(location.id);
    PANDO_LOG(INFO) << "memory server " << location.id << " at " << location.address << " has come";
    return;
  }
  failure.pause_ns = std::clamp(2 * failure.pause_ns, kFirstPauseNs, kLastPauseNs);
  failure.again_ns = RealClock().NowNs() + failure.pause_ns;
  if (failure.said == status.message()) return;
  failure.said = std::string(status.message());
  PANDO_LOG(WARNING) << "memory server " << location.id << " at " << location.address
                     << " cannot be used yet: " << failure.said;
}

}  // namespace pando

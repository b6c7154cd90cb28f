#include "compute/client/member_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr int64_t kPauseMs = 1'000;
constexpr int64_t kPauseMsMin = 20;
// After failures, doubled from the first: a server that does not answer takes a second.
constexpr int64_t kFirstPauseNs = kSecondNs / 2;
constexpr int64_t kLastPauseNs = 30 * kSecondNs;
// An attempt that fails after so long has not been answered.
constexpr int64_t kSlowNs = kSecondNs / 4;

}  // namespace

MemberWatch::MemberWatch(std::shared_ptr<Registry> registry, std::string fabric,
                         Membership* members, Callbacks callbacks)
    : registry_(std::move(registry)),
      fabric_(std::move(fabric)),
      members_(members),
      callbacks_(std::move(callbacks)) {}

absl::Status MemberWatch::Start() {
  members_->StartLooking();
  // Those that the client was connected without.
  for (const ServerLocation& server : Wanted()) failures_[server.id];
  PANDO_ASSIGN_OR_RETURN(thread_, StartQuietThread("pando-members", [this] { Run(); }));
  return absl::OkStatus();
}

void MemberWatch::Run() {
  int64_t took_ms = 0;
  while (members_->AwaitLook(std::max(kPauseMs - took_ms, kPauseMsMin))) {
    const int64_t start_ns = RealClock().NowNs();
    Look();
    members_->EndLook();
    took_ms = (RealClock().NowNs() - start_ns) / kMillisecondNs;
  }
}

MemberWatch::~MemberWatch() {
  members_->StopLooking();
  if (thread_.joinable()) thread_.join();
}

std::vector<ServerLocation> MemberWatch::Wanted() const {
  // A connected client does not need the registry: only those that connect are told what is wrong
  // with it.
  std::vector<absl::Status> bad;
  const absl::StatusOr<std::vector<ServerLocation>> servers = registry_->List(&bad);
  std::vector<ServerLocation> wanted;
  if (!servers.ok()) return wanted;
  for (const ServerLocation& server : *servers) {
    if (!callbacks_.is_connected(server.id) && CheckReachable({server}, fabric_).ok()) {
      wanted.push_back(server);
    }
  }
  return wanted;
}

void MemberWatch::Look() {
  std::vector<ServerLocation> wanted = Wanted();
  // A new server goes before those that do not answer; these take turns, one per look.
  std::stable_sort(wanted.begin(), wanted.end(),
                   [&](const auto& a, const auto& b) { return AgainNs(a.id) < AgainNs(b.id); });
  for (const ServerLocation& server : wanted) {
    const int64_t start_ns = RealClock().NowNs();
    if (AgainNs(server.id) > start_ns) break;
    if (!Try(server) && RealClock().NowNs() - start_ns >= kSlowNs) break;
  }
}

int64_t MemberWatch::AgainNs(ServerId server) const {
  const auto failure = failures_.find(server);
  return failure == failures_.end() ? -1 : failure->second.again_ns;
}

bool MemberWatch::Try(const ServerLocation& location) {
  const int64_t start_ns = RealClock().NowNs();
  const absl::Status status = callbacks_.add(location);
  const int64_t took_ns = RealClock().NowNs() - start_ns;
  if (status.ok()) {
    // Others may have failed for want of this one, and are tried again soon.
    for (auto& [server, failure] : failures_) failure.again_ns = failure.pause_ns = 0;
    failures_.erase(location.id);
    PANDO_LOG(INFO) << "memory server " << location.id << " at " << location.address << " has come";
    return true;
  }
  Failure& failure = failures_[location.id];
  // Where nobody listens asking costs nothing, and somebody may in a moment.
  const bool refused = absl::IsUnavailable(status) && took_ns < kSlowNs;
  failure.pause_ns =
      refused ? kFirstPauseNs : std::clamp(2 * failure.pause_ns, kFirstPauseNs, kLastPauseNs);
  failure.again_ns = start_ns + took_ns + failure.pause_ns;
  if (failure.said == status.message()) return false;
  failure.said = std::string(status.message());
  PANDO_LOG(WARNING) << "memory server " << location.id << " at " << location.address
                     << " cannot be used yet: " << failure.said;
  return false;
}

}  // namespace pando

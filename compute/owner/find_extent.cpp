#include "compute/owner/find_extent.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/base/time_constants.h"
#include "common/wire/control.h"
#include "compute/core/extent_calls.h"

namespace pando {
namespace {

// Of who says how much memory it has: at once, unless its process is stopped.
constexpr int64_t kAnswerNsMax = kSecondNs / 2;
// Of all of them. With less, nobody has the time for anything else.
constexpr int64_t kAnswerNsMin = 10 * kMillisecondNs;

// A share of the time that is left.
OperationContext PartOf(OperationContext& context, int64_t part, int64_t longest_ns) {
  const int64_t now_ns = context.session.NowNs();
  const int64_t share_ns = std::max<int64_t>(0, context.deadline_ns() - now_ns) / part;
  return OperationContext(context, now_ns + std::min(share_ns, longest_ns));
}

}  // namespace

absl::StatusOr<std::vector<ServerId>> ExtentSearch::Ask(OperationContext& context, ServerId last) {
  std::vector<std::pair<uint64_t, ServerId>> answers;
  std::vector<ServerId> others;
  absl::Status refusal = absl::UnavailableError("there is no memory server");
  // Those that say nothing leave half of the time for what follows.
  const bool is_over = context.deadline_ns() - context.session.NowNs() < kAnswerNsMin;
  OperationContext all = PartOf(context, is_over ? 1 : 2, kNeverNs);
  for (size_t i = 0; i < servers_.size(); ++i) {
    const ServerId server = servers_[i];
    OperationContext asking = PartOf(all, static_cast<int64_t>(servers_.size() - i), kAnswerNsMax);
    const auto body = control_.Call(asking, server, ControlOpcode::kServerInfo, "");
    const bool is_silent = absl::IsDeadlineExceeded(body.status());
    if (!is_silent) others.push_back(server);
    all_answered_ = all_answered_ && !is_silent;
    const auto info = body.ok() ? ParseServerInfo(*body) : body.status();
    if (!info.ok()) {
      if (!absl::IsDeadlineExceeded(refusal)) refusal = info.status();
      continue;
    }
    answers.emplace_back(info->free_bytes, server);
    largest_bytes_ = std::max(largest_bytes_, info->free_bytes + info->used_bytes);
  }
  if (answers.empty()) return refusal;
  servers_ = std::move(others);
  std::stable_sort(answers.begin(), answers.end(), [last](const auto& a, const auto& b) {
    if ((a.second == last) != (b.second == last)) return b.second == last;
    return a.first > b.first;
  });
  std::vector<ServerId> servers;
  for (const auto& [free_bytes, server] : answers) servers.push_back(server);
  return servers;
}

absl::StatusOr<LogExtent> ExtentSearch::Find(OperationContext& context, uint64_t bytes,
                                             ServerId last) {
  absl::StatusOr<std::vector<ServerId>> servers = Ask(context, last);
  while (absl::IsDeadlineExceeded(servers.status()) && !context.expired()) {
    servers = Ask(context, last);
  }
  PANDO_RETURN_IF_ERROR(servers.status());
  absl::Status refusal;
  for (const ServerId server : *servers) {
    // It gets all of the time: memory that it promises, or grants too late, would be nobody's.
    absl::StatusOr<LogExtent> extent = AllocateExtent(context, control_, server, bytes);
    if (extent.ok() || absl::IsDeadlineExceeded(extent.status())) return extent;
    if (!absl::IsResourceExhausted(refusal)) refusal = extent.status();
  }
  return refusal;
}

}  // namespace pando

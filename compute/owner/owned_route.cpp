// Where an operation on a key of an owned tree goes (rule O6): to this member, to another one over
// a link, or first to the map.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/owner/member.h"
#include "compute/owner/owned_tree.h"

namespace pando {

// --- Hints.

std::vector<OwnedTree::Hint>::const_iterator OwnedTree::HintAt(std::string_view key) const {
  const auto above =
      std::upper_bound(hints_.begin(), hints_.end(), key,
                       [](std::string_view k, const Hint& known) { return k < known.range.low; });
  if (above == hints_.begin()) return hints_.end();
  return std::prev(above)->range.Covers(key) ? std::prev(above) : hints_.end();
}

std::optional<OwnedTree::Owner> OwnedTree::OwnerOf(std::string_view key) const {
  std::lock_guard lock(hints_mutex_);
  const auto hint = HintAt(key);
  if (hint == hints_.end()) return std::nullopt;
  return hint->owner;
}

void OwnedTree::Learn(const MappedRange& range, std::string address) {
  std::lock_guard lock(hints_mutex_);
  std::erase_if(hints_, [&](const Hint& known) {
    const bool ends_before = !known.range.high.empty() && known.range.high <= range.low;
    const bool begins_behind = !range.high.empty() && range.high <= known.range.low;
    return !ends_before && !begins_behind;
  });
  const auto above = std::upper_bound(
      hints_.begin(), hints_.end(), range.low,
      [](const std::string& low, const Hint& known) { return low < known.range.low; });
  hints_.insert(above, {range, {range.entry.owner, std::move(address)}});
}

void OwnedTree::Forget(std::string_view key) {
  std::lock_guard lock(hints_mutex_);
  const auto hint = HintAt(key);
  if (hint != hints_.end()) hints_.erase(hint);
}

std::optional<std::string> OwnedTree::NextBorder(std::string_view key) const {
  const OwnRange* const range = FindOwn(key);
  if (range == nullptr) return std::nullopt;
  return range->high;
}

// --- Routing.

absl::Status OwnedTree::AwaitRetry(OperationContext& context, const absl::Status& why) {
  if (context.expired()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline has passed, without effect: ", why.message()));
  }
  context.session.scheduler().SleepUntil(
      std::min(context.deadline_ns(), context.session.NowNs() + member_.retry_ns()));
  return absl::OkStatus();
}

absl::Status OwnedTree::Route(OperationContext& context, std::string_view key,
                              absl::FunctionRef<std::optional<absl::Status>()> here,
                              const PeerRequest& request, PeerAnswer* answer) {
  for (int strayed = 0;;) {
    if (FindOwn(key) != nullptr) {
      if (std::optional<absl::Status> done = here(); done.has_value()) return *std::move(done);
    }
    const std::optional<Owner> owner = OwnerOf(key);
    if (!owner.has_value()) {
      const absl::Status obtained = member_.Obtain(context, this, key);
      if (obtained.ok()) continue;
      // Somebody is in the way for now, or the service has much to do: to the deadline.
      const bool again = absl::IsAborted(obtained) || absl::IsDeadlineExceeded(obtained);
      if (!again) return obtained;
      PANDO_RETURN_IF_ERROR(AwaitRetry(context, obtained));
      continue;
    }
    absl::Status asked = member_.Ask(context, owner->id, owner->address, request, answer);
    if (asked.ok() && !answer->not_owner) return answer->status;
    if (RuleHolds(Rule::kO6)) Forget(key);
    if (!asked.ok() && !absl::IsUnavailable(asked)) return asked;
    // It was the owner, perhaps, and the map says who is; or a range changes hands just now.
    if (asked.ok() && strayed++ == 0) continue;
    if (asked.ok()) asked = absl::AbortedError("the key's range is changing hands");
    PANDO_RETURN_IF_ERROR(AwaitRetry(context, asked));
  }
}

absl::Status OwnedTree::Get(OperationContext& context, std::string_view key, std::string* value) {
  if (std::optional<absl::Status> done = GetHere(context, key, value); done.has_value()) [[likely]]
    return *std::move(done);
  if (std::optional<absl::Status> done = GetLent(context, key, value); done.has_value())
    return *std::move(done);
  const PeerRequest request = {
      .operation = PeerRequest::Operation::kGet, .tree_id = id(), .key = key};
  PeerAnswer answer;
  bool is_here = false;
  const auto here = [&] {
    auto done = GetHere(context, key, value);
    is_here = done.has_value();
    return done;
  };
  const absl::Status status = Route(context, key, here, request, &answer);
  if (status.ok() && !is_here) *value = std::move(answer.value);
  return status;
}

absl::Status OwnedTree::WriteElsewhere(OperationContext& context, const WriteOperation& operation,
                                       std::string* answer) {
  const PeerRequest request = {.operation = PeerRequest::Operation::kWrite,
                               .write = operation.kind,
                               .tree_id = id(),
                               .key = operation.key,
                               .value = operation.value,
                               .expected = operation.expected,
                               .function = operation.function_number};
  PeerAnswer peer;
  bool is_here = false;
  const auto here = [&] {
    auto done = WriteHere(context, operation, answer);
    is_here = done.has_value();
    return done;
  };
  absl::Status status = Route(context, operation.key, here, request, &peer);
  if (is_here) return status;
  if (answer != nullptr) *answer = std::move(peer.value);
  FreeUnlinked(context, operation);
  return status;
}

absl::Status OwnedTree::Write(OperationContext& context, const WriteOperation& operation,
                              std::string* answer) {
  std::optional<absl::Status> done = WriteHere(context, operation, answer);
  if (done.has_value()) [[likely]]
    return *std::move(done);
  return WriteElsewhere(context, operation, answer);
}

}  // namespace pando

// Answers of peers as they are taken, and whether they answer what was asked.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "compute/peer/peer_format.h"

namespace pando {

void PeerAnswerView::CopyTo(PeerAnswer* answer) const {
  answer->Reset();
  answer->not_owner = not_owner;
  if (condition_failed) {
    answer->status = ConditionFailedError(text);
  } else if (code != absl::StatusCode::kOk) {
    answer->status = absl::Status(code, absl::string_view(text.data(), text.size()));
  }
  answer->value.assign(value);
  answer->is_scan = is_scan;
  answer->is_erasing = is_erasing;
  answer->erased = erased;
  answer->is_lending = is_lending;
  answer->lent = lent;
  answer->lent_low.assign(lent_low);
  answer->lent_high.assign(lent_high);
  if (more) answer->SetReached(reached);
  answer->row_count = row_count;
  answer->rows.assign(rows);
}

absl::Status CheckPeerAnswer(const PeerRequest& request, const PeerAnswerView& answer) {
  const auto wrong = [](std::string_view what) {
    return absl::DataLossError(absl::StrCat("a peer's answer: ", std::string(what)));
  };
  if (answer.not_owner || answer.code != absl::StatusCode::kOk) return absl::OkStatus();
  const bool is_scan = request.operation == PeerRequest::Operation::kScan;
  if (is_scan != answer.is_scan) return wrong("rows where none were asked for, or none");
  const bool erases = request.operation == PeerRequest::Operation::kEraseRange;
  if (erases != answer.is_erasing) return wrong("erased where nothing was to be, or not");
  const bool lends = request.operation == PeerRequest::Operation::kLend;
  if (lends != answer.is_lending) return wrong("lent where nothing was asked for, or not");
  if (lends && (request.key < answer.lent_low ||
                (!answer.lent_high.empty() && request.key >= answer.lent_high))) {
    return wrong("another range than that of the key");
  }
  if (!is_scan && !erases) return absl::OkStatus();
  // Below, in the scan's order: a cut before another, and a key behind a cut.
  const auto is_before = [&](PeerCut a, PeerCut b) {
    return request.down ? std::pair(b.key, b.after) < std::pair(a.key, a.after)
                        : std::pair(a.key, a.after) < std::pair(b.key, b.after);
  };
  if (answer.row_count > request.rows_max) return wrong("more rows than were asked for");
  PeerCut at = request.at;
  const PeerCut end = answer.more ? answer.reached : request.end;
  if (answer.more && (!is_before(at, end) || is_before(request.end, end))) {
    return wrong("it has not got on, or goes too far");
  }
  PeerRowReader reader(answer.rows);
  for (std::string_view key, value; reader.Next(&key, &value);) {
    // The cuts on both sides of the key, in the scan's order.
    const PeerCut first{key, request.down}, second{key, !request.down};
    if (is_before(first, at) || is_before(end, second)) return wrong("rows out of order");
    at = second;
  }
  return absl::OkStatus();
}

}  // namespace pando

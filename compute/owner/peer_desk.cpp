#include "compute/owner/peer_desk.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/owner/member.h"
#include "compute/owner/owned_reader.h"

namespace pando {
namespace {

// An answer has no room for the rows of more.
constexpr size_t kScanLeaves = 4;

KeyCut CutOf(OwnedTree& tree, const PeerCut& cut) {
  return KeyCut::At(cut.key, cut.after, tree.leaves().layout.key_bytes_max());
}

}  // namespace

void PeerDesk::Execute(OperationContext& context, const PeerRequest& request, PeerAnswer* answer) {
  if (CpuCosts* const costs = context.session.cpu_costs(); costs != nullptr) [[unlikely]]
    costs->ChargeOperation();
  OwnedTree* const tree = member_.BeginVisit(request.tree_id);
  if (tree == nullptr) {
    answer->not_owner = true;
    return;
  }
  using Operation = PeerRequest::Operation;
  if (request.operation == Operation::kTake || request.operation == Operation::kLoad) {
    if (request.operation == Operation::kLoad) {
      answer->value = Encode(member_.ReportLoad(tree, request.key));
    } else {
      answer->not_owner = !member_.TakeFor(context, tree, request.key, ParseRate(request.value));
    }
    return member_.EndVisit(tree);
  }
  context.fate = &tree->leaves().fate;
  ExecuteOn(tree, context, request, answer);
  // What was refused because a queue pair of this member's broke, without effect, is nothing that
  // the peer could do anything about.
  while (IsRecoverable(answer->status) && absl::IsUnavailable(answer->status) &&
         !context.expired()) {
    context.session.scheduler().SleepUntil(
        std::min(context.deadline_ns(), context.session.NowNs() + member_.retry_ns()));
    answer->Reset();
    answer->is_scan = request.operation == PeerRequest::Operation::kScan;
    answer->is_erasing = request.operation == PeerRequest::Operation::kEraseRange;
    answer->is_lending = request.operation == PeerRequest::Operation::kLend;
    ExecuteOn(tree, context, request, answer);
  }
  // That this member was cut off is nothing of the peer's: the map says who is next. A memory
  // server may have refused something before this member hears that it is fenced; else only a
  // dropped tree is refused like that.
  const bool is_dropped =
      tree->dropped() || absl::IsFailedPrecondition(tree->leaves().fate.status());
  // The peer is not to wait for a sweep.
  tree->leaves().GiveBackSweep(context);
  const bool may_be_cut_off = context.session.fenced() || member_.lease().ended() || !is_dropped;
  member_.EndVisit(tree);
  if (may_be_cut_off && absl::IsFailedPrecondition(answer->status) &&
      !IsConditionFailed(answer->status)) {
    answer->Reset();
    answer->not_owner = true;
  }
}

void PeerDesk::ExecuteOn(OwnedTree* tree, OperationContext& context, const PeerRequest& request,
                         PeerAnswer* answer) {
  if (tree->leaves().fate.lost()) {
    answer->status = tree->leaves().fate.status();
    return;
  }
  if (tree->dropped()) {
    answer->status = tree->DroppedError();
    return;
  }
  const NodeLayout& layout = tree->leaves().layout;
  if (request.operation == PeerRequest::Operation::kScan) {
    return Scan(tree, context, request, answer);
  }
  if (request.operation == PeerRequest::Operation::kEraseRange) {
    return EraseRange(tree, context, request, answer);
  }
  if (request.operation == PeerRequest::Operation::kLend) {
    answer->not_owner = !tree->LendHere(context, request.key, answer);
    return;
  }
  if (request.key.empty() || request.key.size() > layout.key_bytes_max()) {
    answer->status = absl::InvalidArgumentError(absl::StrCat(
        "a key of ", request.key.size(), " bytes; the tree takes 1..", layout.key_bytes_max()));
    return;
  }
  std::optional<absl::Status> done;
  if (request.operation == PeerRequest::Operation::kGet) {
    // The variant asks on.
    done = RuleHolds(Rule::kP4) ? tree->GetHere(context, request.key, &answer->value)
                                : std::optional(tree->Get(context, request.key, &answer->value));
  } else {
    WriteOperation operation;
    answer->status = Prepare(*tree, request, &operation);
    if (!answer->status.ok()) return;
    done = tree->WriteForPeer(context, operation, &answer->value);
  }
  answer->not_owner = !done.has_value();
  if (done.has_value()) answer->status = *std::move(done);
  const bool says =
      IsConditionFailed(answer->status) ||
      (answer->status.ok() && (request.is_read() || request.write == WriteKind::kUpsert));
  if (!says) answer->value.clear();
}

absl::Status PeerDesk::Prepare(OwnedTree& tree, const PeerRequest& request,
                               WriteOperation* operation) const {
  const uint32_t value_bytes_max = tree.leaves().layout.value_bytes_max();
  *operation = {.kind = request.write,
                .key = request.key,
                .value = request.value,
                .expected = request.expected,
                .function_number = request.function};
  if (request.write == WriteKind::kUpsert) {
    PANDO_ASSIGN_OR_RETURN(operation->function,
                           find_function_(request.function, request.value, value_bytes_max));
  }
  if (request.value.size() <= value_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a value of ", request.value.size(),
                                                 " bytes; the tree takes 0..", value_bytes_max));
}

void PeerDesk::Scan(OwnedTree* tree, OperationContext& context, const PeerRequest& request,
                    PeerAnswer* answer) {
  OwnedReader reader(tree);
  reader.Start(CutOf(*tree, request.at), CutOf(*tree, request.end), request.down);
  if (reader.done()) return;
  std::string last;
  bool is_full = false;
  const auto take = [&](LeafEntry& entry) {
    is_full = answer->row_count == request.rows_max || !answer->AddRow(entry.key, entry.value);
    if (!is_full) last = std::move(entry.key);
    return !is_full;
  };
  std::optional<absl::Status> done = reader.ReadHere(context, kScanLeaves, take);
  answer->not_owner = !done.has_value();
  if (!done.has_value()) return;
  answer->status = *std::move(done);
  if (!answer->status.ok()) return;
  if (is_full) return answer->SetReached({last, /*after=*/!request.down});
  if (!reader.done()) answer->SetReached({reader.at().key, reader.at().after});
}

void PeerDesk::EraseRange(OwnedTree* tree, OperationContext& context, const PeerRequest& request,
                          PeerAnswer* answer) {
  const KeyRange range = {CutOf(*tree, request.at), CutOf(*tree, request.end)};
  if (range.low >= range.high) return;
  ErasedPiece piece;
  std::optional<absl::Status> done = tree->EraseHere(context, range, &piece);
  answer->not_owner = !done.has_value();
  if (!done.has_value()) return;
  answer->status = *std::move(done);
  if (!answer->status.ok()) return;
  answer->erased = piece.keys.size();
  if (piece.reached < range.high) answer->SetReached({piece.reached.key, piece.reached.after});
}

}  // namespace pando

// Executes for peers what they ask of this member's keys (rule P4): by its own rules, and never
// elsewhere.
//
// Thread safety: as PeerExecutor.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/index/write_operation.h"
#include "compute/peer/peer_service.h"
#include "pando/upsert.h"

namespace pando {

class Member;
class OwnedTree;

class PeerDesk final : public PeerExecutor {
 public:
  // The function of that number for such an operand and values of at most so many bytes.
  // InvalidArgument: there is none, or it takes no such operand.
  using FindFunction = std::function<absl::StatusOr<const UpsertCallback*>(
      UpsertFunction function, std::string_view operand, uint32_t value_bytes_max)>;

  PeerDesk(Member* member, FindFunction find_function)
      : member_(*member), find_function_(std::move(find_function)) {}

  void Execute(OperationContext& context, const PeerRequest& request, PeerAnswer* answer) override;

 private:
  void ExecuteOn(OwnedTree* tree, OperationContext& context, const PeerRequest& request,
                 PeerAnswer* answer);
  absl::Status Prepare(OwnedTree& tree, const PeerRequest& request,
                       WriteOperation* operation) const;
  void Scan(OwnedTree* tree, OperationContext& context, const PeerRequest& request,
            PeerAnswer* answer);
  void EraseRange(OwnedTree* tree, OperationContext& context, const PeerRequest& request,
                  PeerAnswer* answer);

  Member& member_;
  const FindFunction find_function_;
};

}  // namespace pando

#include "compute/route/routed_tree.h"

#include "absl/strings/str_cat.h"
#include "common/wire/superblock.h"

namespace pando {

absl::Status RoutedTree::CheckKind(const CatalogEntry& entry) {
  // A kind that others than shared trees are of is an incompatible feature of its entry.
  const uint64_t unknown = entry.features.incompatible & ~kKnownTreeFeatures.incompatible;
  if (unknown == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "tree '", entry.name,
      "' is of a kind or a format that this release does not know (incompatible features ",
      absl::Hex(unknown), ", hex); open it with the release that created it, or a later one"));
}

absl::Status RoutedTree::GetElsewhere(OperationContext& context, std::string_view key,
                                      std::string* value) {
  return large_ != nullptr ? large_->Get(context, key, value) : owned_->Get(context, key, value);
}

absl::Status RoutedTree::WriteElsewhere(OperationContext& context, const WriteOperation& operation,
                                        std::string* answer) {
  return large_ != nullptr ? large_->Write(context, operation, answer)
                           : owned_->Write(context, operation, answer);
}

}  // namespace pando

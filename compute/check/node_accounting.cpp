#include "compute/check/node_accounting.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/check/node_look.h"

namespace pando {
namespace {

class Accounting {
 public:
  explicit Accounting(const std::vector<Reference>& reached) {
    for (const Reference& node : reached) reached_[node.address.raw()] = node.life;
    result_.counts.reachable = reached_.size();
  }

  void Take(RemoteAddress address, NodeUse use, uint32_t incarnation);
  AccountingResult Finish();

 private:
  AccountingResult result_;
  absl::flat_hash_map<uint64_t, uint32_t> reached_;  // and not listed so far: life
};

void Accounting::Take(RemoteAddress address, NodeUse use, uint32_t incarnation) {
  const auto found = reached_.find(address.raw());
  const bool reachable = found != reached_.end();
  const std::string name = reachable
                               ? DescribeNode({address, found->second})
                               : absl::StrCat("node ", address.server(), ":", address.offset());
  if (reachable) reached_.erase(found);
  switch (use) {
    case NodeUse::kUntouched:
    case NodeUse::kFree:
      ++result_.counts.free;
      if (reachable) {
        result_.suspects[address.raw()] =
            absl::StrCat(name,
                         " is part of the tree, but its memory server would give it away: it "
                         "is on record as free");
      }
      break;
    case NodeUse::kOut:
      result_.counts.held += reachable ? 0 : 1;
      break;
    case NodeUse::kOrphan:
      result_.counts.orphans += reachable ? 0 : 1;
      break;
    case NodeUse::kSettled:
      if (!reachable) {
        result_.suspects[address.raw()] =
            absl::StrCat(name, " is lost: on record as the tree's, but nothing leads to it");
      }
      break;
    default:
      result_.suspects[address.raw()] =
          absl::StrCat(name, " has an unknown record ", static_cast<int>(use), " (incarnation ",
                       incarnation, ")");
  }
}

AccountingResult Accounting::Finish() {
  for (const auto& [raw, life] : reached_) {
    result_.suspects[raw] =
        absl::StrCat(DescribeNode({RemoteAddress::FromRaw(raw), life}),
                     " is part of the tree, but not among the nodes its memory server gave to it");
  }
  return std::move(result_);
}

}  // namespace

absl::StatusOr<AccountingResult> AccountForNodes(const std::vector<ServerId>& servers,
                                                 uint32_t node_bytes,
                                                 const std::vector<Reference>& reached,
                                                 const ListNodes& list) {
  Accounting accounting(reached);
  for (const ServerId server : servers) {
    uint64_t after_offset = 0;
    for (bool more = true; more;) {
      PANDO_ASSIGN_OR_RETURN(const NodeList part, list(server, after_offset));
      more = part.more != 0;
      if (more && part.next <= after_offset) {
        return absl::DataLossError(
            absl::StrCat("memory server ", server, ": its list of nodes does not go on"));
      }
      after_offset = part.next;
      for (const NodeUseRun& run : part.runs) {
        for (uint64_t at = 0; at + node_bytes <= run.bytes; at += node_bytes) {
          accounting.Take(RemoteAddress(server, run.offset + at), run.use, run.incarnation);
        }
      }
    }
  }
  return accounting.Finish();
}

}  // namespace pando

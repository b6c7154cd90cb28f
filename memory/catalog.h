// The catalog of named trees, kept by one memory server for the whole cluster (rule R4).
//
// Not thread-safe: one control thread. Invariants:
//   1. A name belongs to at most one tree; a tree id to one tree for ever (id_source.h).
//   2. Before an entry is visible its root leaf is formatted and its root record written.
//   3. What an entry says of a memory server stays: where the server lives again, the tree has lost
//      what it had there (rule R7).
//   4. A root record's line and lock word are used again only after Release(): no client can write
//      them any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/control.h"
#include "memory/id_source.h"
#include "memory/node_ledger.h"
#include "memory/region.h"

namespace pando::memory {

class Catalog {
 public:
  // `life`: of this memory server.
  Catalog(Region* region, NodeLedger* nodes, IdSource* ids, uint64_t life);

  // Create if absent: `created` of the result says which. Sizes of 0 in the requested shape mean
  // "derive" (node) and "the server's" (packet). InvalidArgument: name or shape;
  // FailedPrecondition: the name has another shape or mode (says both); ResourceExhausted: no root
  // record or no memory left, but for the cluster's own tree (rule O2), which has some kept back.
  absl::StatusOr<CatalogEntry> Create(const CreateTreeRequest& request);
  absl::StatusOr<CatalogEntry> Open(std::string_view name) const;  // NotFound
  std::vector<CatalogEntry> List() const;                          // by name, without their servers
  // Rule R7: the tree may have nodes on this life of that server. Idempotent. NotFound: there is no
  // such tree; DataLoss: it may have had nodes on another life of it; ResourceExhausted: bound.
  absl::Status Grow(const TreeGrowth& growth);
  absl::StatusOr<TreeServerList> ServersOf(uint32_t tree_id) const;  // NotFound
  bool Contains(uint32_t tree_id) const { return names_.contains(tree_id); }

  // Of a tree that Contains(): the name is free at once. The root record stays for clients that
  // still use the tree.
  // Where it may have nodes.
  TreeServerList Drop(uint32_t tree_id);
  // Nobody uses the dropped tree any more: its root record is marked dropped and its place is free
  // again.
  void Release(uint32_t tree_id);

  size_t size() const { return trees_.size(); }
  uint64_t created() const { return created_; }

 private:
  absl::StatusOr<TreeShape> CompleteShape(const TreeShape& requested, bool windows) const;
  absl::Status CheckSameShape(const CatalogEntry& entry, const TreeShape& shape) const;
  // Index of one; ResourceExhausted.
  absl::StatusOr<uint32_t> FindRecord(std::string_view name) const;
  absl::StatusOr<Reference> FormatRootLeaf(uint32_t tree_id, const TreeShape& shape, bool windows);
  // Records whose lock words are free may be used again.
  void FreeRecords();
  void WriteRootRecord(uint32_t index, uint32_t tree_id, const Reference& root, bool dropped);

  Region* const region_;
  NodeLedger* const nodes_;
  IdSource* const ids_;
  const uint64_t life_;
  absl::btree_map<std::string, CatalogEntry, std::less<>> trees_;
  absl::btree_map<uint32_t, std::string> names_;         // tree id -> name
  absl::btree_map<uint32_t, uint32_t> dropped_records_;  // tree id -> index of its root record
  std::vector<bool> record_used_;
  // Of trees that are gone, but for their lock words, which the NIC did not let go.
  std::vector<uint32_t> taken_records_;
  uint64_t created_ = 0;
};

}  // namespace pando::memory

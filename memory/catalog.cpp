#include "memory/catalog.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando::memory {
namespace {

absl::Status CheckName(std::string_view name) {
  if (name.empty() || name.size() > kTreeNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tree name has 1 to ", kTreeNameBytesMax, " bytes, not ", name.size()));
  }
  // Printable ASCII and any byte of UTF-8 above it: no control characters in logs and listings.
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  });
  if (printable) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tree name '", absl::CHexEscape(std::string(name)), "' has unprintable bytes"));
}

absl::string_view NameOf(TreeMode mode) { return mode == TreeMode::kOwned ? "owned" : "shared"; }

absl::Status CheckMode(const CreateTreeRequest& request) {
  if (request.mode != TreeMode::kOwned) {
    if (request.delete_persistence_ms == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "an erase of a shared tree is in its leaf at once: a deadline is for owned trees");
  }
  if (request.name == kClusterTreeName) {
    return absl::InvalidArgumentError("the tree of the owners is itself a shared one");
  }
  if (request.shape.key_bytes_max <= kOwnedKeyBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("keys of an owned tree have at most ",
                                                 kOwnedKeyBytesMax, " bytes, not ",
                                                 request.shape.key_bytes_max));
}

std::string Describe(const TreeShape& shape) {
  const std::string inlined =
      shape.has_cells ? absl::StrCat(" (", shape.inline_value_bytes_max, " in a leaf)") : "";
  return absl::StrCat("keys of ", shape.key_bytes_max, ", values of ", shape.value_bytes_max,
                      inlined, ", nodes of ", shape.node_bytes, ", packets of ", shape.packet_bytes,
                      " bytes");
}

struct AlignedImage {
  explicit AlignedImage(uint32_t bytes)
      : data(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLineBytes}))) {
    std::memset(data, 0, bytes);
  }
  ~AlignedImage() { ::operator delete (data, std::align_val_t{kLineBytes}); }
  AlignedImage(const AlignedImage&) = delete;
  AlignedImage& operator=(const AlignedImage&) = delete;
  std::byte* const data;
};

}  // namespace

Catalog::Catalog(Region* region, NodeLedger* nodes, IdSource* ids, uint64_t life)
    : region_(region),
      nodes_(nodes),
      ids_(ids),
      life_(life),
      record_used_(kRootRecordsMax, false) {}

absl::StatusOr<TreeShape> Catalog::CompleteShape(const TreeShape& requested, bool windows) const {
  PANDO_ASSIGN_OR_RETURN(const NodeLayout layout, requested.Layout(windows));
  TreeShape shape = requested;
  shape.node_bytes = layout.node_bytes();
  const uint32_t server_packet = region_->superblock().packet_bytes;
  shape.packet_bytes =
      requested.packet_bytes == 0 ? server_packet : std::min(requested.packet_bytes, server_packet);
  const uint32_t slot_lines_bytes = layout.lines_per_group() * kLineBytes;
  if (shape.packet_bytes < slot_lines_bytes || shape.packet_bytes % kLineBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "packets of ", shape.packet_bytes, " bytes do not fit: a slot of this tree needs ",
        slot_lines_bytes, " in one (a multiple of ", kLineBytes, ")"));
  }
  return shape;
}

absl::Status Catalog::CheckSameShape(const CatalogEntry& entry, const TreeShape& shape) const {
  const TreeShape& have = entry.shape;
  // Rule F6: a client whose packets are smaller than the tree's would tear its writes; larger ones
  // do no harm.
  const bool same = have.key_bytes_max == shape.key_bytes_max &&
                    have.value_bytes_max == shape.value_bytes_max &&
                    have.has_cells == shape.has_cells &&
                    have.inline_value_bytes_max == shape.inline_value_bytes_max &&
                    have.node_bytes == shape.node_bytes && have.packet_bytes <= shape.packet_bytes;
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tree '", entry.name, "' exists with other options: it has ", Describe(have),
                   "; asked for were ", Describe(shape)));
}

absl::StatusOr<Reference> Catalog::FormatRootLeaf(uint32_t tree_id, const TreeShape& shape,
                                                  bool windows) {
  PANDO_ASSIGN_OR_RETURN(const NodeLayout layout, shape.Layout(windows));
  PANDO_ASSIGN_OR_RETURN(const NodeLife node, nodes_->AllocateNode(tree_id, shape.node_bytes));
  const uint64_t offset = node.offset;
  const AlignedImage old_image(shape.node_bytes);
  const AlignedImage image(shape.node_bytes);
  region_->Read(offset, old_image.data, shape.node_bytes);
  NodeHeader header;
  header.tree_id = tree_id;
  header.state = NodeState::kLive;
  header.life = node.life;
  header.reserve.assign(NodeHeader::kReserveBytes, '\0');
  WriteHeader(image.data, layout, header);
  SealNodeLevel(image.data, old_image.data, layout, region_->crc());
  region_->Write(offset, image.data, shape.node_bytes);
  return Reference{RemoteAddress(region_->server_id(), offset), header.life};
}

void Catalog::WriteRootRecord(uint32_t index, uint32_t tree_id, const Reference& root,
                              bool dropped) {
  std::array<std::byte, kLineBytes> old_line, line{};
  region_->Read(region_->RootRecordOffset(index), old_line.data(), kLineBytes);
  RootRecord record;
  record.tree_id = tree_id;
  record.root = root;
  record.dropped = dropped;
  EncodeRootRecord(record, old_line.data(), region_->crc(), line.data());
  region_->Write(region_->RootRecordOffset(index), line.data(), kLineBytes);
}

absl::StatusOr<uint32_t> Catalog::FindRecord(std::string_view name) const {
  const auto free = std::find(record_used_.begin(), record_used_.end(), false);
  const bool is_kept_back = name != kClusterTreeName && !trees_.contains(kClusterTreeName) &&
                            std::count(record_used_.begin(), record_used_.end(), false) == 1;
  if (free != record_used_.end() && !is_kept_back) {
    return static_cast<uint32_t>(free - record_used_.begin());
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the catalog is full: it has room for ", kRootRecordsMax,
                   " trees, one of them the owners' own; drop one"));
}

absl::StatusOr<CatalogEntry> Catalog::Create(const CreateTreeRequest& request) {
  PANDO_RETURN_IF_ERROR(CheckName(request.name));
  PANDO_RETURN_IF_ERROR(CheckMode(request));
  PANDO_ASSIGN_OR_RETURN(const TreeShape shape, CompleteShape(request.shape, request.windows));
  if (const auto existing = trees_.find(request.name); existing != trees_.end()) {
    const TreeMode mode = existing->second.mode();
    if (mode != request.mode) {
      return absl::FailedPreconditionError(
          absl::StrCat("tree '", request.name, "' exists and is ", NameOf(mode),
                       "; asked for was a tree that is ", NameOf(request.mode)));
    }
    if (existing->second.windows() != request.windows) {
      return absl::FailedPreconditionError(
          absl::StrCat("tree '", request.name, "' exists, ", request.windows ? "without" : "with",
                       " windows for its keys; asked for was the other"));
    }
    PANDO_RETURN_IF_ERROR(CheckSameShape(existing->second, shape));
    const uint32_t deadline_ms = existing->second.delete_persistence_ms;
    if (deadline_ms != request.delete_persistence_ms) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tree '", request.name, "' exists with another deadline for deletes: ", deadline_ms,
          " ms; asked for were ", request.delete_persistence_ms));
    }
    return existing->second;
  }
  FreeRecords();
  PANDO_ASSIGN_OR_RETURN(const uint32_t index, FindRecord(request.name));
  PANDO_ASSIGN_OR_RETURN(const uint32_t tree_id, ids_->Peek());
  const bool is_cluster_tree = request.name == kClusterTreeName;
  if (is_cluster_tree) nodes_->KeepBackFor(tree_id);
  const absl::StatusOr<Reference> root = FormatRootLeaf(tree_id, shape, request.windows);
  if (!root.ok() && is_cluster_tree) nodes_->KeepBackFor(0);
  PANDO_RETURN_IF_ERROR(root.status());
  ids_->Take();
  // The root leaf, its record, then the entry: a client that finds the tree finds a root (rule R4).
  WriteRootRecord(index, tree_id, *root, false);

  CatalogEntry entry;
  entry.name = request.name;
  entry.tree_id = tree_id;
  entry.shape = shape;
  entry.root_record = RemoteAddress(region_->server_id(), region_->RootRecordOffset(index));
  entry.root_lock_index = index;
  entry.features = region_->superblock().features;
  if (request.mode == TreeMode::kOwned) entry.features.incompatible |= kIncompatibleOwned;
  if (request.windows) entry.features.incompatible |= kIncompatibleWindows;
  if (shape.has_cells) entry.features.incompatible |= kIncompatibleCells;
  if (shape.has_cells && request.mode == TreeMode::kOwned) {
    entry.features.incompatible |= kIncompatibleOwnedCells;
  }
  entry.delete_persistence_ms = request.delete_persistence_ms;
  entry.servers = {{region_->server_id(), life_}};
  record_used_[index] = true;
  names_[tree_id] = request.name;
  trees_[request.name] = entry;
  ++created_;
  entry.created = 1;
  return entry;
}

absl::StatusOr<CatalogEntry> Catalog::Open(std::string_view name) const {
  PANDO_RETURN_IF_ERROR(CheckName(name));
  const auto tree = trees_.find(name);
  if (tree == trees_.end())
    return absl::NotFoundError(absl::StrCat("there is no tree '", std::string(name), "'"));
  return tree->second;
}

std::vector<CatalogEntry> Catalog::List() const {
  std::vector<CatalogEntry> entries;
  entries.reserve(trees_.size());
  for (const auto& [name, entry] : trees_) {
    entries.push_back(entry);
    entries.back().servers.clear();
  }
  return entries;
}

absl::StatusOr<TreeServerList> Catalog::ServersOf(uint32_t tree_id) const {
  const auto name = names_.find(tree_id);
  if (name == names_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no tree with id ", tree_id));
  }
  return trees_.find(name->second)->second.servers;
}

absl::Status Catalog::Grow(const TreeGrowth& growth) {
  const auto name = names_.find(growth.tree_id);
  if (name == names_.end()) {
    // Not NotFound: a writer would take that for an answer about its key.
    return absl::FailedPreconditionError(
        absl::StrCat("tree ", growth.tree_id, " was dropped and cannot grow"));
  }
  TreeServerList& servers = trees_.find(name->second)->second.servers;
  const auto known = std::find_if(servers.begin(), servers.end(), [&](const TreeServer& on) {
    return on.server == growth.on.server;
  });
  if (known == servers.end()) {
    if (servers.size() >= kTreeServersMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("tree '", name->second, "' lies on ", servers.size(), " memory servers"));
    }
    servers.push_back(growth.on);
    return absl::OkStatus();
  }
  if (known->life == growth.on.life) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "tree '", name->second, "' had nodes on another life of memory server ", growth.on.server,
      ", and they are gone with it: drop the tree and create it again"));
}

TreeServerList Catalog::Drop(uint32_t tree_id) {
  const auto name = names_.find(tree_id);
  PANDO_CHECK(name != names_.end()) << "there is no tree with id " << tree_id;
  const auto tree = trees_.find(name->second);
  PANDO_CHECK(tree != trees_.end());
  dropped_records_[tree_id] = tree->second.root_lock_index;
  TreeServerList servers = std::move(tree->second.servers);
  trees_.erase(tree);
  names_.erase(name);
  return servers;
}

void Catalog::Release(uint32_t tree_id) {
  const auto record = dropped_records_.find(tree_id);
  PANDO_CHECK(record != dropped_records_.end()) << "tree " << tree_id << " was not dropped";
  // A reference no node answers to: late readers learn that the tree is gone.
  const RemoteAddress nowhere(region_->server_id(), region_->RootRecordOffset(record->second));
  WriteRootRecord(record->second, tree_id, Reference{nowhere, 0}, true);
  taken_records_.push_back(record->second);
  dropped_records_.erase(record);
  FreeRecords();
}

void Catalog::FreeRecords() {
  while (!taken_records_.empty() && region_->ClearLockWord(taken_records_.back()).ok()) {
    record_used_[taken_records_.back()] = false;
    taken_records_.pop_back();
  }
}

}  // namespace pando::memory

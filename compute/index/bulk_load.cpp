#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// How full bulk-loaded nodes are: room for some inserts before the first split.
constexpr double kFill = 0.8;
// Nodes written in one go to a server.
constexpr size_t kBatchNodes = 8;

// Builds a private tree bottom-up from ascending entries (rule R4). Each level holds one node back
// until its right neighbour is known.
class BulkLoader {
 public:
  BulkLoader(OperationContext& context, TreeContext& tree) : context_(context), tree_(tree) {}

  absl::Status Load(const std::function<bool(KeyValue*)>& next);
  // After Load(): the root of what was built; null when there were no entries.
  const RootRecord& root() const { return root_; }

 private:
  // The node of a level that is being filled. Its address is known before its right neighbour's.
  struct Level {
    Reference self;
    std::string low;
    Reference leftmost;              // internal
    std::vector<LeafEntry> entries;  // leaf
    std::vector<Separator> separators;
    size_t stream_bytes = 0;
  };

  absl::StatusOr<Reference> NewNode();
  absl::Status AddToLeaf(LeafEntry entry);
  absl::Status AddToLevel(uint8_t level, std::string separator, const Reference& child);
  // Closes the open node of a level: its right neighbour is `right`, starting at `high`.
  absl::Status Close(uint8_t level, const Reference& right, std::string_view high);
  absl::Status Finish();
  // Queues a closed node's WRITE; posts when a batch is full.
  absl::Status Write(RemoteAddress node, BufferLease image);
  absl::Status Flush(ServerId server);
  Level& Open(uint8_t level) { return levels_[level]; }

  OperationContext& context_;
  TreeContext& tree_;
  std::vector<Level> levels_;
  std::vector<Reference> firsts_;  // the leftmost node of each level
  absl::flat_hash_map<ServerId, std::vector<std::pair<RemoteAddress, BufferLease>>> batches_;
  RootRecord root_;
};

absl::StatusOr<Reference> BulkLoader::NewNode() {
  NodeAllocator& allocator = tree_.environment.allocator;
  const ServerId any = tree_.entry.root_record.server();
  while (true) {
    if (const auto node = allocator.TryTake(tree_.id(), any)) return Reference{*node, 1};
    PANDO_RETURN_IF_ERROR(allocator.Refill(context_, tree_.id(), tree_.layout.node_bytes(), any));
  }
}

absl::Status BulkLoader::Load(const std::function<bool(KeyValue*)>& next) {
  KeyValue entry;
  std::string previous;
  while (next(&entry)) {
    if (entry.key.empty() || entry.key.size() > tree_.layout.key_bytes_max() ||
        entry.value.size() > tree_.layout.value_bytes_max()) {
      return absl::InvalidArgumentError(absl::StrCat("bulk load: entry of ", entry.key.size(), "/",
                                                     entry.value.size(),
                                                     " bytes does not fit the tree"));
    }
    if (!levels_.empty() && entry.key <= previous) {
      return absl::InvalidArgumentError("bulk load: keys are not strictly ascending");
    }
    previous = entry.key;
    PANDO_RETURN_IF_ERROR(AddToLeaf({std::move(entry.key), std::move(entry.value)}));
    entry = {};
  }
  return levels_.empty() ? absl::OkStatus() : Finish();
}

absl::Status BulkLoader::AddToLeaf(LeafEntry entry) {
  if (levels_.empty()) {
    PANDO_ASSIGN_OR_RETURN(const Reference self, NewNode());
    levels_.push_back({.self = self});
    firsts_.push_back(self);
  }
  const auto full = static_cast<size_t>(tree_.layout.slot_count() * kFill);
  if (Open(0).entries.size() >= full) {
    const std::string separator = ShortestSeparator(Open(0).entries.back().key, entry.key);
    PANDO_ASSIGN_OR_RETURN(const Reference right, NewNode());
    PANDO_RETURN_IF_ERROR(Close(0, right, separator));
    Open(0) = {.self = right, .low = separator};
    PANDO_RETURN_IF_ERROR(AddToLevel(1, separator, right));
  }
  Open(0).entries.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status BulkLoader::AddToLevel(uint8_t level, std::string separator, const Reference& child) {
  if (levels_.size() == level) {  // the level below has just got its second node
    PANDO_ASSIGN_OR_RETURN(const Reference self, NewNode());
    levels_.push_back({.self = self, .leftmost = firsts_[level - 1]});
    firsts_.push_back(self);
  }
  const auto full = static_cast<size_t>(tree_.layout.internal_payload_bytes() * kFill);
  if (Open(level).stream_bytes + InternalNode::EntryBytes(separator) > full &&
      Open(level).separators.size() >= 2) {
    PANDO_ASSIGN_OR_RETURN(const Reference right, NewNode());
    PANDO_RETURN_IF_ERROR(Close(level, right, separator));
    Open(level) = {.self = right, .low = separator, .leftmost = child};
    return AddToLevel(level + 1, std::move(separator), right);
  }
  Open(level).stream_bytes += InternalNode::EntryBytes(separator);
  Open(level).separators.push_back({std::move(separator), child});
  return absl::OkStatus();
}

absl::Status BulkLoader::Close(uint8_t level, const Reference& right, std::string_view high) {
  PANDO_ASSIGN_OR_RETURN(BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  std::memset(image.data(), 0, tree_.layout.node_bytes());
  Level& open = Open(level);
  NodeHeader header;
  header.tree_id = tree_.id();
  header.level = level;
  header.state = NodeState::kLive;
  header.life = open.self.life;
  header.right = right;
  header.leftmost = open.leftmost;
  header.low = open.low;
  header.high = high;
  header.reserve.assign(NodeHeader::kReserveBytes, '\0');
  const bool crc = tree_.environment.crc;
  if (level == 0) {
    WriteHeader(image.data(), tree_.layout, header);
    FillLeaf(image.data(), tree_.layout, open.entries);
    SealNodeLevel(image.data(), image.data(), tree_.layout, crc);
  } else {
    InternalNode node;
    node.header = std::move(header);
    node.entries = std::move(open.separators);
    EncodeInternal(node, tree_.layout, image.data(), crc, image.data());
  }
  return Write(open.self.address, std::move(image));
}

absl::Status BulkLoader::Write(RemoteAddress node, BufferLease image) {
  auto& batch = batches_[node.server()];
  batch.emplace_back(node, std::move(image));
  return batch.size() < kBatchNodes ? absl::OkStatus() : Flush(node.server());
}

absl::Status BulkLoader::Flush(ServerId server) {
  WriteBack writes(context_, tree_, server);
  for (const auto& [node, image] : batches_[server]) {
    PANDO_RETURN_IF_ERROR(writes.AddNode(node, image.buffer()));
  }
  PANDO_RETURN_IF_ERROR(writes.Flush());
  batches_[server].clear();
  return absl::OkStatus();
}

absl::Status BulkLoader::Finish() {
  for (size_t level = 0; level < levels_.size(); ++level) {
    PANDO_RETURN_IF_ERROR(Close(static_cast<uint8_t>(level), Reference{}, ""));
  }
  for (const auto& [server, batch] : batches_) PANDO_RETURN_IF_ERROR(Flush(server));
  root_ = {.tree_id = tree_.id(),
           .root = levels_.back().self,
           .level = static_cast<uint8_t>(levels_.size() - 1)};
  return absl::OkStatus();
}

absl::Status NotEmpty() {
  return absl::FailedPreconditionError("bulk load: the tree is not empty");
}

bool IsEmptyLeaf(const std::byte* image, const TreeContext& tree) {
  std::vector<LeafEntry> entries;
  return ReadLeafEntries(image, tree.layout, &entries) && entries.empty() &&
         RightOf(image).is_null();
}

// Under the root record's and the old root's locks: marks the old root dead, so that whoever
// refers to it looks again, then swings the record. In the other order somebody could still be told
// by the old root that a key is not there which somebody else has put into the new tree.
absl::Status Swing(OperationContext& context, TreeContext& tree, const RootRecord& root,
                   LocalBuffer line, const Reference& old_root, LocalBuffer image) {
  NodeHeader header = ReadHeader(image.data, tree.layout);
  header.state = NodeState::kDead;
  WriteHeader(image.data, tree.layout, header);
  SealEntryLevel(image.data, 0, 1, tree.environment.crc);
  WriteBack marker(context, tree, old_root.address.server());
  PANDO_RETURN_IF_ERROR(marker.AddRaw(old_root.address, image.Slice(0, kLineBytes)));
  PANDO_RETURN_IF_ERROR(marker.Flush());
  EncodeRootRecord(root, line.data, tree.environment.crc, line.data);
  WriteBack record(context, tree, tree.entry.root_record.server());
  PANDO_RETURN_IF_ERROR(record.AddRaw(tree.entry.root_record, line));
  return record.Flush();
}

// One attempt with both locks. Aborted: the old root was locked by somebody else; nothing happened.
absl::Status TrySwing(OperationContext& context, TreeContext& tree, const RootRecord& root) {
  Hocl& hocl = tree.environment.hocl;
  PANDO_ASSIGN_OR_RETURN(const BufferLease line, context.session.buffers().Lease(kLineBytes));
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  PANDO_ASSIGN_OR_RETURN(auto acquired, hocl.Acquire(context, tree.RootLock(), line.buffer(),
                                                     tree.id(), nullptr, nullptr));
  HeldLock record_lock = *std::move(acquired);
  WriteBack record_done(context, tree, record_lock.target().server);
  const auto release_record = [&](absl::Status status) {
    const absl::Status released = record_done.Release(std::move(record_lock), line.data());
    return status.ok() ? released : status;
  };
  RootRecord record;
  if (DecodeRootRecord(line.data(), tree.id(), tree.environment.crc, &record) !=
      RootVerdict::kAccepted) {
    return release_record(absl::DataLossError("the root record is inconsistent under its lock"));
  }
  if (record.level != 0) return release_record(NotEmpty());
  const absl::StatusOr<LockTarget> leaf = tree.NodeLock(record.root);
  if (!leaf.ok()) return release_record(leaf.status());
  absl::StatusOr<std::optional<HeldLock>> leaf_lock =
      hocl.TryAcquire(context, *leaf, image.buffer());
  if (!leaf_lock.ok()) return release_record(leaf_lock.status());
  if (!leaf_lock->has_value()) return release_record(absl::AbortedError("the root is busy"));
  absl::Status status;
  const bool accepted = Classify(image.data(), tree.layout, Expect(tree, record.root, 0, ""),
                                 tree.environment.crc) == NodeVerdict::kAccepted;
  if (!accepted || !IsEmptyLeaf(image.data(), tree)) {
    status = NotEmpty();
  } else {
    status = Swing(context, tree, root, line.buffer(), record.root, image.buffer());
    if (!status.ok()) {
      hocl.LeaveToFencing(**std::move(leaf_lock));
      hocl.LeaveToFencing(std::move(record_lock));
      return WriteBackFailed(status);
    }
  }
  WriteBack leaf_done(context, tree, record.root.address.server());
  const absl::Status released = leaf_done.Release(**std::move(leaf_lock), image.data());
  return release_record(status.ok() ? released : status);
}

}  // namespace

absl::Status BulkLoadTree(OperationContext& context, TreeContext& tree,
                          const std::function<bool(KeyValue*)>& next) {
  PANDO_ASSIGN_OR_RETURN(const RootRecord before, ReadRoot(context, tree));
  if (before.level != 0) return NotEmpty();
  BulkLoader loader(context, tree);
  PANDO_RETURN_IF_ERROR(loader.Load(next));
  if (loader.root().root.is_null()) return absl::OkStatus();  // nothing to load
  while (true) {
    const absl::Status status = TrySwing(context, tree, loader.root());
    if (!absl::IsAborted(status)) {
      if (status.ok()) tree.root.Store(loader.root());
      return status;
    }
    if (context.expired()) return context.DeadlineError("waiting for the root's lock");
    context.BackOff(4);
  }
}

}  // namespace pando

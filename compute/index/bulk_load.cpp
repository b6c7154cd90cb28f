#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "compute/index/held_root.h"
#include "compute/index/hold.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// How full bulk-loaded nodes are, in the mean: room for some inserts before the first split.
constexpr double kFill = 0.8;
// Nodes written in one go to a server.
constexpr size_t kBatchNodes = 8;

// Builds a private tree bottom-up from ascending entries (rule R4). Each level holds one node back
// until its right neighbour is known.
class BulkLoader {
 public:
  BulkLoader(OperationContext& context, TreeContext& tree) : context_(context), tree_(tree) {}

  absl::Status Load(NextEntry next);
  // After Load(): the root of what was built; null when there were no entries.
  const RootRecord& root() const { return root_; }
  // Nothing refers to what was built and nothing will: gives it back.
  void Abandon();

 private:
  // The node of a level that is being filled. Its address is known before its right neighbour's.
  struct Level {
    SpareNode self;
    std::string low;
    Reference leftmost;              // internal
    std::vector<LeafEntry> entries;  // leaf
    std::optional<NearFit> fit;      // of these
    std::vector<Separator> separators;
    size_t stream_bytes = 0;
  };

  struct ClosedNode {
    SpareNode node;
    BufferLease image;
  };

  absl::StatusOr<SpareNode> NewNode();
  absl::Status AddToLeaf(LeafEntry entry);
  // The open leaf is not empty; the key is the next one.
  bool LeafIsFullFor(std::string_view key) const;
  absl::Status AddToLevel(uint8_t level, std::string separator, const Reference& child);
  // Closes the open node of a level: its right neighbour is `right`, starting at `high`.
  absl::Status Close(uint8_t level, const Reference& right, std::string_view high);
  // For the node that comes next; it goes back where that fails.
  absl::Status CloseFor(uint8_t level, SpareNode* right, std::string_view high);
  absl::Status Finish();
  // Queues a closed node's WRITE; posts when a batch is full.
  absl::Status Write(SpareNode node, BufferLease image);
  absl::Status Flush(ServerId server);
  // Marks nodes of `written_` dead and frees them: [first, next), on one server.
  absl::Status Free(size_t first, size_t next, LocalBuffer lines);
  Level& Open(uint8_t level) { return levels_[level]; }

  OperationContext& context_;
  TreeContext& tree_;
  std::vector<Level> levels_;
  std::vector<Reference> firsts_;                        // the leftmost node of each level
  std::map<ServerId, std::vector<ClosedNode>> batches_;  // the same order in each run of a seed
  std::vector<ClosedNode> failed_;                       // their WRITE ended in `failure_`
  absl::Status failure_;
  std::vector<Reference> written_;
  RootRecord root_;
};

absl::StatusOr<SpareNode> BulkLoader::NewNode() {
  NodeAllocator& allocator = tree_.environment.allocator;
  const ServerId any = tree_.entry.root_record.server();
  while (true) {
    if (auto node = allocator.TryTake(tree_.id(), any)) return *std::move(node);
    PANDO_RETURN_IF_ERROR(allocator.Refill(context_, tree_.id(), tree_.layout.node_bytes(), any));
  }
}

absl::Status BulkLoader::Load(NextEntry next) {
  KeyValue entry;
  std::string previous;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(const bool is_one, next(&entry));
    if (!is_one) break;
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

bool BulkLoader::LeafIsFullFor(std::string_view key) const {
  const NodeLayout& layout = tree_.layout;
  const Level& open = levels_[0];
  const auto full = static_cast<size_t>(layout.entries_max() * kFill);
  if (layout.near_groups() == layout.window_groups()) return open.entries.size() >= full;
  // Rule N5: where it ends earlier, or a little later, nearly all keys lie near their homes.
  if (open.entries.size() < full - full / 4) return false;
  return open.entries.size() >= full + full / 10 || !open.fit->HasRoomFor(key);
}

absl::Status BulkLoader::AddToLeaf(LeafEntry entry) {
  if (levels_.empty()) {
    PANDO_ASSIGN_OR_RETURN(SpareNode self, NewNode());
    firsts_.push_back(self.reference());
    levels_.push_back({.self = std::move(self)});
  }
  if (LeafIsFullFor(entry.key)) {
    const std::string separator = ShortestSeparator(Open(0).entries.back().key, entry.key);
    PANDO_ASSIGN_OR_RETURN(SpareNode node, NewNode());
    const Reference right = node.reference();
    PANDO_RETURN_IF_ERROR(CloseFor(0, &node, separator));
    Open(0) = {.self = std::move(node), .low = separator};
    PANDO_RETURN_IF_ERROR(AddToLevel(1, separator, right));
  }
  if (!Open(0).fit.has_value()) Open(0).fit.emplace(tree_.layout);
  Open(0).fit->Add(entry.key);
  Open(0).entries.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status BulkLoader::AddToLevel(uint8_t level, std::string separator, const Reference& child) {
  if (levels_.size() == level) {  // the level below has just got its second node
    PANDO_ASSIGN_OR_RETURN(SpareNode self, NewNode());
    firsts_.push_back(self.reference());
    levels_.push_back({.self = std::move(self), .leftmost = firsts_[level - 1]});
  }
  const auto full = static_cast<size_t>(tree_.layout.internal_payload_bytes() * kFill);
  if (Open(level).stream_bytes + InternalNode::EntryBytes(separator) > full &&
      Open(level).separators.size() >= 2) {
    PANDO_ASSIGN_OR_RETURN(SpareNode node, NewNode());
    const Reference right = node.reference();
    PANDO_RETURN_IF_ERROR(CloseFor(level, &node, separator));
    Open(level) = {.self = std::move(node), .low = separator, .leftmost = child};
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
    SealNodeLevel(image.data(), open.self.OldImage(image.data()), tree_.layout, crc);
  } else {
    InternalNode node;
    node.header = std::move(header);
    node.entries = std::move(open.separators);
    EncodeInternal(node, tree_.layout, open.self.OldImage(image.data()), crc, image.data());
  }
  return Write(std::exchange(open.self, SpareNode{}), std::move(image));
}

absl::Status BulkLoader::CloseFor(uint8_t level, SpareNode* right, std::string_view high) {
  absl::Status closed = Close(level, right->reference(), high);
  if (!closed.ok()) tree_.environment.allocator.PutBack(tree_.id(), std::move(*right));
  return closed;
}

absl::Status BulkLoader::Write(SpareNode node, BufferLease image) {
  const ServerId server = node.address.server();
  std::vector<ClosedNode>& batch = batches_[server];
  batch.push_back({std::move(node), std::move(image)});
  return batch.size() < kBatchNodes ? absl::OkStatus() : Flush(server);
}

absl::Status BulkLoader::Flush(ServerId server) {
  WriteBack writes(context_, tree_, server);
  std::vector<ClosedNode> batch = std::move(batches_[server]);
  batches_[server].clear();
  absl::Status written;
  for (const ClosedNode& closed : batch) {
    if (written.ok()) written = writes.AddNode(closed.node.address, closed.image.buffer());
  }
  if (written.ok()) written = writes.Flush();
  tree_.environment.allocator.NoteFailure(server, writes.life(), writes.last_status());
  if (!written.ok()) {
    std::move(batch.begin(), batch.end(), std::back_inserter(failed_));
    failure_ = written;
    return written;
  }
  for (const ClosedNode& closed : batch) written_.push_back(closed.node.reference());
  return absl::OkStatus();
}

absl::Status BulkLoader::Free(size_t first, size_t next, LocalBuffer lines) {
  ChainLease chain(&context_.session.buffers());
  const auto line = [&](size_t i) {
    return lines.Slice(static_cast<uint32_t>(i - first) * kLineBytes, kLineBytes);
  };
  absl::Status done;
  do {  // nobody writes there, so that an interrupted READ can be repeated
    chain->Reset(written_[first].address.server());
    for (size_t i = first; i < next; ++i) {
      chain->Read(MemorySpace::kMain, written_[i].address.offset(), line(i));
    }
    done = context_.Await(chain.get());
  } while (absl::IsAborted(done) && !context_.expired());
  PANDO_RETURN_IF_ERROR(done);
  chain->Reset(written_[first].address.server());
  for (size_t i = first; i < next; ++i) {
    SetMarker(line(i).data, NodeState::kDead, Reference{});
    SealEntryLevel(line(i).data, 0, 1, tree_.environment.crc);
    chain->Write(MemorySpace::kMain, written_[i].address.offset(), line(i));
  }
  PANDO_RETURN_IF_ERROR(context_.Await(chain.get()));
  for (size_t i = first; i < next; ++i) tree_.environment.allocator.Free(tree_.id(), written_[i]);
  return absl::OkStatus();
}

void BulkLoader::Abandon() {
  NodeAllocator& allocator = tree_.environment.allocator;
  for (Level& level : levels_) {
    if (!level.self.address.is_null()) allocator.PutBack(tree_.id(), std::move(level.self));
  }
  for (auto& [server, batch] : batches_) {
    for (ClosedNode& closed : batch) allocator.PutBack(tree_.id(), std::move(closed.node));
  }
  std::set<ServerId> unsettled;  // what is there is left to a sweep
  for (const ClosedNode& closed : failed_) {
    const RemoteAddress at = closed.node.address;
    if (!unsettled.contains(at.server()) &&
        !AbandonNode(context_, tree_, at, closed.image.buffer(), failure_)) {
      unsettled.insert(at.server());
    }
  }
  const absl::StatusOr<BufferLease> lines =
      context_.session.buffers().Lease(kBatchNodes * kLineBytes);
  for (size_t first = 0; first < written_.size();) {
    const ServerId server = written_[first].address.server();
    size_t next = first + 1;
    while (next < written_.size() && next - first < kBatchNodes &&
           written_[next].address.server() == server) {
      ++next;
    }
    if (!unsettled.contains(server)) {
      if (!lines.ok() || !Free(first, next, lines->buffer()).ok()) {
        allocator.NoteUncertain(tree_.id(), server);
        unsettled.insert(server);
      }
      allocator.FlushIfMany(context_, tree_.id());
    }
    first = next;
  }
  allocator.Flush(context_, tree_.id());
}

absl::Status BulkLoader::Finish() {
  const Reference top = levels_.back().self.reference();
  for (size_t level = 0; level < levels_.size(); ++level) {
    PANDO_RETURN_IF_ERROR(Close(static_cast<uint8_t>(level), Reference{}, ""));
  }
  for (const auto& [server, batch] : batches_) PANDO_RETURN_IF_ERROR(Flush(server));
  root_ = {.tree_id = tree_.id(), .root = top, .level = static_cast<uint8_t>(levels_.size() - 1)};
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

// Under the root record's and the old root's locks: marks the old root dead, so that readers with a
// reference to it look again, then swings the record. In the other order a reader could still learn
// from the old root that a key is absent which another client has put into the new tree.
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

// One attempt with both locks. Aborted: the old root was locked by somebody else, or had to be seen
// to first: nothing of the load happened.
// `old_root`: set as soon as something may have been written; dead if all went well.
absl::Status TrySwing(OperationContext& context, TreeContext& tree, const RootRecord& root,
                      std::optional<Reference>* old_root) {
  HeldRoot held(context, tree);
  PANDO_RETURN_IF_ERROR(held.Hold());
  const RootRecord& record = held.record();
  // What was wrong with the root, which others have left so.
  enum class Mend : uint8_t { kNothing, kNode, kDead } mend = Mend::kNothing;
  absl::Status status;
  if (!held.accepted()) {
    status = RecordDamaged();
  } else if (record.level != 0) {
    status = NotEmpty();
  } else if (const absl::StatusOr<bool> leaf = held.TryNode(record.root); !leaf.ok()) {
    status = leaf.status();
  } else if (!*leaf) {
    status = absl::AbortedError("the root is busy");
  } else if (const NodeVerdict verdict =
                 Classify(held.image().data, tree.layout, Expect(tree, record.root, 0, ""),
                          tree.environment.crc);
             verdict == NodeVerdict::kStale) {
    mend = Mend::kDead;  // its loader died before the record named the new one
    status = absl::AbortedError("the root is dead");
  } else if (verdict == NodeVerdict::kTorn || IsMarked(held.image().data)) {
    // What a root that is marked was to take over is merging still, and would answer for its keys
    // (rule M7).
    mend = Mend::kNode;
    status = absl::AbortedError("a write or a merge of the root was not finished");
  } else if (verdict != NodeVerdict::kAccepted || !IsEmptyLeaf(held.image().data, tree)) {
    status = NotEmpty();
  } else {
    *old_root = record.root;
    status = Swing(context, tree, root, held.line(), record.root, held.image());
    if (!status.ok()) status = WriteBackFailed(status);
  }
  // Whatever has happened, words that can be given back are (rule L5). Once the record points to
  // the new tree the load is done.
  (void)held.locks().ReleaseAll();
  if (mend == Mend::kNode) {
    PANDO_RETURN_IF_ERROR(LockAndRepair(context, tree, record.root, 0, ""));
  } else if (mend == Mend::kDead) {
    PANDO_RETURN_IF_ERROR(ReviveRoot(context, tree));
  }
  return status;
}

}  // namespace

absl::Status BulkLoadTree(OperationContext& context, TreeContext& tree, NextEntry next) {
  PANDO_ASSIGN_OR_RETURN(const RootRecord before, ReadRoot(context, tree));
  if (before.level != 0) return NotEmpty();
  // A loader that died may have left the empty root as dead: the way down of a scan revives it
  // (rule C4).
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(ScanKeys(context, tree, RangeOf({}, tree.layout.key_bytes_max()),
                                 /*reverse=*/false, /*limit=*/1, /*leaves_max=*/0, &rows));
  if (!rows.empty()) return NotEmpty();
  BulkLoader loader(context, tree);
  const absl::Status loaded = loader.Load(next);
  if (!loaded.ok()) {
    loader.Abandon();
    return loaded;
  }
  if (loader.root().root.is_null()) return absl::OkStatus();  // nothing to load
  while (true) {
    std::optional<Reference> old_root;
    absl::Status status = TrySwing(context, tree, loader.root(), &old_root);
    if (absl::IsAborted(status)) {
      if (!context.expired()) {
        context.BackOff(4);
        continue;
      }
      status = context.DeadlineError("waiting for the root's lock");
    }
    NodeAllocator& allocator = tree.environment.allocator;
    if (status.ok()) {
      tree.root.Store(loader.root());
      allocator.Free(tree.id(), *old_root);
    } else if (old_root.has_value()) {
      allocator.NoteUncertain(tree.id());
    } else {
      loader.Abandon();
    }
    return status;
  }
}

}  // namespace pando

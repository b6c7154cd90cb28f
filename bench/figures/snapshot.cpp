#include "bench/figures/snapshot.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/workload/values.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/node_layout.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"

namespace pando::bench {
namespace {

constexpr uint64_t kRegionBytesMin = uint64_t{256} << 20;
constexpr size_t kCacheBytesForAll = size_t{4} << 30;
constexpr size_t kHotBytesForNone = 64 << 10;
constexpr int64_t kGetTimeoutMs = 60'000;

// Room for the tree several times over: what is not written takes no memory.
absl::StatusOr<uint64_t> RegionBytes(const SnapshotOptions& options) {
  PANDO_ASSIGN_OR_RETURN(const NodeLayout layout,
                         NodeLayout::Create(options.key_bytes, options.value_bytes,
                                            options.node_bytes, options.narrow_reads));
  const uint64_t leaves = options.records / (layout.slot_count() / 2) + 1;
  const uint64_t share =
      leaves * layout.node_bytes() / static_cast<uint64_t>(options.memory_servers);
  return kRegionBytesMin + 4 * share;
}

TreeOptions TreeOptionsOf(const SnapshotOptions& options) {
  return {.key_bytes_max = options.key_bytes,
          .value_bytes_max = options.value_bytes,
          .node_bytes = options.node_bytes,
          .mode = options.owned ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared,
          .delete_persistence_ms = options.delete_persistence_ms,
          .narrow_reads = options.narrow_reads};
}

// The cached node of level 1 that covers the key, if the way to it is cached, too. Needs a guard.
const CachedNode* CachedParent(const TreeContext& tree, std::string_view key) {
  Reference node;
  int level = tree.root.Load(&node);
  const CachedNode* cached = nullptr;
  for (const SearchKey search(key); level > 0; --level) {
    cached = tree.environment.cache.Find(node);
    if (cached == nullptr) return nullptr;
    node = cached->Child(cached->ChildIndex(search));
  }
  return cached;
}

}  // namespace

sim::SimOptions WorldOptions(uint64_t seed, const std::shared_ptr<const NicProfile>& nic) {
  sim::SimOptions options;
  options.seed = seed;
  options.mode = sim::DeliveryMode::kWhole;
  options.nic = nic;
  options.jitter_ns = 0;
  options.long_delay_probability = 0;
  return options;
}

std::unique_ptr<Client> NewComputeServer(const ClientOptions& options, int index,
                                         SimCluster* cluster) {
  if (index >= cluster->memory_servers()) return cluster->NewClient(options);
  return cluster->NewClientOnHostOf(static_cast<ServerId>(index + 1), options);
}

absl::StatusOr<std::unique_ptr<Snapshot>> Snapshot::Load(const SnapshotOptions& options) {
  if (options.records == 0) return absl::InvalidArgumentError("a tree without records");
  std::unique_ptr<Snapshot> snapshot(new Snapshot(options));
  PANDO_ASSIGN_OR_RETURN(
      snapshot->keys_,
      Keys::Create({.kind = "ordered", .key_bytes = options.key_bytes}, snapshot->key_space() + 1));
  PANDO_ASSIGN_OR_RETURN(const uint64_t region_bytes, RegionBytes(options));
  snapshot->cluster_ = std::make_unique<SimCluster>(
      SimCluster::Options{.sim = WorldOptions(options.seed, options.nic),
                          .memory_servers = options.memory_servers,
                          .main_bytes = region_bytes});
  // Of an owned tree it owns everything meanwhile, and gives it up again.
  const std::unique_ptr<Client> client = snapshot->cluster_->NewClient(
      {.index_cache_bytes = kCacheBytesForAll, .hot_bytes = kHotBytesForNone});
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Tree> tree,
                         client->CreateTree(kTree, TreeOptionsOf(options)));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client->NewSession());
  PANDO_RETURN_IF_ERROR(snapshot->Fill(session.get(), *tree));
  PANDO_RETURN_IF_ERROR(snapshot->FindParents(client.get(), session.get(), *tree));
  return snapshot;
}

absl::Status Snapshot::Fill(Session* session, const Tree& tree) {
  Values values(options_.value_bytes, 0, 1);
  uint64_t number = 0;
  return session->BulkLoad(tree, [&](KeyValue* entry) {
    while (!LoadedKey(number)) ++number;
    if (number >= key_space()) return false;
    keys_->Make(number++, &entry->key);
    values.Next(&entry->value);
    return true;
  });
}

// From one node of level 1 to the next, with a get each.
absl::Status Snapshot::FindParents(Client* client, Session* session, const Tree& tree) {
  IndexCache& cache = ImplOf(*client).environment().cache;
  EpochDomain::Slot* const slot = ImplOf(*session).context().epoch_slot();
  std::string key = keys_->Make(0), value;
  do {
    const absl::Status got = session->GetTo(tree, key, &value, {.timeout_ms = kGetTimeoutMs});
    if (!got.ok() && !absl::IsNotFound(got)) return got;
    const EpochDomain::Guard guard(cache.epochs(), slot);
    const CachedNode* const parent = CachedParent(ImplOf(tree).context(), key);
    if (parent == nullptr) break;  // a tree of one leaf
    parents_.push_back(parent->self());
    leaf_bytes_ += parent->child_count() * ImplOf(tree).context().layout.node_bytes();
    key = std::string(parent->high());
  } while (!key.empty());
  parent_bytes_ = cache.bytes();
  return absl::OkStatus();
}

void Snapshot::FillCache(const Tree& tree) const {
  const TreeContext& context = ImplOf(tree).context();
  for (const Reference& parent : parents_) {
    InternalNode node;
    PANDO_CHECK_OK(DecodeInternal(cluster_->At(parent.address), context.layout, &node));
    context.environment.cache.Insert(context.id(), parent, node);
  }
}

}  // namespace pando::bench

#include "bench/sim/recycled_leaf.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/sim/one_client.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/root_record.h"
#include "compute/check/tree_check.h"
#include "compute/client/access.h"
#include "compute/client/connect.h"
#include "compute/client/tree_impl.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr int kKeys = 100;

std::string ShortKeyOf(int i) {
  char key[8];
  std::snprintf(key, sizeof(key), "k%03d", i);
  return key;
}

// Entries left in each of the two leaves: over 3/8 of 42 slots.
constexpr size_t kLeft = 16;

class RecycledLeaf {
 public:
  explicit RecycledLeaf(uint64_t seed)
      : world_({.seed = seed, .mode = sim::DeliveryMode::kWhole}) {}

  SimRunResult Run() {
    const absl::Status status = Play();
    if (!status.ok()) result_.problems.push_back(status.ToString());
    result_.trace_hash = world_.trace_hash();
    result_.operations = operations_.size();
    return std::move(result_);
  }

 private:
  absl::Status Play();
  absl::Status Connect(OneClient* client);
  absl::Status Fill();
  void Locate();
  void Merge();
  void BeginSplit();
  void CommitSplit();
  void Check();
  absl::Status Get(int32_t client, Session& session, const Tree& tree);

  std::byte* Image(const Reference& node) {
    return world_.Memory(kOnlyServer).main.data() + node.address.offset();
  }
  void Seal(const Reference& node) { SealNodeLevel(Image(node), Image(node), layout_, false); }

  sim::SimWorld world_;
  std::unique_ptr<memory::MemoryServer> server_;
  OneClient a_, b_, c_;
  NodeLayout layout_;
  CatalogEntry entry_;
  Reference parent_, left_, recycled_;  // P, L, R
  std::string key_;                     // in R
  const std::string new_value_ = "new";
  history::State initial_;
  std::vector<Operation> operations_;
  SimRunResult result_;
};

absl::Status RecycledLeaf::Connect(OneClient* client) {
  client->fabric = world_.NewFabric();
  PANDO_ASSIGN_OR_RETURN(client->client, ConnectOverFabric({}, client->fabric));
  PANDO_ASSIGN_OR_RETURN(client->tree, client->client->CreateTree("recycled", {}));
  PANDO_ASSIGN_OR_RETURN(client->session, client->client->NewSession());
  return absl::OkStatus();
}

// Some leaves under one root; the first two so empty that they fit one, but not so empty that the
// client merges them by itself.
absl::Status RecycledLeaf::Fill() {
  for (int i = 0; i < kKeys; ++i) {
    PANDO_RETURN_IF_ERROR(a_.session->Put(*a_.tree, ShortKeyOf(i), absl::StrCat("v", i)));
  }
  Locate();
  std::vector<LeafEntry> entries;
  PANDO_CHECK(ReadLeafEntries(Image(recycled_), layout_, &entries));
  std::sort(entries.begin(), entries.end(),
            [](const auto& x, const auto& y) { return x.key < y.key; });
  key_ = entries.back().key;
  std::vector<LeafEntry> left;
  PANDO_CHECK(ReadLeafEntries(Image(left_), layout_, &left));
  for (const auto* leaf : {&entries, &left}) {
    for (size_t i = 0; i + kLeft < leaf->size(); ++i) {
      PANDO_RETURN_IF_ERROR(a_.session->Erase(*a_.tree, (*leaf)[i].key));
    }
  }
  return absl::OkStatus();
}

void RecycledLeaf::Locate() {
  entry_ = ImplOf(*a_.tree).context().entry;
  layout_ = ImplOf(*a_.tree).context().layout;
  RootRecord record;
  const std::byte* line = world_.Memory(kOnlyServer).main.data() + entry_.root_record.offset();
  PANDO_CHECK(DecodeRootRecord(line, entry_.tree_id, false, &record) == RootVerdict::kAccepted);
  PANDO_CHECK_EQ(record.level, 1);
  parent_ = record.root;
  InternalNode parent;
  PANDO_CHECK_OK(DecodeInternal(Image(parent_), layout_, &parent));
  PANDO_CHECK_GE(parent.entries.size(), 2u);
  left_ = parent.header.leftmost;
  recycled_ = parent.entries[0].child;
}

void RecycledLeaf::Merge() {
  std::vector<LeafEntry> all, moved;
  PANDO_CHECK(ReadLeafEntries(Image(left_), layout_, &all) &&
              ReadLeafEntries(Image(recycled_), layout_, &moved));
  all.insert(all.end(), moved.begin(), moved.end());
  InternalNode parent;
  PANDO_CHECK_OK(DecodeInternal(Image(parent_), layout_, &parent));
  parent.entries.erase(parent.entries.begin());
  EncodeInternal(parent, layout_, Image(parent_), false, Image(parent_));  // M3
  NodeHeader dead = ReadHeader(Image(recycled_), layout_);
  NodeHeader survivor = ReadHeader(Image(left_), layout_);
  survivor.high = dead.high;
  survivor.right = dead.right;
  WriteHeader(Image(left_), layout_, survivor);
  FillLeaf(Image(left_), layout_, all);
  Seal(left_);  // M4
  dead.state = NodeState::kDead;
  WriteHeader(Image(recycled_), layout_, dead);
  Seal(recycled_);  // M5
}

// S1 of a split of L at the key that is put; the spare node is the recycled one.
void RecycledLeaf::BeginSplit() {
  NodeHeader header = ReadHeader(Image(left_), layout_);
  header.low = key_;
  header.life = NextLife(Image(recycled_));
  WriteHeader(Image(recycled_), layout_, header);
  FillLeaf(Image(recycled_), layout_, std::vector<LeafEntry>{{key_, new_value_}});
  Seal(recycled_);
  recycled_.life = header.life;
}

void RecycledLeaf::CommitSplit() {
  std::vector<LeafEntry> entries;
  PANDO_CHECK(ReadLeafEntries(Image(left_), layout_, &entries));
  std::erase_if(entries, [this](const LeafEntry& entry) { return entry.key >= key_; });
  NodeHeader header = ReadHeader(Image(left_), layout_);
  header.high = key_;
  header.right = recycled_;
  WriteHeader(Image(left_), layout_, header);
  FillLeaf(Image(left_), layout_, entries);
  Seal(left_);  // S2
}

absl::Status RecycledLeaf::Get(int32_t client, Session& session, const Tree& tree) {
  Operation o;
  o.client = client;
  o.kind = OperationKind::kGet;
  o.key = key_;
  o.call_ns = world_.clock().NowNs();
  const absl::Status status = session.GetTo(tree, key_, &o.value);
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  o.found = status.ok();
  o.return_ns = world_.clock().NowNs();
  world_.RunUntil(o.return_ns + 1);  // what comes next is not concurrent with it
  operations_.push_back(std::move(o));
  return absl::OkStatus();
}

void RecycledLeaf::Check() {
  const TreeCheckResult tree =
      CheckTree(entry_, {}, [this](RemoteAddress from, std::span<std::byte> into) {
        std::memcpy(into.data(), world_.Memory(kOnlyServer).main.data() + from.offset(),
                    into.size());
        return absl::OkStatus();
      });
  result_.problems = tree.problems;
  result_.nodes_per_level = tree.nodes_per_level;
  const history::CheckResult checked = history::CheckHistory(operations_, &initial_);
  for (const std::string& violation : checked.violations) result_.problems.push_back(violation);
}

absl::Status RecycledLeaf::Play() {
  const ServerMemory memory = world_.AddServer(kOnlyServer, 8 << 20, 64 << 10);
  PANDO_ASSIGN_OR_RETURN(server_, memory::MemoryServer::Create(
                                      memory, {.chunk_bytes = 64 << 10, .clock = &world_.clock()}));
  world_.SetHandler(kOnlyServer, server_.get());
  for (OneClient* client : {&a_, &b_, &c_}) PANDO_RETURN_IF_ERROR(Connect(client));
  PANDO_RETURN_IF_ERROR(Fill());
  PANDO_ASSIGN_OR_RETURN(const std::string old_value, b_.session->Get(*b_.tree, key_));
  initial_ = {{key_, old_value}};
  Merge();
  Operation put;
  put.kind = OperationKind::kPut;
  put.key = key_;
  put.value = new_value_;
  put.call_ns = world_.clock().NowNs();
  BeginSplit();
  PANDO_RETURN_IF_ERROR(Get(1, *b_.session, *b_.tree));
  PANDO_RETURN_IF_ERROR(Get(2, *c_.session, *c_.tree));
  CommitSplit();
  put.return_ns = world_.clock().NowNs() + 1;
  operations_.push_back(put);
  world_.RunUntil(put.return_ns + kMicrosecondNs);
  PANDO_RETURN_IF_ERROR(Get(1, *b_.session, *b_.tree));
  PANDO_RETURN_IF_ERROR(Get(2, *c_.session, *c_.tree));
  Check();
  return absl::OkStatus();
}

}  // namespace

SimRunResult RunRecycledLeaf(uint64_t seed) { return RecycledLeaf(seed).Run(); }

}  // namespace pando

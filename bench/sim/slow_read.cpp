#include "bench/sim/slow_read.h"
#include "bench/perform/perform.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/sim/ending.h"
#include "bench/sim/one_client.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/root_record.h"
#include "compute/check/tree_check.h"
#include "compute/client/access.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/fill.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

// Large nodes: eight are a chunk, and many lines are read after the stop.
constexpr uint32_t kChunkBytes = 64 << 10, kNodeBytes = 8 << 10;
constexpr int kKeysMax = 8000;
// Keys of R that stay, and are read.
constexpr int kKept = 8;
constexpr int64_t kRestNs = kSecondNs;

std::string KeyOf(int i) {
  char key[9];
  std::snprintf(key, sizeof(key), "k%05d", i);
  return key;
}

class SlowRead {
 public:
  // Reads stop for `stall_ns`; C comes `wait_ns` after A has left. The network is so slow that rule
  // F2 has nothing against such READs.
  SlowRead(uint64_t seed, int64_t delay_ns, int64_t stall_ns, int64_t wait_ns)
      : world_({.seed = seed, .mode = sim::DeliveryMode::kLines, .delay_ns = delay_ns}),
        stall_ns_(stall_ns),
        wait_ns_(wait_ns) {}

  void Run(SimRunResult* result) {
    const absl::Status status = Play();
    if (!status.ok()) problems_.push_back(status.ToString());
    for (std::string& problem : problems_) result->problems.push_back(std::move(problem));
    result->trace_hash = result->trace_hash * 31 + world_.trace_hash();
    result->operations += operations_.size();
  }

 private:
  absl::Status Play();
  absl::Status Connect(const char* tree, OneClient* client);
  absl::Status Fill();
  absl::Status Put(int i);
  // One erase more and it takes R in.
  absl::Status EmptyNeighbour();
  // B's READs are under way, half-way.
  void StartReads();
  absl::Status MergeAway();
  absl::Status UseAgain();
  void FinishReads();
  void Check();
  InternalNode Root() const;
  Reference LastLeaf() const { return Root().entries.back().child; }
  const NodeLayout& Layout() const { return ImplOf(*a_.tree).context().layout; }
  uint64_t ChunkOf(RemoteAddress node) const {
    return (node.offset() - server_->superblock().chunk_offset) / kChunkBytes;
  }

  sim::SimWorld world_;
  const int64_t stall_ns_, wait_ns_;
  std::unique_ptr<memory::MemoryServer> server_;
  OneClient a_, b_, c_;
  CatalogEntry entry_;
  Reference leaf_;         // R
  std::string neighbour_;  // the key in the leaf before it whose erase merges the two
  int keys_ = 0, first_kept_ = 0;
  int reading_ = 0;
  history::State initial_;
  std::vector<Operation> operations_;
  std::vector<std::string> problems_;
};

absl::Status SlowRead::Connect(const char* tree, OneClient* client) {
  client->fabric = world_.NewFabric();
  PANDO_ASSIGN_OR_RETURN(client->client, ConnectOverFabric({}, client->fabric));
  PANDO_ASSIGN_OR_RETURN(client->tree,
                         client->client->CreateTree(tree, {.node_bytes = kNodeBytes}));
  PANDO_ASSIGN_OR_RETURN(client->session, client->client->NewSession());
  return absl::OkStatus();
}

InternalNode SlowRead::Root() const {
  const std::byte* const main = world_.Memory(kOnlyServer).main.data();
  RootRecord record;
  PANDO_CHECK(DecodeRootRecord(main + entry_.root_record.offset(), entry_.tree_id, false,
                               &record) == RootVerdict::kAccepted);
  PANDO_CHECK_EQ(record.level, 1);
  InternalNode root;
  PANDO_CHECK_OK(DecodeInternal(main + record.root.address.offset(), Layout(), &root));
  return root;
}

absl::Status SlowRead::Put(int i) {
  return a_.session->Put(*a_.tree, KeyOf(i), absl::StrCat("v", i));
}

absl::Status SlowRead::Fill() {
  entry_ = ImplOf(*a_.tree).context().entry;
  while (keys_ <= static_cast<int>(Layout().slot_count())) PANDO_RETURN_IF_ERROR(Put(keys_++));
  const uint64_t first_chunk = ChunkOf(LastLeaf().address);
  while (ChunkOf(LastLeaf().address) == first_chunk) {
    PANDO_CHECK(keys_ < kKeysMax);
    PANDO_RETURN_IF_ERROR(Put(keys_++));
  }
  leaf_ = LastLeaf();
  for (first_kept_ = keys_; keys_ < first_kept_ + kKept; ++keys_) {
    PANDO_RETURN_IF_ERROR(Put(keys_));
    initial_.emplace_back(KeyOf(keys_), absl::StrCat("v", keys_));
  }
  PANDO_CHECK(LastLeaf() == leaf_);
  return EmptyNeighbour();
}

absl::Status SlowRead::EmptyNeighbour() {
  const InternalNode root = Root();
  const RemoteAddress left = root.entries[root.entries.size() - 2].child.address;
  std::vector<LeafEntry> entries;
  PANDO_CHECK(
      ReadLeafEntries(world_.Memory(kOnlyServer).main.data() + left.offset(), Layout(), &entries));
  PANDO_CHECK(!entries.empty());
  const auto merge_is_due = [&] {
    const auto used = static_cast<uint32_t>(entries.size());
    return IsMergeDue(used, used - 1, Layout());
  };
  while (!merge_is_due()) {
    PANDO_RETURN_IF_ERROR(a_.session->Erase(*a_.tree, entries.back().key));
    entries.pop_back();
  }
  neighbour_ = entries.back().key;
  return absl::OkStatus();
}

void SlowRead::StartReads() {
  world_.StallReads(*b_.fabric, stall_ns_);
  for (int i = 0; i < kKept; ++i) {
    ++reading_;
    b_.session->Spawn([this, i] {
      Operation get;
      get.client = i;
      get.kind = OperationKind::kGet;
      get.key = KeyOf(first_kept_ + i);
      get.call_ns = world_.clock().NowNs();
      const absl::Status status = Perform(*b_.session, *b_.tree, &get);
      if (!Conclude(status, &get)) problems_.push_back(absl::StrCat("get: ", status.ToString()));
      get.return_ns = world_.clock().NowNs();
      operations_.push_back(std::move(get));
      --reading_;
    });
  }
  ImplOf(*b_.session).scheduler().endpoint().Wake();
  world_.RunUntil(world_.clock().NowNs() + 3 * world_.options().delay_ns);
  PANDO_CHECK_EQ(reading_, kKept);
  world_.StallReads(*b_.fabric, 0);  // what is read again is read at once
}

absl::Status SlowRead::MergeAway() {
  PANDO_RETURN_IF_ERROR(a_.session->Erase(*a_.tree, neighbour_));
  a_.session->Run();  // the merge is a task of its own
  PANDO_CHECK(LastLeaf() != leaf_) << "it was not merged";
  a_.session.reset();
  a_.tree.reset();
  a_.client.reset();
  return absl::OkStatus();
}

absl::Status SlowRead::UseAgain() {
  PANDO_RETURN_IF_ERROR(Connect("other", &c_));
  for (const auto& [key, value] : initial_) {
    PANDO_RETURN_IF_ERROR(c_.session->Put(*c_.tree, key, absl::StrCat("x", value)));
  }
  return absl::OkStatus();
}

void SlowRead::FinishReads() {
  while (reading_ > 0 && world_.Step()) {
  }
  if (reading_ > 0) problems_.emplace_back("a read never ends");
}

void SlowRead::Check() {
  const TreeCheckResult tree =
      CheckTree(entry_, {}, [this](RemoteAddress from, std::span<std::byte> into) {
        std::memcpy(into.data(), world_.Memory(kOnlyServer).main.data() + from.offset(),
                    into.size());
        return absl::OkStatus();
      });
  problems_.insert(problems_.end(), tree.problems.begin(), tree.problems.end());
  const history::CheckResult checked = history::CheckHistory(operations_, &initial_);
  problems_.insert(problems_.end(), checked.violations.begin(), checked.violations.end());
}

absl::Status SlowRead::Play() {
  const ServerMemory memory = world_.AddServer(kOnlyServer, 8 << 20, 64 << 10);
  PANDO_ASSIGN_OR_RETURN(server_,
                         memory::MemoryServer::Create(memory, {.chunk_bytes = kChunkBytes,
                                                               .times = {.freed_rest_ns = kRestNs},
                                                               .clock = &world_.clock()}));
  world_.SetHandler(kOnlyServer, server_.get());
  PANDO_RETURN_IF_ERROR(Connect("first", &a_));
  PANDO_RETURN_IF_ERROR(Fill());
  PANDO_RETURN_IF_ERROR(Connect("first", &b_));
  PANDO_RETURN_IF_ERROR(b_.session->Get(*b_.tree, KeyOf(first_kept_)).status());
  StartReads();
  const int64_t started_ns = world_.clock().NowNs();
  PANDO_RETURN_IF_ERROR(MergeAway());
  world_.RunUntil(world_.clock().NowNs() + wait_ns_);
  PANDO_RETURN_IF_ERROR(UseAgain());
  // Else the scenario shows nothing.
  PANDO_CHECK(world_.clock().NowNs() < started_ns + stall_ns_);
  FinishReads();
  Check();
  return absl::OkStatus();
}

}  // namespace

SimRunResult RunSlowRead(uint64_t seed) {
  SimRunResult result;
  SlowRead(DeriveSeed(seed, 1), 1 * kMillisecondNs, 240 * kMillisecondNs, 0).Run(&result);
  SlowRead(DeriveSeed(seed, 2), 10 * kMillisecondNs, 2500 * kMillisecondNs, kRestNs).Run(&result);
  return result;
}

}  // namespace pando

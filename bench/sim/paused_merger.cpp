#include "bench/sim/paused_merger.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/one_client.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/node_glance.h"
#include "common/wire/root_record.h"
#include "compute/check/tree_check.h"
#include "compute/client/access.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

class PausedMergerWorld {
 public:
  explicit PausedMergerWorld(const PausedMerger& options)
      : options_(options), world_({.seed = options.seed, .mode = sim::DeliveryMode::kWhole}) {}

  PausedMergerResult Run() {
    const absl::Status status = Play();
    if (!status.ok()) result_.problems.push_back(status.ToString());
    for (OneClient* client : {&sweeper_, &merger_}) world_.ResumeFabric(*client->fabric);
    while (!(swept_ && erased_) && world_.Step()) {
    }
    return std::move(result_);
  }

 private:
  static constexpr int kKeys = 200, kStep = 10;
  // Entries left in L and R: with one erase more in R they fit 3/4 of 42 slots, and R is under 3/8.
  static constexpr size_t kLeft = 16, kRight = 13;
  // What freed memory rests, and its ends are rounded up.
  static constexpr int64_t kRestedNs = 1050 * kMillisecondNs;
  static constexpr int kReusePutsMax = 400, kPutsAfterwards = 200;
  static constexpr int64_t kDeathSeenNs = 200 * kMillisecondNs;
  static constexpr int64_t kOperationTimeoutMs = 100;
  static constexpr uint64_t kEventsMax = 3'000'000;
  static std::string KeyOfNumber(int i) {
    char key[16];
    std::snprintf(key, sizeof(key), "k%05d", i);
    return key;
  }

  absl::Status Play();
  absl::Status Start();
  absl::Status Connect(OneClient* client, size_t cache_bytes = 64 << 20);
  absl::Status Shrink(const Reference& leaf, size_t left, std::string* last);
  absl::Status DieInSplit();
  Reference FindSpare() const;
  void BeginSweep();
  void BeginMerge();
  bool StopOne();
  absl::Status ReuseWhatWasFreed();
  absl::Status ReuseAgain();
  bool PutOneMore();
  void Check();

  const Fabric& StoppedFabric() const {
    return options_.stopped == PausedMerger::Stopped::kMerger ? *merger_.fabric : *sweeper_.fabric;
  }
  std::byte* Image(const Reference& node) const {
    return world_.Memory(kOnlyServer).main.data() + node.address.offset();
  }

  const PausedMerger options_;
  sim::SimWorld world_;
  std::unique_ptr<memory::MemoryServer> server_;
  OneClient holder_, merger_, sweeper_, reuser_;
  CatalogEntry entry_;
  NodeLayout layout_;
  Reference left_, right_;  // L, R
  std::string last_;        // the key whose erase begins the merge
  std::set<std::string> keys_;
  int next_ = kKeys * kStep;  // keys that C puts
  bool swept_ = true, erased_ = true;
  SweepResult sweep_;
  absl::Status sweep_status_, erase_status_;
  PausedMergerResult result_;
};

absl::Status PausedMergerWorld::Connect(OneClient* client, size_t cache_bytes) {
  client->fabric = world_.NewFabric();
  ClientOptions options;
  options.index_cache_bytes = cache_bytes;
  PANDO_ASSIGN_OR_RETURN(client->client, ConnectOverFabric(options, client->fabric));
  PANDO_ASSIGN_OR_RETURN(client->tree, client->client->CreateTree("t", {}));
  PANDO_ASSIGN_OR_RETURN(client->session, client->client->NewSession());
  return absl::OkStatus();
}

// Erases the last keys of a leaf; `last`: the greatest one left.
absl::Status PausedMergerWorld::Shrink(const Reference& leaf, size_t left, std::string* last) {
  std::vector<LeafEntry> entries;
  PANDO_CHECK(ReadLeafEntries(Image(leaf), layout_, &entries));
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  for (size_t i = entries.size(); i > left; --i) {
    PANDO_RETURN_IF_ERROR(merger_.session->Erase(*merger_.tree, entries[i - 1].key));
    keys_.erase(entries[i - 1].key);
  }
  *last = entries[left - 1].key;
  return absl::OkStatus();
}

absl::Status PausedMergerWorld::Start() {
  const ServerMemory memory = world_.AddServer(kOnlyServer, 8 << 20, 64 << 10);
  PANDO_ASSIGN_OR_RETURN(server_, memory::MemoryServer::Create(
                                      memory, {.chunk_bytes = 64 << 10, .clock = &world_.clock()}));
  world_.SetHandler(kOnlyServer, server_.get());
  for (OneClient* client : {&holder_, &merger_, &reuser_}) PANDO_RETURN_IF_ERROR(Connect(client));
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = KeyOfNumber(i * kStep);
    PANDO_RETURN_IF_ERROR(holder_.session->Put(*holder_.tree, key, "v"));
    keys_.insert(key);
  }
  entry_ = ImplOf(*holder_.tree).context().entry;
  layout_ = ImplOf(*holder_.tree).context().layout;
  RootRecord record;
  const std::byte* line = world_.Memory(kOnlyServer).main.data() + entry_.root_record.offset();
  PANDO_CHECK(DecodeRootRecord(line, entry_.tree_id, false, &record) == RootVerdict::kAccepted);
  PANDO_CHECK_EQ(record.level, 1);
  InternalNode root;
  PANDO_RETURN_IF_ERROR(DecodeInternal(Image(record.root), layout_, &root));
  left_ = root.header.leftmost;
  right_ = root.entries.at(0).child;
  if (options_.stopped == PausedMerger::Stopped::kSweeperOfSpare) {
    PANDO_RETURN_IF_ERROR(DieInSplit());
    right_ = FindSpare();
    return Connect(&sweeper_, 1);
  }
  world_.KillFabric(*holder_.fabric);
  world_.RunUntil(world_.clock().NowNs() + kDeathSeenNs);
  std::string ignored;
  PANDO_RETURN_IF_ERROR(Shrink(left_, kLeft, &ignored));
  PANDO_RETURN_IF_ERROR(Shrink(right_, kRight, &last_));
  merger_.session->Run();
  PANDO_CHECK(StateOf(Image(right_)) == NodeState::kLive) << "merged too early";
  return Connect(&sweeper_, 1);  // its descents READ the root
}

// Another one fills leaves in front, with nodes from behind: they come after the spare node in a
// sweep. Then the last leaf is filled. Of the put that splits it the CAS of the lock and the WRITE
// of the spare node get through (S1).
absl::Status PausedMergerWorld::DieInSplit() {
  OneClient other;
  PANDO_RETURN_IF_ERROR(Connect(&other));
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = absl::StrCat("j", KeyOfNumber(i));
    PANDO_RETURN_IF_ERROR(other.session->Put(*other.tree, key, "v"));
    keys_.insert(key);
  }
  world_.KillFabric(*other.fabric);
  const auto is_full = [this] {
    Reference leaf = left_;
    while (!RightOf(Image(leaf)).is_null()) leaf = RightOf(Image(leaf));
    std::vector<LeafEntry> entries;
    PANDO_CHECK(ReadLeafEntries(Image(leaf), layout_, &entries));
    return entries.size() == layout_.slot_count();
  };
  for (; !is_full(); ++next_) {
    PANDO_RETURN_IF_ERROR(holder_.session->Put(*holder_.tree, KeyOfNumber(next_), "v"));
    keys_.insert(KeyOfNumber(next_));
  }
  world_.LimitPackets(*holder_.fabric, 2);
  holder_.session->Spawn(
      [this] { (void)holder_.session->Put(*holder_.tree, KeyOfNumber(next_), "v"); });
  ImplOf(*holder_.session).scheduler().endpoint().Wake();
  while (!world_.PacketsSpent(*holder_.fabric) && world_.Step()) {
  }
  world_.KillFabric(*holder_.fabric);
  holder_.session->Run();
  world_.RunUntil(world_.clock().NowNs() + kDeathSeenNs);
  return absl::OkStatus();
}

// The live node of the tree's leaves that none of them leads to.
Reference PausedMergerWorld::FindSpare() const {
  std::set<uint64_t> linked;
  for (Reference leaf = left_; !leaf.is_null(); leaf = RightOf(Image(leaf))) {
    linked.insert(leaf.address.offset());
  }
  Reference spare;
  for (uint64_t at = server_->superblock().chunk_offset; at < 1 << 20; at += layout_.node_bytes()) {
    const Reference node{RemoteAddress(kOnlyServer, at), 0};
    const NodeGlance glance = GlanceAtNode(Image(node));
    if (!glance.is_node || glance.state != NodeState::kLive || linked.contains(at)) continue;
    if (ReadHeader(Image(node), layout_).level == 0) spare = {node.address, glance.life};
  }
  PANDO_CHECK(!spare.is_null());
  return spare;
}

void PausedMergerWorld::BeginSweep() {
  swept_ = false;
  sweeper_.session->Spawn([this] {
    sweep_status_ = sweeper_.session->Sweep(*sweeper_.tree, &sweep_);
    swept_ = true;
  });
  ImplOf(*sweeper_.session).scheduler().endpoint().Wake();
}

void PausedMergerWorld::BeginMerge() {
  erased_ = false;
  merger_.session->Spawn([this] {
    erase_status_ = merger_.session->Erase(*merger_.tree, last_);
    erased_ = true;
  });
  ImplOf(*merger_.session).scheduler().endpoint().Wake();
}

// Sweep and merge, until one of them is stopped and the other one is over. False: the one that was
// to be stopped had ended before.
bool PausedMergerWorld::StopOne() {
  const bool stops_merger = options_.stopped == PausedMerger::Stopped::kMerger;
  const int64_t start_ns = world_.clock().NowNs();
  BeginSweep();
  bool begun = false, stopped = false;
  for (uint64_t i = 0; i < kEventsMax; ++i) {
    if (!begun && world_.clock().NowNs() >= start_ns + options_.offset_ns) {
      if (!stops_merger) {
        stopped = !swept_;
        if (stopped) world_.PauseFabric(*sweeper_.fabric);
      }
      begun = true;
      if (options_.stopped == PausedMerger::Stopped::kSweeperOfSpare) break;
      BeginMerge();
    }
    if (stops_merger && begun && !stopped && !PeerOf(Image(left_)).is_null()) {
      world_.PauseFabric(*merger_.fabric);
      stopped = true;
    }
    const bool over = stops_merger
                          ? stopped && swept_
                          : begun && erased_ && StateOf(Image(right_)) == NodeState::kDead &&
                                PeerOf(Image(left_)).is_null();
    // Not for ever: a merge that waits for the stopped sweeper gives up.
    if (over || world_.clock().NowNs() > start_ns + 20 * kMillisecondNs) break;
    if (!begun) {
      world_.At(start_ns + options_.offset_ns, [] {});
    }
    if (!world_.Step()) break;
  }
  return stopped;
}

absl::Status PausedMergerWorld::ReuseWhatWasFreed() {
  if (options_.stopped != PausedMerger::Stopped::kMerger) {
    // The merger sends its frees when it closes; the sweep of somebody else what is left.
    merger_.session.reset();
    merger_.tree.reset();
    OneClient other;
    PANDO_RETURN_IF_ERROR(Connect(&other));
    SweepResult swept;
    const absl::Status status =
        other.session->Sweep(*other.tree, &swept, {.timeout_ms = kOperationTimeoutMs});
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  }
  world_.RunUntil(world_.clock().NowNs() + kRestedNs);
  const auto reused = [this] { return LifeOf(Image(right_)) != right_.life; };
  for (int i = 0; i < kReusePutsMax && !reused(); ++i) {
    if (!PutOneMore()) break;  // it may need what is locked
  }
  result_.reused = reused();
  return absl::OkStatus();
}

// By somebody who has no nodes yet, so that the server's come first.
absl::Status PausedMergerWorld::ReuseAgain() {
  world_.RunUntil(world_.clock().NowNs() + kRestedNs);
  OneClient newcomer;
  PANDO_RETURN_IF_ERROR(Connect(&newcomer));
  for (int i = 0; i < kPutsAfterwards; ++i) {
    const std::string key = KeyOfNumber(next_++);
    const absl::Status put =
        newcomer.session->Put(*newcomer.tree, key, "v", {.timeout_ms = kOperationTimeoutMs});
    if (!put.ok()) {
      result_.problems.push_back(absl::StrCat("put of ", key, ": ", put.ToString()));
      break;
    }
    keys_.insert(key);
  }
  return absl::OkStatus();
}

bool PausedMergerWorld::PutOneMore() {
  const std::string key = KeyOfNumber(next_++);
  const absl::Status put =
      reuser_.session->Put(*reuser_.tree, key, "v", {.timeout_ms = kOperationTimeoutMs});
  if (put.ok()) keys_.insert(key);
  return put.ok();
}

void PausedMergerWorld::Check() {
  uint64_t lost = 0;
  std::string example;
  for (const std::string& key : keys_) {
    const absl::Status get =
        reuser_.session->Get(*reuser_.tree, key, {.timeout_ms = kOperationTimeoutMs}).status();
    if (!get.ok() && lost++ == 0) example = absl::StrCat(key, ": ", get.ToString());
  }
  if (lost > 0) {
    result_.problems.push_back(
        absl::StrCat(lost, " acknowledged keys cannot be read, e.g. ", example));
  }
  const TreeCheckResult tree =
      CheckTree(entry_, {}, [this](RemoteAddress from, std::span<std::byte> into) {
        std::memcpy(into.data(), world_.Memory(kOnlyServer).main.data() + from.offset(),
                    into.size());
        return absl::OkStatus();
      });
  result_.problems.insert(result_.problems.end(), tree.problems.begin(), tree.problems.end());
}

absl::Status PausedMergerWorld::Play() {
  PANDO_RETURN_IF_ERROR(Start());
  result_.stopped = StopOne();
  const int64_t stopped_ns = world_.clock().NowNs();
  if (result_.stopped) {
    PANDO_RETURN_IF_ERROR(ReuseWhatWasFreed());
    world_.RunUntil(stopped_ns + options_.stop_ns);
    world_.ResumeFabric(StoppedFabric());
  }
  keys_.erase(last_);
  while (!(swept_ && erased_) && world_.Step()) {
  }
  world_.RunUntil(world_.clock().NowNs() + 10 * kMillisecondNs);
  if (!erase_status_.ok()) result_.problems.push_back("erase: " + erase_status_.ToString());
  if (result_.stopped) PANDO_RETURN_IF_ERROR(ReuseAgain());
  result_.freed = sweep_.freed;
  result_.settled = sweep_.settled;
  result_.left = sweep_.left;
  Check();
  return absl::OkStatus();
}

}  // namespace

PausedMergerResult PlayPausedMerger(const PausedMerger& options) {
  return PausedMergerWorld(options).Run();
}

SimRunResult RunPausedMerger(uint64_t seed) {
  struct Kind {
    PausedMerger::Stopped stopped;
    const char* name;
    int64_t last_us;  // merges begin, or sweeps are stopped, up to then
  };
  constexpr Kind kKinds[] = {{PausedMerger::Stopped::kMerger, "merger", 60},
                             {PausedMerger::Stopped::kSweeper, "sweeper", 250},
                             {PausedMerger::Stopped::kSweeperOfSpare, "sweeper of a spare", 400}};
  constexpr int64_t kStepUs = 5;
  SimRunResult run;
  for (const Kind& kind : kKinds) {
    for (int64_t us = 0; us <= kind.last_us; us += kStepUs) {
      const PausedMergerResult trial = PlayPausedMerger(
          {.seed = seed, .stopped = kind.stopped, .offset_ns = us * kMicrosecondNs});
      ++run.operations;
      run.swept.freed += trial.freed;
      run.swept.settled += trial.settled;
      run.swept.left += trial.left;
      for (const std::string& problem : trial.problems) {
        run.problems.push_back(absl::StrCat(kind.name, " stopped, offset ", us, " us: ", problem));
      }
    }
  }
  return run;
}

}  // namespace pando

// What goes wrong at a memory server where a rule is switched off, and does not where it holds.
// Built with PANDO_BROKEN_VARIANTS, apart from the room's other tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/rule.h"
#include "memory/chunk_nodes.h"
#include "memory/client_table.h"
#include "memory/extent_table.h"
#include "memory/lease_table.h"
#include "memory/server_test_util.h"
#include "memory/tree_table.h"

#ifndef PANDO_BROKEN_VARIANTS
#error "this test needs the variants"
#endif

namespace pando::memory {
namespace {

class BrokenRule {
 public:
  explicit BrokenRule(Rule rule) { BreakRule(rule); }
  ~BrokenRule() { BreakRule(Rule::kNone); }
};

// Whether a client that has left is taken for a later one, once all ids have gone round.
bool TheGoneComeBack() {
  PeerId peer = 0;  // a connection has one identity
  ClientTable clients;
  IdSource ids(1);
  const ClientId first = *clients.Join(++peer, &ids);
  clients.Leave(first);
  while (true) {
    const ClientId next = *clients.Join(++peer, &ids);
    if (next.compute_server == first.compute_server) break;
    clients.Leave(next);
  }
  return clients.StateOf(first) == ClientLiveness::kJoined;
}

TEST(MemoryRulesTest, C0) {
  EXPECT_FALSE(TheGoneComeBack());
  BrokenRule c0(Rule::kC0);
  EXPECT_TRUE(TheGoneComeBack());
}

// Whether somebody is declared dead whom a server that was away for long had no chance to hear.
bool TheUnheardDie() {
  constexpr int64_t kLeaseNs = 1000;
  LeaseTable leases(kLeaseNs);
  leases.Renew(1, 0);
  return !leases.Step(5 * kLeaseNs).empty();
}

TEST(MemoryRulesTest, C1) {
  EXPECT_FALSE(TheUnheardDie());
  BrokenRule c1(Rule::kC1);
  EXPECT_TRUE(TheUnheardDie());
}

// Whether what somebody was handed, gave back and sent all the same passes for what the next one
// has written there.
bool TheLatePass() {
  constexpr uint32_t kAnna = 10, kBert = 11;
  ChunkNodes nodes(4, /*life=*/0, /*zero=*/true);
  (void)nodes.TakeUntouched(1, kAnna);
  const uint32_t sent = nodes.life(0);
  nodes.PutBack(0, 1);
  (void)nodes.TakeUntouched(1, kBert);
  return nodes.life(0) == sent;
}

TEST(MemoryRulesTest, R5) {
  EXPECT_FALSE(TheLatePass());
  BrokenRule r5(Rule::kR5);
  EXPECT_TRUE(TheLatePass());
}

// Whether a tree that had nodes on an earlier life of a server is welcome there, as if they were
// still there.
bool TheLostAreWelcome() {
  constexpr uint64_t kEarlierLife = 1, kLife = 2;
  constexpr uint32_t kTree = 5;
  TreeTable trees(kLife);
  return trees.Attach({1, 10}, kTree, kEarlierLife).ok();
}

TEST(MemoryRulesTest, R7) {
  EXPECT_FALSE(TheLostAreWelcome());
  BrokenRule r7(Rule::kR7);
  EXPECT_TRUE(TheLostAreWelcome());
}

// Of a server of a fabric that can cut clients off, without leases.
class LeaselessServer : public TwoClientsTest {
 public:
  LeaselessServer() { Start({.fence = &fence_}); }
  // Whether somebody is told that it may serve for ever, and then cut off, which it hears nothing
  // of.
  bool CutsOffWhoServes() {
    if (!anna_->Serve().ok() || !bert_->Fence(anna_->id).ok()) return false;
    server_->OnTimer(clock_.now_ns);
    return !fence_.peers.empty();
  }

 private:
  void TestBody() override {}

  RecordingFence fence_;
};

TEST(MemoryRulesTest, O1Leases) {
  EXPECT_FALSE(LeaselessServer().CutsOffWhoServes());
  BrokenRule o1(Rule::kO1Leases);
  EXPECT_TRUE(LeaselessServer().CutsOffWhoServes());
}

// A server that others have filled with nodes.
class FullServer : public TwoClientsTest {
 public:
  FullServer() {
    memory_ = PlainMemory(8 << 20);
    Start({});
    const auto tree = anna_->CreateTree("a");
    (void)anna_->AttachTree(tree->tree_id);
    while (anna_->AllocateNodes(tree->tree_id, tree->shape.node_bytes).ok()) {
    }
  }
  // Whether the owners' tree has no room there.
  bool OwnersAreRefused() {
    return !anna_->CreateTree(std::string(kClusterTreeName), Shape(246, 128)).ok();
  }

 private:
  void TestBody() override {}
};

TEST(MemoryRulesTest, O2Reserve) {
  EXPECT_FALSE(FullServer().OwnersAreRefused());
  BrokenRule o2(Rule::kO2Reserve);
  EXPECT_TRUE(FullServer().OwnersAreRefused());
}

// A log whose holder is at work.
class LogsServer : public TwoClientsTest {
 public:
  LogsServer() { Start({}); }
  // Whether somebody else frees it.
  bool LogIsTaken() {
    const auto log = anna_->AllocateExtent(1);
    return bert_->FreeExtent(*log, anna_->id.incarnation).ok();
  }

 private:
  void TestBody() override {}
};

TEST(MemoryRulesTest, W1) {
  EXPECT_FALSE(LogsServer().LogIsTaken());
  BrokenRule w1(Rule::kW1);
  EXPECT_TRUE(LogsServer().LogIsTaken());
}

// A memory server that nodes have filled since one had its log there.
class FullOfNodes {
 public:
  FullOfNodes() {
    (void)Ask(kAnna);
    clock_.now_ns += kSecondNs;
    while (nodes_.Allocate(kBert, {/*tree_id=*/100, /*node_bytes=*/1024, 1000}).ok()) {
    }
  }
  // Whether somebody else gets room for a log.
  bool TakesBert() { return Ask(kBert); }
  void AnnaEnds() { anna_has_ended_ = true; }

 private:
  static constexpr ClientId kAnna = {1, 1}, kBert = {2, 2};

  bool Ask(const ClientId& holder) {
    const auto grant = extents_.Allocate(
        holder, 1, [&](const ClientId& client) { return client == kAnna && anna_has_ended_; });
    return grant.ok() && grant->id != 0;
  }

  PlainMemory memory_{4 << 20};
  ManualClock clock_;
  Region region_ = *Region::Format(memory_.memory(), {});
  NodeLedger nodes_{&region_, &clock_, {}};
  ExtentTable extents_{&region_, &nodes_, &clock_, {}, /*life=*/77};
  bool anna_has_ended_ = false;
};

// Whether nobody can take over from who has ended.
bool NobodyFollows() {
  FullOfNodes server;
  server.AnnaEnds();
  return !server.TakesBert();
}

TEST(MemoryRulesTest, W7) {
  EXPECT_FALSE(NobodyFollows());
  BrokenRule w7(Rule::kW7);
  EXPECT_TRUE(NobodyFollows());
}

// Whether what is kept for who takes over is given to somebody who does not.
TEST(MemoryRulesTest, W7Ended) {
  EXPECT_FALSE(FullOfNodes().TakesBert());
  BrokenRule w7(Rule::kW7Ended);
  EXPECT_TRUE(FullOfNodes().TakesBert());
}

}  // namespace
}  // namespace pando::memory

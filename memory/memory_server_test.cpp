#include "memory/memory_server.h"

#include <cstring>
#include <map>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

class MemoryServerTest : public testing::Test {
 protected:
  std::unique_ptr<MemoryServer> Start(const PlainMemory& memory, MemoryServerOptions options = {}) {
    options.clock = &clock_;
    auto server = MemoryServer::Create(memory.memory(), options);
    EXPECT_TRUE(server.ok()) << server.status();
    return std::move(*server);
  }
  uint64_t Counter(const std::string& name) { return CounterOf(*server_, name); }

  ManualClock clock_;
  PlainMemory memory_;
  std::unique_ptr<MemoryServer> server_ = Start(memory_);
  TestClient anna_{server_.get(), 1};
  TestClient bert_{server_.get(), 2};
};

// In the protocol 0 says that there is none.
TEST_F(MemoryServerTest, NoServerHasId0) {
  PlainMemory memory;
  EXPECT_EQ(MemoryServer::Create(memory.memory(), {.server_id = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MemoryServerTest, TellsAnyoneWhatItIs) {
  const auto body = anna_.Call(ControlOpcode::kServerInfo);
  ASSERT_TRUE(body.ok()) << body.status();
  const auto info = ParseServerInfo(*body);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->is_catalog, 1);
  EXPECT_EQ(info->superblock.server_id, 1);
  EXPECT_EQ(info->used_bytes, 0u);
  EXPECT_EQ(info->free_bytes,
            uint64_t{info->superblock.chunk_count} * info->superblock.chunk_bytes);
  EXPECT_TRUE(anna_.Call(ControlOpcode::kPing).ok());
  const auto counters = ParseCounters(*anna_.Call(ControlOpcode::kStats));
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters->front(), (std::pair<std::string, uint64_t>{"calls", 3}));
}

TEST_F(MemoryServerTest, JoinsUseAndLeave) {
  EXPECT_EQ(anna_.CreateTree("a").status().code(), absl::StatusCode::kFailedPrecondition)
      << "not joined";
  ASSERT_TRUE(anna_.Join().ok());
  ASSERT_TRUE(bert_.Join().ok());
  EXPECT_NE(anna_.id.compute_server, bert_.id.compute_server);
  EXPECT_GT(bert_.id.incarnation, anna_.id.incarnation);
  const auto tree = anna_.CreateTree("a");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(anna_.AllocateNodes(tree->tree_id, 1024).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "not attached to the tree";
  ASSERT_TRUE(anna_.AttachTree(tree->tree_id).ok());
  const auto grant = anna_.AllocateNodes(tree->tree_id, 1024);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(Counter("nodes_out"), grant->runs.at(0).bytes / 1024);
  ASSERT_TRUE(anna_.ReturnNodes(tree->tree_id, grant->runs).ok());
  EXPECT_EQ(Counter("nodes_out"), 0u);
  ASSERT_TRUE(anna_.Call(ControlOpcode::kLeave).ok());
  EXPECT_EQ(anna_.AttachTree(tree->tree_id).code(), absl::StatusCode::kFailedPrecondition)
      << "has left";
  EXPECT_TRUE(anna_.OpenTree("a").ok()) << "looking needs no identity";
  EXPECT_EQ(Counter("clients"), 1u);
  EXPECT_EQ(Counter("leaves"), 1u);
}

TEST_F(MemoryServerTest, AnIdentityIsBoundToItsConnection) {
  ASSERT_TRUE(anna_.Join().ok());
  bert_.id = anna_.id;
  EXPECT_EQ(bert_.CreateTree("a").status().code(), absl::StatusCode::kPermissionDenied);
  bert_.id.incarnation += 5;
  EXPECT_EQ(bert_.CreateTree("a").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Counter("refused_calls"), 2u);
}

TEST_F(MemoryServerTest, ARepeatedRequestTakesEffectOnce) {
  ASSERT_TRUE(anna_.Join().ok());
  const auto tree = anna_.CreateTree("a");
  ASSERT_TRUE(anna_.AttachTree(tree->tree_id).ok());
  const std::string message =
      anna_.Message(ControlOpcode::kAllocateNodes, EncodeNodeRequest({tree->tree_id, 1024, 64}));
  const std::string reply = server_->Handle(1, message);
  EXPECT_EQ(server_->Handle(1, message), reply);
  EXPECT_EQ(Counter("node_grants"), 1u);
  EXPECT_EQ(Counter("repeated_calls"), 1u);
  // The number with another content is somebody's bug.
  --anna_.sequence;
  EXPECT_EQ(anna_.AllocateNodes(tree->tree_id, 2048).status().code(),
            absl::StatusCode::kInvalidArgument);

  // Also for joins (a lost reply must not leave a ghost behind) and after leaving.
  TestClient carl(server_.get(), 3);
  const std::string join = carl.Message(ControlOpcode::kJoin, EncodeJoinRequest({}));
  EXPECT_EQ(server_->Handle(3, join), server_->Handle(3, join));
  EXPECT_EQ(Counter("joins"), 2u);
  const std::string leave = anna_.Message(ControlOpcode::kLeave, "");
  const std::string left = server_->Handle(1, leave);
  EXPECT_TRUE(ParseReply(left, ControlOpcode::kLeave, anna_.sequence).ok());
  EXPECT_EQ(server_->Handle(1, leave), left);
}

TEST_F(MemoryServerTest, ADroppedTreesMemoryComesBackWithItsLastClientAndIsZero) {
  ASSERT_TRUE(anna_.Join().ok());
  ASSERT_TRUE(bert_.Join().ok());
  const auto tree = anna_.CreateTree("a");
  ASSERT_TRUE(anna_.AttachTree(tree->tree_id).ok());
  ASSERT_TRUE(bert_.AttachTree(tree->tree_id).ok());
  std::vector<NodeGrant> grants;
  absl::StatusOr<NodeGrant> grant = bert_.AllocateNodes(tree->tree_id, 1024);
  for (; grant.ok(); grant = bert_.AllocateNodes(tree->tree_id, 1024)) {
    for (const NodeRun& run : grant->runs) {
      std::memset(memory_.main() + run.offset, 0x5a, run.bytes);
    }
    grants.push_back(*grant);
  }
  EXPECT_EQ(grant.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server_->Info().free_bytes, 0u);

  ASSERT_TRUE(anna_.DropTree(tree->tree_id).ok());
  EXPECT_EQ(anna_.OpenTree("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(anna_.DropTree(tree->tree_id).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(bert_.AllocateNodes(tree->tree_id, 1024).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(anna_.AttachTree(tree->tree_id).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(anna_.DetachTree(tree->tree_id).ok());
  EXPECT_EQ(server_->Info().free_bytes, 0u) << "Bert still reads it";
  server_->OnPeerGone(2);
  EXPECT_GT(server_->Info().free_bytes, 0u);
  EXPECT_EQ(Counter("trees_freed"), 1u);

  EXPECT_EQ(anna_.CreateTree("a", Shape(20, 20)).status().code(),
            absl::StatusCode::kResourceExhausted)
      << "rests";
  clock_.now_ns += kSecondNs;
  const auto again = anna_.CreateTree("a", Shape(20, 20));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GT(again->tree_id, tree->tree_id);
  ASSERT_TRUE(anna_.AttachTree(again->tree_id).ok());
  for (size_t i = 0; i + 2 < grants.size(); ++i) {
    const auto fresh = anna_.AllocateNodes(again->tree_id, again->shape.node_bytes);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    const NodeRun& run = fresh->runs.at(0);
    for (uint64_t k = 0; k < run.bytes; ++k) {
      const bool stamp = k % again->shape.node_bytes >= 9 && k % again->shape.node_bytes < 13;
      ASSERT_TRUE(stamp || memory_.main()[run.offset + k] == std::byte{0}) << k;
    }
  }
}

TEST_F(MemoryServerTest, LeavingGivesATreeBackToo) {
  ASSERT_TRUE(anna_.Join().ok());
  ASSERT_TRUE(bert_.Join().ok());
  const uint64_t free_bytes = server_->Info().free_bytes;
  const auto tree = anna_.CreateTree("a");
  ASSERT_TRUE(anna_.AttachTree(tree->tree_id).ok());
  ASSERT_TRUE(bert_.DropTree(tree->tree_id).ok());
  EXPECT_LT(server_->Info().free_bytes, free_bytes);
  ASSERT_TRUE(anna_.Call(ControlOpcode::kLeave).ok());
  EXPECT_EQ(server_->Info().free_bytes, free_bytes);
}

TEST_F(MemoryServerTest, ServersWithoutTheCatalogRefuseItsOperationsAndLearnTreesFromClients) {
  const PlainMemory memory;
  const auto second = Start(memory, {.server_id = 2, .is_catalog = false});
  ASSERT_TRUE(anna_.Join().ok());
  const auto tree = anna_.CreateTree("a");
  TestClient anna2(second.get(), 9);
  EXPECT_EQ(anna2.Join().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(anna2.OpenTree("a").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(anna2.AttachTree(tree->tree_id).code(), absl::StatusCode::kFailedPrecondition)
      << "nobody yet";
  ASSERT_TRUE(anna2.AttachAs(anna_.id).ok());
  ASSERT_TRUE(anna2.AttachAs(anna_.id).ok()) << "again";
  ASSERT_TRUE(anna2.AttachTree(tree->tree_id).ok());
  const auto grant = anna2.AllocateNodes(tree->tree_id, tree->shape.node_bytes);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(anna2.CreateTree("b").status().code(), absl::StatusCode::kFailedPrecondition);

  TestClient bert2(second.get(), 10);
  EXPECT_EQ(bert2.AttachAs(anna_.id).code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(anna2.DropTree(tree->tree_id).ok());
  ASSERT_TRUE(anna2.DropTree(tree->tree_id).ok()) << "a drop that was cut short is repeated";
  second->OnPeerGone(9);
  EXPECT_EQ(second->Info().used_bytes, 0u);
}

TEST_F(MemoryServerTest, AServerRefusesTreesOfItsEarlierLivesAndNoOthers) {
  ASSERT_TRUE(anna_.Join().ok());
  const auto old_tree = anna_.CreateTree("old");
  ASSERT_TRUE(old_tree.ok());
  EXPECT_EQ(old_tree->servers, (TreeServerList{{1, 1}}));
  const auto grow = [&](uint32_t tree_id, uint64_t life) {
    return anna_.Call(ControlOpcode::kGrowTree, EncodeTreeGrowth({tree_id, {2, life}})).status();
  };
  const PlainMemory memory;
  const auto second = Start(memory, {.server_id = 2, .is_catalog = false, .life = 20});
  ASSERT_TRUE(bert_.Join().ok());
  TestClient bert2(second.get(), 9);
  ASSERT_TRUE(bert2.AttachAs(bert_.id).ok());
  EXPECT_TRUE(bert2.AttachTree(old_tree->tree_id).ok()) << "older, but it has nothing here";
  EXPECT_EQ(grow(old_tree->tree_id, 19).code(), absl::StatusCode::kFailedPrecondition)
      << "who has not opened it does not make it lost for all";
  ASSERT_TRUE(anna_.AttachTree(old_tree->tree_id).ok());
  ASSERT_TRUE(grow(old_tree->tree_id, 20).ok());
  EXPECT_TRUE(grow(old_tree->tree_id, 20).ok()) << "said again";
  EXPECT_EQ(anna_.OpenTree("old")->servers, (TreeServerList{{1, 1}, {2, 20}}));
  ASSERT_TRUE(bert2.AttachTree(old_tree->tree_id, 20).ok());

  // It starts again, empty.
  const PlainMemory other_memory;
  const auto third = Start(other_memory, {.server_id = 2, .is_catalog = false, .life = 30});
  TestClient bert3(third.get(), 9);
  ASSERT_TRUE(bert3.AttachAs(bert_.id).ok());
  const absl::Status refused = bert3.AttachTree(old_tree->tree_id, 20);
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(refused.message().find("earlier life"), absl::string_view::npos) << refused;
  EXPECT_EQ(grow(old_tree->tree_id, 30).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(bert3.AttachTree(bert_.CreateTree("new")->tree_id).ok());
  const auto dropped = anna_.Call(ControlOpcode::kDropTree, EncodeTreeId(old_tree->tree_id));
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(*ParseTreeServers(*dropped), (TreeServerList{{1, 1}, {2, 20}}));
  EXPECT_EQ(grow(old_tree->tree_id, 20).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MemoryServerTest, AnEarlierLifeOfAClientLosesItsHoldingsWithItsConnection) {
  const PlainMemory memory;
  const auto second = Start(memory, {.server_id = 2, .is_catalog = false});
  TestClient old_life(second.get(), 1), new_life(second.get(), 2);
  ASSERT_TRUE(old_life.AttachAs({5, 10}).ok());
  ASSERT_TRUE(old_life.AttachTree(11).ok());
  ASSERT_TRUE(old_life.AllocateNodes(11, 1024).ok());
  ASSERT_TRUE(new_life.AttachAs({5, 20}).ok());
  EXPECT_GT(CounterOf(*second, "nodes_out"), 0u) << "something of it may be in flight";
  second->OnPeerGone(1);
  while (second->OnTimer(clock_.NowNs()) != kNeverNs) {
  }
  EXPECT_EQ(CounterOf(*second, "nodes_out"), 0u);
  EXPECT_EQ(old_life.AllocateNodes(11, 1024).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(old_life.AttachAs({5, 10}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MemoryServerTest, ARestartedCatalogStartsAboveItsEarlierLife) {
  const PlainMemory memory;
  const auto again = Start(memory, {.first_id = 1000});
  TestClient client(again.get(), 1);
  ASSERT_TRUE(client.Join().ok());
  EXPECT_EQ(client.id.incarnation, 1000u);
  EXPECT_EQ(client.CreateTree("a")->tree_id, 1001u);
}

TEST_F(MemoryServerTest, JoinersTellTheCatalogWhatOthersHaveMet) {
  const PlainMemory memory, second_memory;
  const auto second = Start(second_memory, {.server_id = 2, .is_catalog = false});
  TestClient met(second.get(), 1);
  ASSERT_TRUE(met.AttachAs({5, 7'000}).ok());
  ASSERT_TRUE(met.AttachTree(7'100).ok());
  const auto info = ParseServerInfo(*met.Call(ControlOpcode::kServerInfo));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->highest_id, 7'100u);
  // A catalog whose mark was lost.
  const auto again = Start(memory, {.first_id = 10});
  TestClient client(again.get(), 1);
  const auto joined = client.Call(ControlOpcode::kJoin, EncodeJoinRequest({1, info->highest_id}));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(ParseJoinReply(*joined)->incarnation, 7'101u);
}

TEST_F(MemoryServerTest, ARestartedCatalogTakesIdentitiesOfItsEarlierLifeAndGivesThemToNobody) {
  const PlainMemory memory;
  const auto again = Start(memory, {.first_id = 1000});
  TestClient old_life(again.get(), 1), client(again.get(), 2), forger(again.get(), 3);
  ASSERT_TRUE(old_life.AttachAs({static_cast<uint16_t>(1000), 900}).ok());
  ASSERT_TRUE(client.Join().ok());
  EXPECT_EQ(client.id.incarnation, 1000u);
  EXPECT_NE(client.id.compute_server, old_life.id.compute_server) << "ids go on, too";
  EXPECT_FALSE(forger.AttachAs({77, 1000}).ok()) << "of this life: the catalog knows them all";
  EXPECT_FALSE(forger.AttachAs(client.id).ok()) << "another connection's";
}

TEST_F(MemoryServerTest, RefusesOptionsThatCannotWork) {
  EXPECT_FALSE(MemoryServer::Create(PlainMemory(8192).memory(), {}).ok());
  EXPECT_FALSE(MemoryServer::Create(memory_.memory(), {.chunk_bytes = 5}).ok());
}

TEST_F(MemoryServerTest, MessagesThatMakeNoSenseAreRefusedWithAReply) {
  const auto code = [&](ControlHeader header) {
    header.sequence = 5;
    const std::string reply = server_->Handle(1, EncodeMessage(header, ""));
    return ParseReply(reply, static_cast<ControlOpcode>(header.opcode), 5).status().code();
  };
  EXPECT_EQ(code({.opcode = 999}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({.opcode = 5, .flags = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.opcode = 5, .target_incarnation = 3}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({.opcode = 5}), absl::StatusCode::kOk);
  EXPECT_EQ(Counter("bad_messages"), 2u);
}

// Every reply parses, whatever came in; and what was there is still there afterwards.
TEST_F(MemoryServerTest, DamagedMessagesChangeNothing) {
  ASSERT_TRUE(anna_.Join().ok());
  const auto tree = anna_.CreateTree("a");
  ASSERT_TRUE(anna_.AttachTree(tree->tree_id).ok());
  const auto counters_before = server_->Counters();
  Random random(7);
  const std::vector<std::string> bodies = {EncodeNodeRequest({tree->tree_id, 1024, 64}),
                                           EncodeTreeName("a"), EncodeTreeId(tree->tree_id),
                                           EncodeCreateTree({"b", Shape(8, 8)}), ""};
  for (int i = 0; i < 20'000; ++i) {
    const auto opcode = static_cast<ControlOpcode>(random.Uniform(44));
    std::string bytes = anna_.Message(opcode, bodies[random.Uniform(bodies.size())]);
    if (random.Chance(0.3)) bytes.resize(random.Uniform(bytes.size()));
    const uint64_t flips = 1 + random.Uniform(3);
    for (uint64_t k = 0; k < flips && !bytes.empty(); ++k) {
      bytes[random.Uniform(bytes.size())] ^= static_cast<char>(1 + random.Uniform(255));
    }
    const std::string reply = server_->Handle(1, bytes);
    const auto parsed = ParseMessage(reply);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_NE(parsed->header.status, 0u);
  }
  EXPECT_EQ(Counter("bad_messages"), 20'000u);
  for (const auto& [name, value] : counters_before) {
    if (name != "calls" && name != "bad_messages") {
      EXPECT_EQ(Counter(name), value) << name;
    }
  }
  EXPECT_TRUE(anna_.OpenTree("a").ok());
}

// Well-formed messages with any body and any numbers: refused or executed, never a crash, memory
// always accounted for.
TEST_F(MemoryServerTest, RandomRequestsKeepTheBooks) {
  Random random(11);
  std::vector<TestClient> clients;
  for (PeerId peer = 1; peer <= 4; ++peer) clients.emplace_back(server_.get(), peer);
  for (int i = 0; i < 20'000; ++i) {
    TestClient& client = clients[random.Uniform(clients.size())];
    const auto tree_id = static_cast<uint32_t>(random.Uniform(100));
    const std::string name(1, static_cast<char>('a' + random.Uniform(6)));
    switch (random.Uniform(13)) {
      case 0:
        (void)client.Join();
        break;
      case 1:
        (void)client.CreateTree(name);
        break;
      case 2:
      case 3:
        if (const auto tree = client.OpenTree(name); tree.ok())
          (void)client.AttachTree(tree->tree_id);
        break;
      case 4:
        (void)client.DetachTree(tree_id);
        break;
      case 5:
        if (const auto tree = client.OpenTree(name); tree.ok())
          (void)client.DropTree(tree->tree_id);
        break;
      case 6:
      case 7:
        if (const auto tree = client.OpenTree(name); tree.ok()) {
          const auto grant = client.AllocateNodes(tree->tree_id, 1024);
          if (grant.ok() && random.Chance(0.5)) {
            EXPECT_TRUE(client.ReturnNodes(tree->tree_id, grant->runs).ok());
          }
        }
        break;
      case 8:
        if (random.Chance(0.1)) (void)client.Call(ControlOpcode::kLeave);
        break;
      case 10:
        (void)client.AllocateExtent(1 + random.Uniform(200'000));
        break;
      case 11:
        if (const auto extents = client.ListExtents(); !extents.empty()) {
          const ListedExtent& extent = extents[random.Uniform(extents.size())];
          const auto freed = client.FreeExtent({.life = 1, .id = extent.id}, extent.incarnation);
          const bool may = extent.incarnation == client.id.incarnation ||
                           extent.holder != ClientLiveness::kJoined;
          EXPECT_TRUE(!freed.ok() || (*freed && may));
        }
        break;
      case 12: {
        const ClientId& whom = clients[random.Uniform(clients.size())].id;
        if (random.Chance(0.1)) (void)client.Fence(whom);
        break;
      }
      case 9: {
        if (random.Chance(0.1)) server_->OnPeerGone(1 + random.Uniform(4));
        std::string body(random.Uniform(40), '\0');
        for (char& c : body) c = static_cast<char>(random.Next());
        (void)client.Call(static_cast<ControlOpcode>(random.Uniform(44)), body);
        break;
      }
    }
    clock_.now_ns += 10 * kMillisecondNs;
    ASSERT_EQ(Counter("chunks_free") + Counter("chunks_used"), Counter("chunks"));
    (void)server_->OnTimer(clock_.NowNs());
  }
  for (PeerId peer = 1; peer <= 4; ++peer) server_->OnPeerGone(peer);
  while (server_->OnTimer(clock_.NowNs()) != kNeverNs) {
  }
  TestClient heir(server_.get(), 5);
  ASSERT_TRUE(heir.Join().ok());
  for (const ListedExtent& extent : heir.ListExtents()) {
    EXPECT_TRUE(*heir.FreeExtent({.life = 1, .id = extent.id}, extent.incarnation));
  }
  EXPECT_EQ(Counter("extent_bytes"), 0u);
  EXPECT_GT(Counter("fences"), 10u);
  EXPECT_EQ(Counter("nodes_out"), 0u);
  EXPECT_GT(Counter("trees_freed"), 10u);
  EXPECT_GT(Counter("node_grants"), 100u);
}

}  // namespace
}  // namespace pando::memory

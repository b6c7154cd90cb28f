// Clients that become owners while a memory server says nothing (rules W1, W7).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "bench/cost/sim_cluster.h"
#include "common/base/check.h"
#include "common/base/time_constants.h"
#include "common/wire/control.h"
#include "compute/client/connect.h"
#include "memory/memory_server.h"
#include "pando/owners.h"

namespace pando {
namespace {

constexpr uint64_t kLogBytes = 3 << 20;

SimCluster::Options OfServers(int count, uint64_t main_bytes) {
  return {.sim = {.mode = sim::DeliveryMode::kWhole},
          .memory_servers = count,
          .main_bytes = main_bytes};
}

// Nothing of the tree is there, and another one has room for its owner's log.
TEST(OwnedJoin, ASilentServerIsNotNeeded) {
  for (const ServerId silent : {2, 3}) {
    SimCluster cluster(OfServers(3, 256 << 20));
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("t", {.mode = TreeOptions::Mode::kOwned});
    auto session = *client->NewSession();
    cluster.world().PauseCalls(silent, true);
    const absl::Status put = session->Put(*tree, "k", "v");
    EXPECT_TRUE(put.ok()) << put;
    cluster.world().PauseCalls(silent, false);
  }
}

// The catalog's server has room for a small log, and the other one for any.
class SmallFirst {
 public:
  // How large the log is of a client that puts, while the other server says nothing for so long.
  uint64_t LogBytes(int64_t silent_ns, int64_t timeout_ms = 0) {
    cluster_.world().PauseCalls(2, true);
    cluster_.world().At(cluster_.world().clock().NowNs() + silent_ns,
                        [this] { cluster_.world().PauseCalls(2, false); });
    const int64_t begun_ns = cluster_.world().clock().NowNs();
    put_ = session_->Put(*tree_, "k", "v", {.timeout_ms = timeout_ms});
    put_ns_ = cluster_.world().clock().NowNs() - begun_ns;
    const auto members = client_->ListMembers();
    return members.ok() && members->size() == 1 ? members->front().log_bytes : 0;
  }
  void Quiet(int64_t for_ns) {
    cluster_.world().RunUntil(cluster_.world().clock().NowNs() + for_ns);
  }
  const absl::Status& put() const { return put_; }
  int64_t put_ns() const { return put_ns_; }  // how long it took

 private:
  static SimCluster::Options Sizes() {
    SimCluster::Options options = OfServers(2, 32 << 20);
    options.first_main_bytes = 5 << 20;
    return options;
  }

  SimCluster cluster_{Sizes()};
  const std::unique_ptr<Client> client_ = cluster_.NewClient({.log_bytes = kLogBytes});
  const std::unique_ptr<Tree> tree_ =
      *client_->CreateTree("t", {.mode = TreeOptions::Mode::kOwned});
  const std::unique_ptr<Session> session_ = *client_->NewSession();
  absl::Status put_;
  int64_t put_ns_ = 0;
};

TEST(OwnedJoin, ALogIsNoSmallerForAServerThatIsSilentForAMoment) {
  for (const int64_t silent_ns : {100 * kMillisecondNs, 3 * kSecondNs}) {
    SmallFirst owner;
    EXPECT_EQ(owner.LogBytes(silent_ns), kLogBytes);
    EXPECT_TRUE(owner.put().ok()) << owner.put();
  }
}

// Nobody knows whether it ever answers again. The write that needs the log comes to its end.
TEST(OwnedJoin, ASmallerLogWillDoOnceAServerHasBeenSilentForFiveSeconds) {
  SmallFirst owner;
  const uint64_t log_bytes = owner.LogBytes(60 * kSecondNs);
  EXPECT_TRUE(owner.put().ok()) << owner.put();
  EXPECT_GE(owner.put_ns(), 5 * kSecondNs);
  EXPECT_LT(owner.put_ns(), 8 * kSecondNs);
  EXPECT_GT(log_bytes, 0u);
  EXPECT_LT(log_bytes, kLogBytes);
}

// One that joins as it connects has no time for more than that. A server falls silent at any
// moment.
TEST(OwnedJoin, WhoConnectsAsAnOwnerHasASmallerLogRatherThanNone) {
  int smaller = 0;
  for (int64_t after_ms = 0; after_ms < 300; after_ms += 10) {
    SimCluster::Options options = OfServers(2, 32 << 20);
    options.first_main_bytes = 5 << 20;
    options.sim.call_delay_ns = 10 * kMillisecondNs;
    SimCluster cluster(options);
    cluster.world().At(cluster.world().clock().NowNs() + after_ms * kMillisecondNs,
                       [&] { cluster.world().PauseCalls(2, true); });
    const auto client = ConnectOverFabric({.owner = true, .log_bytes = kLogBytes, .seed = 1},
                                          cluster.world().NewFabric());
    // Whatever it is that has no answer.
    const absl::Status status = client.status();
    EXPECT_TRUE(status.ok() || absl::IsDeadlineExceeded(status)) << status << " " << after_ms;
    cluster.world().PauseCalls(2, false);
    if (!client.ok()) continue;
    const auto members = (*client)->ListMembers();
    ASSERT_TRUE(members.ok() && members->size() == 1);
    smaller += members->front().log_bytes < kLogBytes ? 1 : 0;
  }
  EXPECT_GE(smaller, 3);
}

// Somebody has given up before: the wait begins anew.
TEST(OwnedJoin, ALogIsNoSmallerForAServerThatWasSilentBefore) {
  SmallFirst owner;
  EXPECT_EQ(owner.LogBytes(2 * kSecondNs, /*timeout_ms=*/300), 0u);
  EXPECT_FALSE(owner.put().ok());
  owner.Quiet(20 * kSecondNs);
  EXPECT_EQ(owner.LogBytes(kSecondNs), kLogBytes);
  EXPECT_TRUE(owner.put().ok()) << owner.put();
}

// Nobody waits for as long as it takes, but somebody asks again and again.
TEST(OwnedJoin, ASmallerLogWillDoForWhoAsksForAShortTimeAgainAndAgain) {
  SmallFirst owner;
  uint64_t log_bytes = 0;
  for (int i = 0; i < 3 && log_bytes == 0; ++i) {
    log_bytes = owner.LogBytes(60 * kSecondNs, /*timeout_ms=*/4'000);
    owner.Quiet(3 * kSecondNs / 2);
  }
  EXPECT_GT(log_bytes, 0u);
  EXPECT_LT(log_bytes, kLogBytes);
}

// A memory server that is stopped once it has said how much memory it has.
class StopsWhenAsked final : public ControlHandler {
 public:
  StopsWhenAsked(SimCluster* cluster, ServerId id) : cluster_(*cluster), id_(id) {
    cluster_.world().SetHandler(id, this);
  }
  ~StopsWhenAsked() override { cluster_.world().SetHandler(id_, &server()); }
  std::string Handle(PeerId peer, std::string_view request) override {
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const auto opcode = static_cast<ControlOpcode>(asked->header.opcode);
    if (opcode == ControlOpcode::kServerInfo && stops) cluster_.world().PauseServer(id_);
    std::string reply = server().Handle(peer, request);
    extents_max = std::max(extents_max, cluster_.Counter("extents"));
    return reply;
  }
  bool IsKnown(PeerId peer) const override { return server().IsKnown(peer); }
  void OnPeerGone(PeerId peer) override { server().OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server().OnTimer(now_ns); }

  bool stops = false;
  uint64_t extents_max = 0;  // of all memory servers, after a call

 private:
  memory::MemoryServer& server() const { return cluster_.server(id_ - 1); }

  SimCluster& cluster_;
  const ServerId id_;
};

// Nothing was ever sent to what it grants after the one that asked has given up: by then the log
// may be elsewhere, or there once more.
TEST(OwnedJoin, MemoryThatIsGrantedTooLateIsFreed) {
  for (const bool goes_on : {false, true}) {
    SimCluster::Options options = OfServers(2, 256 << 20);
    options.first_main_bytes = 128 << 20;
    SimCluster cluster(options);
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("t", {.mode = TreeOptions::Mode::kOwned});
    auto session = *client->NewSession();
    StopsWhenAsked server(&cluster, 2);
    server.stops = true;
    const absl::Status first = session->Put(*tree, "k", "v", {.timeout_ms = 1000});
    EXPECT_TRUE(absl::IsDeadlineExceeded(first)) << first;
    EXPECT_EQ(cluster.Counter("extents"), 0u) << "or this shows nothing";
    server.stops = false;
    if (goes_on) cluster.world().ResumeServer(2);
    const absl::Status second = session->Put(*tree, "k", "v");
    EXPECT_TRUE(second.ok()) << second;
    cluster.world().ResumeServer(2);
    cluster.world().RunUntil(cluster.world().clock().NowNs() + 3 * kSecondNs);
    EXPECT_EQ(server.extents_max, 2u) << "or this shows nothing";
    EXPECT_EQ(cluster.Counter("extents"), 1u);
    EXPECT_TRUE(session->Put(*tree, "k", "w").ok());
  }
}

// A memory server that falls silent in the middle of a grant, as it zeroes memory step by step; and
// says when it lists what it has granted.
class GrantsHalf final : public ControlHandler {
 public:
  GrantsHalf(SimCluster* cluster, ServerId id) : cluster_(*cluster), id_(id) {
    cluster_.world().SetHandler(id, this);
  }
  ~GrantsHalf() override { cluster_.world().SetHandler(id_, &server()); }
  std::string Handle(PeerId peer, std::string_view request) override {
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const auto opcode = static_cast<ControlOpcode>(asked->header.opcode);
    if (opcode == ControlOpcode::kAllocateExtent && stops) cluster_.world().PauseCalls(id_, true);
    const bool lists = opcode == ControlOpcode::kListExtents && asked->header.sender == lister;
    has_listed = has_listed || lists;
    return server().Handle(peer, request);
  }
  bool IsKnown(PeerId peer) const override { return server().IsKnown(peer); }
  void OnPeerGone(PeerId peer) override { server().OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server().OnTimer(now_ns); }

  uint64_t extents() const {
    uint64_t extents = 0;
    for (const auto& [name, value] : server().Counters()) extents += name == "extents" ? value : 0;
    return extents;
  }

  bool stops = false;
  uint16_t lister = 0;
  bool has_listed = false;  // for that compute server

 private:
  memory::MemoryServer& server() const { return cluster_.server(id_ - 1); }

  SimCluster& cluster_;
  const ServerId id_;
};

// The server of its log dies just when it has seen memory elsewhere that was granted too late: the
// log may go on in that very memory.
TEST(OwnedJoin, MemoryThatIsGrantedTooLateIsNotFreedOnceTheLogIsThere) {
  constexpr ServerId kFirst = 2, kLate = 3;
  SimCluster::Options options = OfServers(3, 256 << 20);
  options.first_main_bytes = 16 << 20;
  SimCluster cluster(options);
  sim::SimWorld& world = cluster.world();
  const auto quiet = [&](int64_t for_ns) { world.RunUntil(world.clock().NowNs() + for_ns); };
  struct Owner {
    Owner(SimCluster* cluster, std::string_view name, uint64_t log_bytes = 24 << 20)
        : client(cluster->NewClient({.log_bytes = log_bytes})),
          tree(*client->CreateTree(name, {.mode = TreeOptions::Mode::kOwned})),
          session(*client->NewSession()) {}
    absl::Status Put(int64_t timeout_ms = 0) {
      return session->Put(*tree, "k", "v", {.timeout_ms = timeout_ms});
    }
    ServerId log_server() const {
      const auto members = client->ListMembers();
      if (!members.ok()) return 0;
      for (const MemberInfo& member : *members) {
        if (member.identity.compute_server == client->compute_server_id()) return member.log_server;
      }
      return 0;
    }
    const std::unique_ptr<Client> client;
    const std::unique_ptr<Tree> tree;
    const std::unique_ptr<Session> session;
  } owner(&cluster, "t");
  Owner neighbour(&cluster, "neighbour", /*log_bytes=*/64 << 10);
  GrantsHalf late(&cluster, kLate);
  {
    // Memory that was somebody's is zeroed before it is granted.
    Owner before(&cluster, "before");
    world.PauseCalls(kFirst, true);
    ASSERT_TRUE(before.Put().ok() && neighbour.Put().ok());
    world.PauseCalls(kFirst, false);
  }
  quiet(3 * kSecondNs);
  world.PauseCalls(kFirst, true);
  late.stops = true;
  const absl::Status first = owner.Put(/*timeout_ms=*/1000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(first)) << first;
  world.PauseCalls(kFirst, false);
  late.stops = false;
  const absl::Status second = owner.Put();
  ASSERT_TRUE(second.ok()) << second;
  ASSERT_EQ(owner.log_server(), kFirst);
  ASSERT_EQ(late.extents(), 2u) << "the neighbour's and what is promised";
  // What is asked of it next is lost, and sent again a while later.
  world.PauseCalls(kLate, false);
  late.lister = owner.client->compute_server_id();
  while (!late.has_listed) quiet(kMicrosecondNs);
  world.PauseCalls(kLate, true);
  world.KillServer(kFirst);
  world.At(world.clock().NowNs() + 100 * kMicrosecondNs, [&] { world.PauseCalls(kLate, false); });
  const absl::Status third = owner.Put();
  EXPECT_TRUE(third.ok()) << third;
  quiet(3 * kSecondNs);
  EXPECT_EQ(owner.log_server(), kLate);
  EXPECT_EQ(late.extents(), 2u) << "the neighbour's and this one";
}

// All memory is taken, and somebody ends while there is no room.
TEST(OwnedJoin, WhoFoundNoRoomLooksForItAgainAsLongAsTheFirstTime) {
  SimCluster::Options options = OfServers(1, 1 << 20);
  options.chunk_bytes = 64 << 10;
  options.lock_words = 1024;
  SimCluster cluster(options);
  const ClientOptions small = {.index_cache_bytes = 1 << 20, .log_bytes = 64 << 10};
  const TreeOptions owned = {.mode = TreeOptions::Mode::kOwned};
  const std::shared_ptr<Fabric> fabric = cluster.world().NewFabric();
  auto owner = *ConnectOverFabric(small, fabric);
  auto owners = *owner->CreateTree("owners", owned);
  auto putting = *owner->NewSession();
  ASSERT_TRUE(putting->Put(*owners, "k", "v").ok());
  auto client = cluster.NewClient(small);
  auto tree = *client->CreateTree("t", owned);
  auto session = *client->NewSession();
  auto ballast = *client->CreateTree("ballast", {.value_bytes_max = 200});
  absl::Status filled;
  for (uint64_t n = 0; filled.ok(); ++n) {
    filled = session->Put(*ballast, KeyOf(n), std::string(200, 'b'));
  }
  ASSERT_TRUE(absl::IsResourceExhausted(filled)) << filled;
  const absl::Status first = session->Put(*tree, "k", "v");
  ASSERT_TRUE(absl::IsResourceExhausted(first)) << first;
  cluster.world().RunUntil(cluster.world().clock().NowNs() + 10 * kSecondNs);
  cluster.world().At(cluster.world().clock().NowNs() + kSecondNs / 2,
                     [&] { cluster.world().KillFabric(*fabric); });
  const absl::Status second = session->Put(*tree, "k", "v");
  EXPECT_TRUE(second.ok()) << second;
}

}  // namespace
}  // namespace pando

// What owned trees ask of memory servers, on a network that loses calls and holds packets up:
// memory for redo logs (rule W1), the end of a life (rule D2), serving leases (rule O5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/epoch.h"
#include "common/base/random.h"
#include "compute/core/extent_calls.h"
#include "compute/core/fence_calls.h"

namespace pando {
namespace {

constexpr uint32_t kLineBytes = 64;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// A compute server without a client: one session, and the identity that it got.
class Member {
 public:
  explicit Member(SimCluster* cluster, int64_t attempt_ns = 5 * kMillisecondNs)
      : cluster_(*cluster),
        fabric_(cluster->world().NewFabric()),
        session_(std::make_unique<SessionContext>(*fabric_->Connect(0, 0), &epochs_, 64, 1)),
        control_(attempt_ns) {}

  // Runs the world until all that was begun here is done.
  void Await() { session_->scheduler().Drain(); }
  void Begin(std::function<void(OperationContext&)> job, int64_t timeout_ns = 100 * kSecondNs) {
    session_->scheduler().Spawn([this, timeout_ns, job = std::move(job)] {
      OperationContext context(session_.get(), session_->NowNs() + timeout_ns);
      job(context);
    });
  }
  void Run(std::function<void(OperationContext&)> job) {
    Begin(std::move(job));
    Await();
  }
  void Join() {
    Run([this](OperationContext& context) {
      const auto body = control_.Call(context, 1, ControlOpcode::kJoin, EncodeJoinRequest({}));
      PANDO_CHECK_OK(body.status());
      identity = *ParseJoinReply(*body);
      control_.SetIdentity(identity.compute_server, identity.incarnation);
    });
  }
  absl::Status Attach(ServerId server) {
    absl::Status attached;
    Run([&](OperationContext& context) {
      attached = control_.Call(context, server, ControlOpcode::kAttach, EncodeJoinReply(identity))
                     .status();
    });
    return attached;
  }
  // A line of nothing but `byte`.
  absl::Status Write(ServerId server, uint64_t offset, char byte) {
    const auto buffer = session_->buffers().Lease(kLineBytes);
    PANDO_CHECK_OK(buffer.status());
    std::memset(buffer->data(), byte, kLineBytes);
    ChainLease chain(&session_->buffers());
    chain->Reset(server);
    chain->Write(MemorySpace::kMain, offset, buffer->Slice(0, kLineBytes));
    session_->scheduler().Await(chain.get());
    return chain->status();
  }

  absl::Status AwaitFence(OperationContext& context, ServerId server, const JoinReply& whom) {
    return pando::AwaitFence(context, control_, server, whom.compute_server, whom.incarnation);
  }
  void Kill() {
    cluster_.world().KillFabric(*fabric_);
    Await();
  }
  SessionContext& session() { return *session_; }
  ControlChannel& control() { return control_; }
  int64_t NowNs() const { return session_->NowNs(); }

  JoinReply identity;

 private:
  SimCluster& cluster_;
  std::shared_ptr<Fabric> fabric_;
  EpochDomain epochs_;
  std::unique_ptr<SessionContext> session_;
  ControlChannel control_;
};

std::string BytesOf(SimCluster& cluster, const LogExtent& extent) {
  return {reinterpret_cast<const char*>(cluster.At(extent.address())), extent.bytes};
}

bool IsZero(SimCluster& cluster, const LogExtent& extent) {
  const std::byte* const data = cluster.At(extent.address());
  return std::all_of(data, data + extent.bytes,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

SimCluster::Options SmallCluster(uint64_t seed, int64_t lease_ns) {
  return {.sim = {.seed = seed},
          .main_bytes = 2 << 20,
          .chunk_bytes = 64 << 10,
          .lease_ns = lease_ns,
          .serving_lease_ns = 100 * kMillisecondNs};
}

TEST(MemberMemoryTest, NothingOfAFencedLifeLandsInWhatAnotherWasGiven) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SimCluster::Options options = SmallCluster(seed, 100 * kSecondNs);
    options.sim.long_delay_probability = 0.1;
    SimCluster cluster(options);
    Random random(seed);
    Member anna(&cluster), bert(&cluster);
    for (Member* member : {&anna, &bert}) {
      member->Join();
      ASSERT_TRUE(member->Attach(2).ok());
    }
    LogExtent extent;
    anna.Run([&](OperationContext& context) {
      extent = *AllocateExtent(context, anna.control(), 2, 200'000);
    });
    uint64_t written = 0;
    for (int i = 0; i < 8; ++i) {
      anna.Begin([&](OperationContext&) {
        const auto anywhere = [&] {
          return random.Uniform(extent.bytes / kLineBytes) * kLineBytes;
        };
        while (anna.Write(2, extent.offset + anywhere(), 'a').ok()) ++written;
      });
    }
    LogExtent next;
    bert.Run([&](OperationContext& context) {
      context.session.scheduler().SleepUntil(bert.NowNs() + random.Uniform(200'000));
      ASSERT_EQ(
          FreeExtent(context, bert.control(), extent, anna.identity.incarnation).status().code(),
          kRefused);
      ASSERT_TRUE(bert.AwaitFence(context, 2, anna.identity).ok());
      const std::string confirmed = BytesOf(cluster, extent);
      ASSERT_TRUE(bert.AwaitFence(context, 1, anna.identity).ok());
      context.session.scheduler().SleepUntil(bert.NowNs() + kMillisecondNs);
      EXPECT_TRUE(BytesOf(cluster, extent) == confirmed) << "something came after all";
      const auto extents = ListExtents(context, bert.control(), 2);
      ASSERT_EQ(extents->size(), 1u);
      EXPECT_EQ((*extents)[0].extent, extent);
      EXPECT_EQ((*extents)[0].holder, ClientLiveness::kDead);
      ASSERT_TRUE(*FreeExtent(context, bert.control(), extent, anna.identity.incarnation));
      // The server has kept two pieces now, of which the other one has rested already (rule W7).
      const auto other = AllocateExtent(context, bert.control(), 2, extent.bytes);
      ASSERT_TRUE(other.ok()) << other.status();
      ASSERT_TRUE(*FreeExtent(context, bert.control(), *other, bert.identity.incarnation));
      const auto again = AllocateExtent(context, bert.control(), 2, extent.bytes);
      ASSERT_TRUE(again.ok()) << again.status();
      next = *again;
      EXPECT_TRUE(IsZero(cluster, next));
      context.session.scheduler().SleepUntil(bert.NowNs() + kSecondNs);
    });
    anna.Await();
    ASSERT_EQ(next.bytes, extent.bytes);
    EXPECT_EQ(next.offset, extent.offset);
    EXPECT_TRUE(IsZero(cluster, next));
    EXPECT_GT(written, 0u);
    EXPECT_EQ(anna.Attach(2).code(), kRefused);
  }
}

// As long as an owner may take itself for one, by its own clock and what it knows of its pings, the
// catalog's server does not confirm its end; whatever is lost and repeated.
TEST(MemberMemoryTest, NoFenceIsConfirmedWhileItsLifeMayServe) {
  constexpr int64_t kServingNs = 100 * kMillisecondNs;
  uint64_t answered = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SimCluster::Options options = SmallCluster(seed, 100 * kSecondNs);
    options.sim.call_request_loss = options.sim.call_reply_loss = 0.2;
    options.sim.call_delay_ns = 4 * kMillisecondNs;
    SimCluster cluster(options);
    Random random(seed);
    Member anna(&cluster, 20 * kMillisecondNs), bert(&cluster, 20 * kMillisecondNs);
    anna.Join();
    bert.Join();
    int64_t serves_until_ns = 0;
    anna.Begin([&](OperationContext& context) {
      while (true) {
        const int64_t sent_ns = anna.NowNs();
        OperationContext ping(&context.session, sent_ns + 50 * kMillisecondNs);
        const auto lease = RenewServingLease(ping, anna.control(), 1);
        if (!lease.ok() && !absl::IsDeadlineExceeded(lease.status())) break;  // fenced, or dead
        if (lease.ok()) {
          EXPECT_EQ(*lease, kServingNs);
          serves_until_ns = sent_ns + *lease / 4 * 3;
          ++answered;
        }
        context.session.scheduler().SleepUntil(anna.NowNs() + random.Uniform(20 * kMillisecondNs));
      }
    });
    const bool dies = random.Chance(0.3);
    int64_t confirmed_ns = 0;
    bert.Run([&](OperationContext& context) {
      context.session.scheduler().SleepUntil(bert.NowNs() + random.Uniform(400 * kMillisecondNs));
      if (dies) return;
      ASSERT_TRUE(bert.AwaitFence(context, 1, anna.identity).ok());
      confirmed_ns = bert.NowNs();
      EXPECT_LE(serves_until_ns, confirmed_ns);
    });
    if (dies) {
      anna.Kill();
      bert.Run([&](OperationContext& context) {
        ASSERT_TRUE(bert.AwaitFence(context, 1, anna.identity).ok());
        confirmed_ns = bert.NowNs();
      });
    }
    anna.Await();
    EXPECT_LE(serves_until_ns, confirmed_ns) << "nor by an answer that came later";
  }
  EXPECT_GT(answered, 100u);
}

// What it had on a memory server that was restarted is gone, and what is there now is not freed.
TEST(MemberMemoryTest, AnExtentIsOfOneLifeOfItsServer) {
  SimCluster cluster(SmallCluster(1, 0));
  Member anna(&cluster);
  anna.Join();
  ASSERT_TRUE(anna.Attach(2).ok());
  LogExtent before;
  anna.Run([&](OperationContext& context) {
    before = *AllocateExtent(context, anna.control(), 2, 1000);
  });
  cluster.StartAgain(2);
  Member again(&cluster);
  again.Join();
  ASSERT_TRUE(again.Attach(2).ok());
  again.Run([&](OperationContext& context) {
    const auto now = AllocateExtent(context, again.control(), 2, 1000);
    ASSERT_TRUE(now.ok()) << now.status();
    EXPECT_EQ(now->offset, before.offset);
    EXPECT_EQ(now->id, before.id);
    EXPECT_NE(now->server_life, before.server_life);
    const auto freed = FreeExtent(context, again.control(), before, again.identity.incarnation);
    ASSERT_TRUE(freed.ok()) << freed.status();
    EXPECT_FALSE(*freed);
    EXPECT_EQ(ListExtents(context, again.control(), 2)->size(), 1u);
  });
}

// Its name is the library's: no user makes it, sees it, or drops it.
TEST(MemberMemoryTest, TreesWithADotAreNoUsers) {
  SimCluster cluster({});
  Member anna(&cluster);
  anna.Join();
  anna.Run([&](OperationContext& context) {
    const CreateTreeRequest request = {
        .name = std::string(kClusterTreeName),
        .shape = {.key_bytes_max = 246, .value_bytes_max = 128, .packet_bytes = 4096}};
    const auto created =
        anna.control().Call(context, 1, ControlOpcode::kCreateTree, EncodeCreateTree(request));
    ASSERT_TRUE(created.ok()) << created.status();
  });
  auto client = cluster.NewClient();
  EXPECT_TRUE(absl::IsInvalidArgument(client->CreateTree(".cluster", {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client->CreateTree(".", {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client->OpenTree(".cluster").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client->DropTree(".cluster")));
  EXPECT_TRUE(client->ListTrees()->empty());
  EXPECT_TRUE(client->CreateTree("a.b", {}).ok());
}

// Until the router knows them.
TEST(MemberMemoryTest, AnOwnedTreeIsOpenedAsWhatItIs) {
  SimCluster cluster({});
  Member anna(&cluster);
  anna.Join();
  anna.Run([&](OperationContext& context) {
    const CreateTreeRequest request = {
        .name = "owned",
        .shape = {.key_bytes_max = 8, .value_bytes_max = 8, .packet_bytes = 4096},
        .mode = TreeMode::kOwned};
    const auto created =
        anna.control().Call(context, 1, ControlOpcode::kCreateTree, EncodeCreateTree(request));
    ASSERT_TRUE(created.ok()) << created.status();
  });
  auto client = cluster.NewClient();
  {
    const auto tree = client->OpenTree("owned");
    ASSERT_TRUE(tree.ok()) << tree.status();
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(client->CreateTree("owned", {}).status()));
}

}  // namespace
}  // namespace pando

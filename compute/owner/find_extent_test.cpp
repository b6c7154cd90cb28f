#include "compute/owner/find_extent.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/epoch.h"
#include "common/base/time_constants.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/control.h"
#include "common/wire/owner_messages.h"
#include "common/wire/superblock.h"

namespace pando {
namespace {

// Says how much memory it has, and gives it, or says that this has to rest.
class FakeServer : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view bytes) override {
    const auto message = ParseMessage(bytes);
    EXPECT_TRUE(message.ok()) << message.status();
    ++asked;
    if (static_cast<ControlOpcode>(message->header.opcode) == ControlOpcode::kServerInfo) {
      ServerInfo info = {.free_bytes = free_bytes, .life = 1};
      Superblock& superblock = info.superblock;
      superblock.region_bytes = 64 << 20;
      superblock.root_offset = 4096;
      superblock.dead_offset = 1 << 19;
      superblock.chunk_offset = superblock.chunk_bytes = 1 << 20;
      superblock.chunk_count = 63;
      superblock.lock_words = 32'768;
      superblock.packet_bytes = 4096;
      SealSuperblock(&superblock);
      if (on_info) on_info();
      return EncodeReply(message->header, 1, EncodeServerInfo(info));
    }
    const uint64_t wanted = ParseExtentRequest(message->body)->bytes;
    if (wanted > free_bytes) {
      return EncodeErrorReply(message->header, 1, absl::ResourceExhaustedError("full"));
    }
    granted += rests_ns > 0 ? 0 : 1;
    return EncodeReply(
        message->header, 1,
        EncodeExtentGrant(rests_ns > 0 ? ExtentGrant{.life = 1, .ask_again_ns = rests_ns}
                                       : ExtentGrant{1, 8, 1 << 20, wanted, 0}));
  }
  void OnPeerGone(PeerId) override {}

  uint64_t free_bytes = 0;
  int64_t rests_ns = 0;
  int asked = 0, granted = 0;
  std::function<void()> on_info;  // while it says how much it has
};

class FindExtentTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 1 << 20;

  FindExtentTest() {
    for (const ServerId id : {1, 2, 3}) {
      world_.AddServer(id, 1 << 20, 4096);
      world_.SetHandler(id, &Server(id));
      Server(id).free_bytes = kBytes * id;
    }
    fabric_ = world_.NewFabric();
    session_ = std::make_unique<SessionContext>(*fabric_->Connect(0, 0), &epochs_, 4, 1);
  }
  ~FindExtentTest() override {
    session_.reset();
    fabric_.reset();
  }

  FakeServer& Server(ServerId id) { return servers_[id - size_t{1}]; }
  // Within a second. 0: none.
  ServerId Find(ServerId last = 0) {
    session_->scheduler().Spawn([this, last] {
      OperationContext context(session_.get(), session_->NowNs() + kSecondNs);
      found_ = search_.Find(context, kBytes, last);
    });
    session_->scheduler().Drain();
    return found_.ok() ? found_->server : ServerId{0};
  }

  sim::SimWorld world_{{.mode = sim::DeliveryMode::kWhole}};
  std::array<FakeServer, 3> servers_;
  ControlChannel control_;
  EpochDomain epochs_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<SessionContext> session_;
  ExtentSearch search_{&control_, {1, 2, 3}};
  absl::StatusOr<LogExtent> found_ = absl::UnknownError("not yet");
};

TEST_F(FindExtentTest, WhereThereIsMostRoom) {
  EXPECT_EQ(Find(), 3);
  EXPECT_EQ(search_.largest_bytes(), 3 * kBytes);
}

TEST_F(FindExtentTest, TheLastOneComesLastHoweverMuchRoomItHas) {
  EXPECT_EQ(Find(/*last=*/3), 2);
  Server(1).free_bytes = Server(2).free_bytes = 0;
  EXPECT_EQ(Find(/*last=*/3), 3);
}

TEST_F(FindExtentTest, WhoSaysNothingIsLeftOutAndAskedOnce) {
  for (const ServerId silent : {1, 2}) world_.PauseCalls(silent, true);
  EXPECT_EQ(Find(), 3);
  const int64_t now_ns = session_->NowNs();
  EXPECT_EQ(Find(), 3);
  EXPECT_LT(session_->NowNs() - now_ns, 10 * kMillisecondNs);
  Server(3).free_bytes = 0;
  EXPECT_FALSE(search_.all_answered());
  EXPECT_EQ(Find(), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(found_.status())) << found_.status();
}

// It grants one extent, and no other server a second one.
TEST_F(FindExtentTest, WhoFallsSilentWhileItIsAskedForMemoryIsWaitedFor) {
  Server(3).on_info = [this] {
    world_.PauseCalls(3, true);
    world_.At(world_.clock().NowNs() + 800 * kMillisecondNs, [this] {
      Server(3).on_info = nullptr;
      world_.PauseCalls(3, false);
    });
  };
  EXPECT_EQ(Find(), 3);
  EXPECT_EQ(Server(1).granted + Server(2).granted, 0);
  EXPECT_TRUE(search_.all_answered());
}

TEST_F(FindExtentTest, WhereNobodySaysAnythingAllAreAskedAgain) {
  for (const ServerId silent : {1, 2, 3}) world_.PauseCalls(silent, true);
  world_.At(world_.clock().NowNs() + 600 * kMillisecondNs, [&] { world_.PauseCalls(2, false); });
  EXPECT_EQ(Find(), 2);
  for (const ServerId silent : {1, 2, 3}) world_.PauseCalls(silent, true);
  EXPECT_EQ(Find(), 0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(found_.status())) << found_.status();
}

// Who promises memory keeps it for who asked: nobody else is asked meanwhile.
TEST_F(FindExtentTest, MemoryThatRestsIsWaitedFor) {
  Server(3).rests_ns = 700 * kMillisecondNs;
  world_.At(world_.clock().NowNs() + 600 * kMillisecondNs, [&] { Server(3).rests_ns = 0; });
  EXPECT_EQ(Find(), 3);
  EXPECT_EQ(Server(2).asked, 1) << "how much it has, and no more";
  Server(3).rests_ns = 2 * kSecondNs;
  EXPECT_EQ(Find(), 0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(found_.status())) << found_.status();
}

}  // namespace
}  // namespace pando

#include "compute/owner/log_room.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/epoch.h"
#include "common/base/time_constants.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/control.h"
#include "common/wire/owner_messages.h"
#include "common/wire/superblock.h"
#include "compute/owner/members.h"

namespace pando {
namespace {

constexpr uint64_t kBytes = 1 << 20;  // of the log

// Is full, but for what it keeps for who comes once an ended member is fenced there.
class FullServer : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view bytes) override {
    const auto message = ParseMessage(bytes);
    EXPECT_TRUE(message.ok()) << message.status();
    switch (static_cast<ControlOpcode>(message->header.opcode)) {
      case ControlOpcode::kServerInfo:
        return EncodeReply(message->header, 1, EncodeServerInfo(Info()));
      case ControlOpcode::kFence:
        has_room = true;
        return EncodeReply(message->header, 1, EncodeFenceReply({.confirmed = 1}));
      default:
        if (!has_room) {
          return EncodeErrorReply(message->header, 1, absl::ResourceExhaustedError("full"));
        }
        return EncodeReply(message->header, 1,
                           EncodeExtentGrant({1, 8, 1 << 20, kBytes, /*ask_again_ns=*/0}));
    }
  }
  void OnPeerGone(PeerId) override {}

  bool has_room = false;

 private:
  static ServerInfo Info() {
    ServerInfo info = {.used_bytes = 32 << 20, .life = 1};
    Superblock& superblock = info.superblock;
    superblock.region_bytes = 64 << 20;
    superblock.root_offset = 4096;
    superblock.dead_offset = 1 << 19;
    superblock.chunk_offset = superblock.chunk_bytes = 1 << 20;
    superblock.chunk_count = 63;
    superblock.lock_words = 32'768;
    superblock.packet_bytes = 4096;
    SealSuperblock(&superblock);
    return info;
  }
};

// Logs of members, which nobody changes.
class Logs final : public MapStore {
 public:
  void Add(MemberId member, ServerId server) {
    const LogEntry log = {.stamp = {member.incarnation, 1},
                          .extent = {server, /*server_life=*/1, 1 << 20, kBytes, /*id=*/1},
                          .epoch = 1};
    entries_[MemberKey(LogEntry::kKind, member)] = Encode(log);
  }
  absl::Status Write(OperationContext&, const WriteOperation&, std::string*) override {
    return absl::InternalError("who looks for room changes nothing");
  }
  absl::Status Scan(OperationContext&, const KeyRange& range, bool, size_t,
                    std::vector<KeyValue>* rows) override {
    for (const auto& [key, value] : entries_) {
      if (!range.low.IsAbove(key) && range.high.IsAbove(key)) rows->push_back({key, value});
    }
    return absl::OkStatus();
  }

 private:
  std::map<std::string, std::string> entries_;
};

// The first memory server is full; the second one may have room, and says nothing. Many members
// have ended.
class LogRoomTest : public testing::Test {
 protected:
  static constexpr ServerId kFull = 1, kSilent = 2;
  static constexpr uint16_t kEnded = 8;

  LogRoomTest() {
    for (const ServerId id : {kFull, kSilent}) {
      world_.AddServer(id, 1 << 20, 4096);
      world_.SetHandler(id, &servers_[id - size_t{1}]);
      members_.Publish(id, /*life=*/1, /*added=*/0);
    }
    world_.PauseCalls(kSilent, true);
    fabric_ = world_.NewFabric();
    session_ = std::make_unique<SessionContext>(*fabric_->Connect(0, 0), &epochs_, 4, 1);
    session_->set_membership(&members_);
  }
  ~LogRoomTest() override {
    session_.reset();
    fabric_.reset();
  }

  FullServer& full() { return servers_[0]; }
  static MemberId Ended(uint16_t i) { return {i, uint32_t{10} + i}; }
  absl::StatusOr<LogExtent> Obtain() {
    LogRoom room(
        {.self = {99, 99},
         .wished_bytes = kBytes,
         .control = &control_,
         .members = &members_,
         .map = &logs_,
         .is_gone = [](ServerId) { return false; },
         .list_ended =
             [](OperationContext&) {
               std::vector<MemberId> ended;
               for (uint16_t i = 1; i <= kEnded; ++i) ended.push_back(Ended(i));
               return ended;
             },
         .bring_to_leaves = [this](OperationContext& context,
                                   MemberId ended) { Spend(context, ended.compute_server); },
         .free_lost = [this](OperationContext& context) { Spend(context, 0); }});
    room.LimitPatience(0);
    absl::StatusOr<LogExtent> extent = absl::UnknownError("not yet");
    session_->scheduler().Spawn([&] {
      OperationContext context(session_.get(), session_->NowNs() + 2 * kSecondNs);
      extent = room.Obtain(context);
    });
    session_->scheduler().Drain();
    return extent;
  }

  sim::SimWorld world_{{.mode = sim::DeliveryMode::kWhole, .call_delay_ns = 10 * kMillisecondNs}};
  std::array<FullServer, 2> servers_;
  Membership members_;
  Logs logs_;
  ControlChannel control_;
  EpochDomain epochs_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<SessionContext> session_;
  std::map<uint16_t, int64_t> had_ns_;  // for a member's records; 0: for logs that nothing names

 private:
  // All of its time. The last one makes room.
  void Spend(OperationContext& context, uint16_t ended) {
    had_ns_[ended] = context.deadline_ns() - session_->NowNs();
    session_->scheduler().SleepUntil(context.deadline_ns());
    full().has_room = ended == 0;
  }
};

// However many have their logs where nobody answers.
TEST_F(LogRoomTest, AnEndedMemberWhoseServerIsSilentLeavesTimeForThoseBehind) {
  for (uint16_t i = 1; i <= kEnded; ++i) logs_.Add(Ended(i), i < kEnded ? kSilent : kFull);
  const absl::StatusOr<LogExtent> extent = Obtain();
  EXPECT_TRUE(extent.ok()) << extent.status();
  EXPECT_TRUE(had_ns_.empty()) << "or this shows nothing";
}

// Nor is all of it spent on one whose records come to no leaves.
TEST_F(LogRoomTest, AnEndedMemberThatCannotBeRecoveredLeavesTimeForThoseBehind) {
  const absl::StatusOr<LogExtent> extent = Obtain();
  ASSERT_EQ(had_ns_.size(), kEnded + 1u);
  for (const auto& [ended, had_ns] : had_ns_) {
    EXPECT_GE(had_ns, 30 * kMillisecondNs) << ended;
  }
  ASSERT_TRUE(extent.ok()) << extent.status();
  EXPECT_EQ(extent->bytes, kBytes);
}

}  // namespace
}  // namespace pando

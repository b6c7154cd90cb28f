// Calls about extents, fences and serving leases to memory servers that answer what the test says.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/epoch.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/owner_messages.h"
#include "compute/core/extent_calls.h"
#include "compute/core/fence_calls.h"

namespace pando {
namespace {

// Gives the next of `replies` to each request, and keeps what was asked.
class ScriptedServer : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view bytes) override {
    const auto message = ParseMessage(bytes);
    EXPECT_TRUE(message.ok()) << message.status();
    asked.emplace_back(static_cast<ControlOpcode>(message->header.opcode), message->body);
    if (replies.empty()) {
      return EncodeErrorReply(message->header, 1, absl::InternalError("nothing more to say"));
    }
    const std::string body = replies.front();
    replies.pop_front();
    return EncodeReply(message->header, 1, body);
  }
  void OnPeerGone(PeerId) override {}

  std::deque<std::string> replies;
  std::vector<std::pair<ControlOpcode, std::string>> asked;
};

class OwnerCallsTest : public testing::Test {
 protected:
  static constexpr auto kLoss = absl::StatusCode::kDataLoss;

  OwnerCallsTest() {
    world_.AddServer(1, 1 << 20, 4096);
    world_.SetHandler(1, &server_);
    fabric_ = world_.NewFabric();
    session_ = std::make_unique<SessionContext>(*fabric_->Connect(0, 0), &epochs_, 4, 1);
  }
  ~OwnerCallsTest() override {
    session_.reset();
    fabric_.reset();
  }

  // The result of a call that has a second.
  template <typename Call>
  auto Run(Call call) {
    decltype(call(std::declval<OperationContext&>())) result;
    session_->scheduler().Spawn([&] {
      OperationContext context(session_.get(), session_->NowNs() + kSecondNs);
      result = call(context);
    });
    session_->scheduler().Drain();
    return result;
  }
  absl::StatusOr<LogExtent> Allocate(uint64_t bytes) {
    return Run(
        [&](OperationContext& context) { return AllocateExtent(context, control_, 1, bytes); });
  }
  absl::StatusOr<std::vector<HeldExtent>> List() {
    return Run([&](OperationContext& context) { return ListExtents(context, control_, 1); });
  }
  absl::Status Await() {
    return Run([&](OperationContext& context) { return AwaitFence(context, control_, 1, 3, 4); });
  }

  sim::SimWorld world_{{.mode = sim::DeliveryMode::kWhole}};
  ScriptedServer server_;
  ControlChannel control_;
  EpochDomain epochs_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<SessionContext> session_;
};

TEST_F(OwnerCallsTest, AnExtentIsAskedForUntilItIsThere) {
  const std::string later = EncodeExtentGrant({.life = 7, .ask_again_ns = 5 * kMillisecondNs});
  server_.replies = {later, later, EncodeExtentGrant({7, 8, 1 << 20, 2 << 20, 0})};
  const int64_t began_ns = session_->NowNs();
  const auto extent = Allocate(2 << 20);
  ASSERT_TRUE(extent.ok()) << extent.status();
  EXPECT_EQ(*extent, (LogExtent{1, 7, 1 << 20, 2 << 20, 8}));
  EXPECT_GE(session_->NowNs() - began_ns, 10 * kMillisecondNs);
  ASSERT_EQ(server_.asked.size(), 3u);
  for (const auto& [opcode, body] : server_.asked) {
    EXPECT_EQ(opcode, ControlOpcode::kAllocateExtent);
    EXPECT_EQ(ParseExtentRequest(body)->bytes, uint64_t{2} << 20);
  }
}

TEST_F(OwnerCallsTest, WhatRestsForLongerThanTheDeadlineIsNotWaitedFor) {
  server_.replies = {EncodeExtentGrant({.life = 7, .ask_again_ns = 2 * kSecondNs})};
  const int64_t began_ns = session_->NowNs();
  EXPECT_EQ(Allocate(1).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(session_->NowNs() - began_ns, kSecondNs);
}

TEST_F(OwnerCallsTest, RepliesAreChecked) {
  server_.replies = {EncodeExtentGrant({7, 8, 1 << 20, 1 << 20, 0})};
  EXPECT_EQ(Allocate(2 << 20).status().code(), kLoss) << "less than was asked for";
  server_.replies = {"?"};
  EXPECT_EQ(Allocate(1).status().code(), kLoss);
  server_.replies = {"?"};
  EXPECT_EQ(List().status().code(), kLoss);
  server_.replies = {"?"};
  EXPECT_EQ(Await().code(), kLoss);
  const auto renew = [&] {
    return Run([&](OperationContext& context) { return RenewServingLease(context, control_, 1); });
  };
  server_.replies = {"?"};
  EXPECT_EQ(renew().status().code(), kLoss);
  server_.replies = {EncodeServingLease(1500)};
  EXPECT_EQ(*renew(), 1500 * kMicrosecondNs);
}

TEST_F(OwnerCallsTest, AListIsOfOneLifeAndGetsOn) {
  const ListedExtent a = {8, 1 << 20, 1 << 20, 3, 4, ClientLiveness::kJoined};
  const ListedExtent b = {9, 4 << 20, 1 << 20, 5, 6, ClientLiveness::kLeft};
  server_.replies = {EncodeExtentList({7, 1, {a}}), EncodeExtentList({7, 0, {b}})};
  const auto extents = List();
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_EQ(extents->size(), 2u);
  EXPECT_EQ((*extents)[1].extent, (LogExtent{1, 7, 4 << 20, 1 << 20, 9}));
  EXPECT_EQ((*extents)[1].compute_server, 5);
  EXPECT_EQ((*extents)[1].incarnation, 6u);
  EXPECT_EQ((*extents)[1].holder, ClientLiveness::kLeft);
  EXPECT_EQ(ParseExtentQuery(server_.asked.at(1).second)->after_offset, uint64_t{1} << 20);

  server_.replies = {EncodeExtentList({7, 1, {a}}), EncodeExtentList({8, 0, {b}})};
  EXPECT_EQ(List().status().code(), absl::StatusCode::kUnavailable) << "restarted in between";
  server_.replies = {EncodeExtentList({7, 1, {b}}), EncodeExtentList({7, 1, {a}})};
  EXPECT_EQ(List().status().code(), kLoss) << "it would have no end";
}

TEST_F(OwnerCallsTest, AFreeSaysWhichExtentOfWhichLife) {
  server_.replies = {EncodeExtentFreed(true)};
  const auto freed = Run([&](OperationContext& context) {
    return FreeExtent(context, control_, {1, 7, 1 << 20, 2 << 20, 8}, 4);
  });
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_TRUE(*freed);
  const auto asked = ParseExtentFree(server_.asked.at(0).second);
  EXPECT_EQ(asked->life, 7u);
  EXPECT_EQ(asked->id, 8u);
  EXPECT_EQ(asked->incarnation, 4u);
}

TEST_F(OwnerCallsTest, AFenceIsAskedForUntilItIsConfirmed) {
  server_.replies = {EncodeFenceReply({0, kMillisecondNs}), EncodeFenceReply({0, kMillisecondNs}),
                     EncodeFenceReply({1, 0})};
  EXPECT_TRUE(Await().ok());
  ASSERT_EQ(server_.asked.size(), 3u);
  const auto identity = ParseJoinReply(server_.asked[2].second);
  EXPECT_EQ(identity->compute_server, 3);
  EXPECT_EQ(identity->incarnation, 4u);
  server_.replies = {EncodeFenceReply({0, 2 * kSecondNs})};
  EXPECT_EQ(Await().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Await().code(), absl::StatusCode::kInternal) << "what the server says";
}

}  // namespace
}  // namespace pando

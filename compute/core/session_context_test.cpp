// What an operation does about memory servers that come, and come back, while it waits (rule R8).
#include "compute/core/session_context.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "common/fabric/server_index.h"
#include "common/sched/fake_endpoint.h"

namespace pando {
namespace {

constexpr ServerId kServer = 7;

// Is connected to the server from the `added`th on that were added.
class LateEndpoint final : public FakeEndpoint {
 public:
  LateEndpoint(uint32_t added, int* reached)
      : FakeEndpoint(Mode::kImmediate), connected_at_(added), reached_(reached) {}
  void AdoptServers(uint32_t added) override { added_ = added; }

 private:
  void DoPost(Chain* chain) override {
    const int64_t now_ns = clock().NowNs();
    chain->MarkPosted(now_ns);
    const bool connected = added_ >= connected_at_;
    if (connected) ++*reached_;
    chain->Complete(connected ? absl::OkStatus() : UnknownServerError(kServer, "verb"), now_ns);
  }

  const uint32_t connected_at_;
  int* const reached_;
  uint32_t added_ = 0;
};

class SessionContextTest : public testing::Test {
 protected:
  void Start(uint32_t connected_at) {
    session_ = std::make_unique<SessionContext>(
        std::make_unique<LateEndpoint>(connected_at, &reached_), &epochs_, 4, 1);
    session_->set_membership(&members_);
  }
  void Run(std::function<void(OperationContext&)> job) {
    session_->scheduler().Spawn([this, job = std::move(job)] {
      OperationContext context(session_.get(), session_->NowNs() + 10 * kSecondNs);
      context.fate = &fate_;
      job(context);
    });
    session_->scheduler().Drain();
  }
  absl::Status Add(OperationContext& context) {
    Chain chain(kServer);
    chain.FetchAdd(MemorySpace::kMain, 0, 1);
    return context.Await(&chain);
  }
  // Another life of the server, without what the tree had on those before.
  void ComesBackEmpty(uint32_t added) {
    fate_.Lose(absl::DataLossError("lost"));
    members_.Publish(kServer, 1 + added, added);
  }

  EpochDomain epochs_;
  Membership members_;
  TreeFate fate_;
  int reached_ = 0;  // chains that a server has executed
  std::unique_ptr<SessionContext> session_;
};

TEST_F(SessionContextTest, WaitsForAServerThatHasJustCome) {
  Start(1);
  members_.StartLooking();
  std::thread looks([this] {
    ASSERT_TRUE(members_.AwaitLook(60'000));
    members_.Publish(kServer, 1, 1);
    members_.EndLook();
  });
  absl::Status status;
  Run([&](OperationContext& context) { status = Add(context); });
  looks.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(reached_, 1);
}

TEST_F(SessionContextTest, WhatComesIsNotTakenForWhatTheTreeHadThere) {
  Start(1);
  members_.StartLooking();
  std::thread looks([this] {
    ASSERT_TRUE(members_.AwaitLook(60'000));
    ComesBackEmpty(1);
    members_.EndLook();
  });
  absl::Status status;
  Run([&](OperationContext& context) { status = Add(context); });
  looks.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(reached_, 0) << "it may have been a WRITE to what is somebody else's by now";
}

TEST_F(SessionContextTest, APartOfAnOperationKnowsOfTheTreesFate) {
  Start(0);
  absl::Status status;
  Run([&](OperationContext& context) {
    OperationContext part(context, context.deadline_ns());
    ComesBackEmpty(1);
    session_->AdoptServers();
    status = Add(part);
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(reached_, 0);
}

}  // namespace
}  // namespace pando

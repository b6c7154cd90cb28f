#include "common/fabric/link/call_list.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pando {
namespace {

// Numbers requests from 1 on, until it is full or gone.
class FakeConnections : public CallList::Connections {
 public:
  absl::StatusOr<uint32_t> SendRequest(ServerId server, std::string_view request) override {
    if (gone) return absl::UnavailableError("gone");
    if (full) return 0u;
    sent.emplace_back(server, request);
    return static_cast<uint32_t>(sent.size());
  }
  void ForgetRequest(uint32_t sequence) override { forgotten.insert(sequence); }

  bool full = false, gone = false;
  std::vector<std::pair<ServerId, std::string>> sent;
  std::set<uint32_t> forgotten;
};

class CallListTest : public testing::Test {
 protected:
  static constexpr size_t kRequestBytesMax = 100;

  PendingCall Call(std::string request, int64_t deadline_ns = 1'000) {
    PendingCall call;
    call.server = 4;
    call.request = std::move(request);
    call.deadline_ns = deadline_ns;
    return call;
  }

  FakeConnections connections_;
  CallList calls_{&connections_, kRequestBytesMax};
};

TEST_F(CallListTest, RepliesReachTheirCalls) {
  PendingCall a = Call("a"), b = Call("b"), c = Call("c");
  for (PendingCall* call : {&a, &b, &c}) calls_.Start(call);
  EXPECT_EQ(calls_.size(), 3u);
  EXPECT_EQ(connections_.sent.size(), 3u);
  EXPECT_EQ(connections_.sent[1], (std::pair<ServerId, std::string>(4, "b")));
  EXPECT_EQ(calls_.NextDueNs(kNeverNs, 0), 1'000);
  calls_.Answer(2, absl::OkStatus(), true, "B");
  calls_.Answer(3, absl::NotFoundError("no c"), true, "");
  calls_.Answer(77, absl::OkStatus(), true, "nobody's");
  EXPECT_EQ(calls_.NextDueNs(kNeverNs, 0), 0) << "something is to be finished";
  EXPECT_FALSE(b.done) << "only Finish() completes";
  EXPECT_EQ(calls_.Finish(1), 2u);
  EXPECT_FALSE(a.done);
  EXPECT_TRUE(b.done && b.status.ok());
  EXPECT_EQ(b.reply, "B");
  EXPECT_TRUE(c.done && absl::IsNotFound(c.status));
  EXPECT_EQ(calls_.size(), 1u);
}

TEST_F(CallListTest, LateOnesEndAtTheirDeadline) {
  PendingCall call = Call("late", 500);
  calls_.Start(&call);
  EXPECT_EQ(calls_.Finish(499), 0u);
  EXPECT_EQ(calls_.Finish(500), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(call.status)) << call.status;
  EXPECT_TRUE(connections_.forgotten.contains(1));
  calls_.Answer(1, absl::OkStatus(), true, "too late");
  EXPECT_EQ(calls_.Finish(600), 0u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(call.status));
}

TEST_F(CallListTest, WhatCouldNotBeSentIsTriedAgain) {
  connections_.full = true;
  PendingCall call = Call("wait", kSecondNs), never = Call("never", 5);
  calls_.Start(&call);
  calls_.Start(&never);
  EXPECT_EQ(calls_.NextDueNs(kNeverNs, 3), 5);
  EXPECT_EQ(calls_.Finish(5), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(never.status));
  EXPECT_TRUE(connections_.forgotten.empty()) << "it was never sent";
  EXPECT_EQ(calls_.NextDueNs(kNeverNs, 5), 5 + kMillisecondNs);
  connections_.full = false;
  EXPECT_EQ(calls_.Finish(6), 0u);
  ASSERT_EQ(connections_.sent.size(), 1u);
  calls_.Answer(1, absl::OkStatus(), true, "at last");
  EXPECT_EQ(calls_.Finish(7), 1u);
  EXPECT_EQ(call.reply, "at last");
  // The connection may end while a request waits for it.
  connections_.full = true;
  calls_.Start(&call);
  connections_.gone = true;
  EXPECT_EQ(calls_.Finish(8), 1u);
  EXPECT_TRUE(absl::IsUnavailable(call.status));
}

TEST_F(CallListTest, RefusalsAreNotSent) {
  PendingCall large = Call(std::string(kRequestBytesMax + 1, 'x'));
  calls_.Start(&large);
  EXPECT_FALSE(large.done) << "as every call it ends in Finish()";
  EXPECT_EQ(calls_.Finish(0), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(large.status)) << large.status;
  EXPECT_TRUE(connections_.sent.empty());

  std::vector<PendingCall> many(CallList::kCallsMax + 1, Call("m"));
  for (PendingCall& call : many) calls_.Start(&call);
  EXPECT_EQ(calls_.Finish(0), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(many.back().status)) << many.back().status;
  EXPECT_EQ(calls_.size(), CallList::kCallsMax);
}

TEST_F(CallListTest, SomethingElseThanAReplyIsDataLoss) {
  PendingCall call = Call("x");
  calls_.Start(&call);
  calls_.Answer(1, absl::OkStatus(), false, "");
  EXPECT_EQ(calls_.Finish(0), 1u);
  EXPECT_TRUE(absl::IsDataLoss(call.status)) << call.status;
}

TEST_F(CallListTest, CalleesMayCall) {
  struct Chain {
    CallList* calls;
    PendingCall next;
  } chain = {&calls_, Call("next")};
  PendingCall first = Call("first");
  first.context = &chain;
  first.on_done = [](PendingCall*, void* context) {
    auto* const chain = static_cast<Chain*>(context);
    chain->calls->Start(&chain->next);
  };
  calls_.Start(&first);
  calls_.Answer(1, absl::OkStatus(), true, "");
  EXPECT_EQ(calls_.Finish(0), 1u);
  EXPECT_EQ(calls_.size(), 1u);
  EXPECT_FALSE(chain.next.done);
  EXPECT_EQ(connections_.sent.back().second, "next");
}

}  // namespace
}  // namespace pando

// The suite's tests of two-sided calls, peers, the death of servers, and waiting.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "common/fabric/conformance.h"
#include "common/wire/control.h"
#include "gmock/gmock.h"

namespace pando {

using testing::HasSubstr;

namespace {

void ExpectUnavailable(const absl::Status& status, ServerId server) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("server " + std::to_string(server)));
}

}  // namespace

// The answer to a call that succeeds.
std::string FabricConformance::Ask(Endpoint& endpoint, ServerId server, std::string request) {
  PendingCall call;
  call.server = server;
  call.request = std::move(request);
  endpoint.Call(&call);
  Finish(endpoint, call);
  EXPECT_TRUE(call.status.ok()) << call.status;
  return call.reply;
}

TEST_P(FabricConformance, CallsAreAnswered) {
  auto endpoint = Connect();
  std::string binary;
  for (int i = 0; i < 256; ++i) binary.push_back(static_cast<char>(i));
  const std::string longest(kControlBodyBytesMax, 'x');
  for (const std::string& request : {std::string("hello"), binary, longest}) {
    for (const ServerId server : {ServerId{1}, ServerId{2}}) {
      PendingCall call;
      call.server = server;
      call.request = request;
      endpoint->Call(&call);
      Finish(*endpoint, call);
      ASSERT_TRUE(call.status.ok()) << call.status;
      EXPECT_EQ(call.reply, "echo:" + request);
    }
  }
  EXPECT_EQ(endpoint->meter().calls, 6u);
}

TEST_P(FabricConformance, ManyCallsAreUnderWayAtOnce) {
  constexpr size_t kCalls = 100;
  auto endpoint = Connect();
  std::vector<PendingCall> calls(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    calls[i].server = static_cast<ServerId>(1 + i % 2);
    calls[i].request = std::to_string(i) + std::string(i * 20, '.');
    endpoint->Call(&calls[i]);
  }
  EXPECT_EQ(endpoint->in_flight(), kCalls);
  for (PendingCall& call : calls) Finish(*endpoint, call);
  EXPECT_EQ(endpoint->in_flight(), 0u);
  for (const PendingCall& call : calls) {
    EXPECT_TRUE(call.status.ok()) << call.status;
    EXPECT_EQ(call.reply, "echo:" + call.request);
  }
}

TEST_P(FabricConformance, CallsTellTheirCallerOnce) {
  auto endpoint = Connect();
  int told = 0;
  PendingCall call;
  call.server = kServer;
  call.request = "x";
  call.context = &told;
  call.on_done = [](PendingCall* call, void* context) {
    EXPECT_TRUE(call->done);
    ++*static_cast<int*>(context);
  };
  endpoint->Call(&call);
  EXPECT_EQ(told, 0) << "calls complete in Poll()";
  Finish(*endpoint, call);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(endpoint->Poll(), 0u);
}

TEST_P(FabricConformance, OverlongCallsAreRefused) {
  auto endpoint = Connect();
  PendingCall call;
  call.server = kServer;
  call.request.assign(1 << 20, 'x');
  endpoint->Call(&call);
  Finish(*endpoint, call);
  EXPECT_EQ(call.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(call.status.message()), HasSubstr("server 1"));
}

TEST_P(FabricConformance, CallsEndAtTheirDeadline) {
  auto endpoint = Connect();
  Chain first(kServer);  // connects, where that takes the server's help (fabric.h, 7)
  first.FetchAdd(MemorySpace::kMain, 0, 1);
  Run(*endpoint, first);
  ASSERT_TRUE(first.ok()) << first.status();
  if (!cluster_->PauseCalls(kServer)) GTEST_SKIP() << "this backend always answers";
  for (const int64_t timeout_ns : {int64_t{0}, 50 * kMillisecondNs}) {
    const int64_t start_ns = endpoint->clock().NowNs();
    PendingCall call;
    call.server = kServer;
    call.request = "late";
    call.deadline_ns = start_ns + timeout_ns;
    endpoint->Call(&call);
    Finish(*endpoint, call);
    EXPECT_EQ(call.status.code(), absl::StatusCode::kDeadlineExceeded) << call.status;
    EXPECT_THAT(std::string(call.status.message()), HasSubstr("server 1"));
    EXPECT_GE(endpoint->clock().NowNs() - start_ns, timeout_ns);
    EXPECT_LT(endpoint->clock().NowNs() - start_ns, timeout_ns + 2 * kSecondNs);
  }
  // Chains need nobody's processor, and the other server answers.
  Chain chain(kServer);
  chain.FetchAdd(MemorySpace::kMain, 0, 1);
  Run(*endpoint, chain);
  EXPECT_TRUE(chain.ok());
  PendingCall other;
  other.server = 2;
  other.request = "2";
  endpoint->Call(&other);
  Finish(*endpoint, other);
  EXPECT_TRUE(other.status.ok()) << other.status;
  // A reply that comes late is nobody's.
  cluster_->ResumeCalls(kServer);
  EXPECT_EQ(Ask(*endpoint, kServer, "now"), "echo:now");
}

TEST_P(FabricConformance, AProcessIsOnePeerUntilItLeaves) {
  auto a = Connect(0), b = Connect(0), c = Connect(1);
  for (Endpoint* endpoint : {a.get(), b.get(), c.get()}) {
    Ask(*endpoint, kServer, "who am I?");
  }
  EXPECT_EQ(handlers_[kServer]->callers().size(), 2u);
  a.reset();
  b.reset();
  EXPECT_TRUE(handlers_[kServer]->gone().empty());
  cluster_->CloseFabric(0);
  // The news takes its time: calls on the other connection let it pass.
  for (int i = 0; i < 1000 && handlers_[kServer]->gone().empty(); ++i) {
    PendingCall call;
    call.server = kServer;
    call.request = "still here";
    c->Call(&call);
    Finish(*c, call);
  }
  ASSERT_EQ(handlers_[kServer]->gone().size(), 1u);
  EXPECT_TRUE(handlers_[kServer]->callers().contains(handlers_[kServer]->gone()[0]));
}

TEST_P(FabricConformance, AHandlerIsCalledAtTheTimesItAskedForWithoutAnyCall) {
  auto endpoint = Connect();
  constexpr int kTimers = 3;
  handlers_[kServer]->AskForTimers(kTimers, 5 * kMillisecondNs);
  const int64_t start_ns = endpoint->clock().NowNs();
  PendingCall call;
  call.server = kServer;
  call.request = "the only one";
  endpoint->Call(&call);
  Finish(*endpoint, call);
  while (handlers_[kServer]->timers_passed() < kTimers) {
    const int64_t now_ns = endpoint->clock().NowNs();
    ASSERT_LT(now_ns - start_ns, 30 * kSecondNs);
    endpoint->Wait(now_ns + kMillisecondNs);
  }
  EXPECT_GE(endpoint->clock().NowNs() - start_ns, kTimers * 5 * kMillisecondNs);
}

// --- The death of servers, and of connections to them.

void FabricConformance::RunUntilUnavailable(Endpoint& endpoint, ServerId server) {
  const int64_t start_ns = endpoint.clock().NowNs();
  Chain chain;
  do {
    chain.Reset(server);
    chain.FetchAdd(MemorySpace::kMain, 0, 0);
    Run(endpoint, chain);
    ASSERT_LT(endpoint.clock().NowNs() - start_ns, 2 * kSecondNs);
    if (chain.ok()) endpoint.Wait(endpoint.clock().NowNs() + kMillisecondNs);
  } while (chain.ok());
  ExpectUnavailable(chain.status(), server);
}

void FabricConformance::ExpectStaysUnavailable(Endpoint& endpoint, ServerId server) {
  LocalBuffer buffer = Buffer(endpoint, 64);
  for (int round = 0; round < 4; ++round) {
    for (const MemorySpace space : {MemorySpace::kMain, MemorySpace::kLocks}) {
      Chain read(server), write(server), compare_swap(server), fetch_add(server);
      read.Read(space, 0, buffer);
      write.Write(space, 0, buffer);
      compare_swap.CompareSwap(space, 0, 0, 1);
      fetch_add.FetchAdd(space, 0, 1);
      // Side by side: a chain does not get through because another one is failing.
      for (Chain* chain : {&read, &write, &compare_swap, &fetch_add}) endpoint.Post(chain);
      for (Chain* chain : {&read, &write, &compare_swap, &fetch_add}) {
        Finish(endpoint, *chain);
        ExpectUnavailable(chain->status(), server);
      }
    }
  }
}

TEST_P(FabricConformance, ADeadServerIsUnavailableAndTheOthersGoOn) {
  auto endpoint = Connect();
  if (!cluster_->PauseCalls(2)) GTEST_LOG_(INFO) << "no call will be under way";
  PendingCall under_way;
  under_way.server = 2;
  under_way.request = "never answered";
  endpoint->Call(&under_way);
  const int64_t stopped_ns = endpoint->clock().NowNs();
  cluster_->StopServer(2);
  Finish(*endpoint, under_way);
  ASSERT_NO_FATAL_FAILURE(RunUntilUnavailable(*endpoint, 2));
  if (!under_way.status.ok()) ExpectUnavailable(under_way.status, 2);
  PendingCall call;
  call.server = 2;
  call.request = "anybody there?";
  endpoint->Call(&call);
  Finish(*endpoint, call);
  ExpectUnavailable(call.status, 2);
  EXPECT_LT(endpoint->clock().NowNs() - stopped_ns, 2 * kSecondNs);

  Chain other(1);
  other.FetchAdd(MemorySpace::kMain, 0, 1);
  Run(*endpoint, other);
  EXPECT_TRUE(other.ok()) << other.status();
  // New endpoints can reach what is left.
  auto later = Connect();
  ASSERT_NE(later, nullptr);
  other.Reset(1);
  other.FetchAdd(MemorySpace::kMain, 0, 1);
  Run(*later, other);
  EXPECT_TRUE(other.ok()) << other.status();
}

TEST_P(FabricConformance, ADeadServerStaysUnavailable) {
  auto endpoint = Connect();
  cluster_->StopServer(2);
  ASSERT_NO_FATAL_FAILURE(RunUntilUnavailable(*endpoint, 2));
  ExpectStaysUnavailable(*endpoint, 2);
}

TEST_P(FabricConformance, AServerThatHasCutTheClientOffStaysUnavailable) {
  PeerFence* const fence = cluster_->fence(kServer);
  if (fence == nullptr) GTEST_SKIP() << "nobody who lives is cut off there";
  auto endpoint = Connect(0), other = Connect(1);
  PendingCall call;
  call.server = kServer;
  call.request = "who am I?";
  endpoint->Call(&call);
  Finish(*endpoint, call);
  SetWord(MemorySpace::kMain, 0, 7);
  fence->CutOff(*handlers_[kServer]->callers().begin());
  ASSERT_NO_FATAL_FAILURE(RunUntilUnavailable(*endpoint, kServer));
  ExpectStaysUnavailable(*endpoint, kServer);
  EXPECT_EQ(Word(MemorySpace::kMain, 0), 7u);
  Chain chain(kServer);
  const Verb& found = chain.FetchAdd(MemorySpace::kMain, 0, 1);
  Run(*other, chain);
  EXPECT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(found.old_value, 7u);
}

TEST_P(FabricConformance, WakeEndsTheNextWait) {
  auto endpoint = Connect();
  const int64_t start_ns = endpoint->clock().NowNs();
  for (int i = 0; i < 10; ++i) {
    endpoint->Wake();
    endpoint->Wait(start_ns + 60 * kSecondNs);
  }
  EXPECT_LT(endpoint->clock().NowNs() - start_ns, 30 * kSecondNs);
}

TEST_P(FabricConformance, WakeEndsAWaitOnAnotherThread) {
  if (!cluster_->threads_allowed()) GTEST_SKIP() << "one thread drives everything";
  auto endpoint = Connect();
  std::atomic<int> returned{0};
  constexpr int kTimes = 50;
  std::thread sleeper([&] {
    for (int i = 0; i < kTimes; ++i) {
      endpoint->Wait(endpoint->clock().NowNs() + 60 * kSecondNs);
      returned.fetch_add(1);
    }
  });
  const int64_t start_ns = endpoint->clock().NowNs();
  while (returned.load() < kTimes) {
    endpoint->Wake();
    std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_LT(endpoint->clock().NowNs() - start_ns, 30 * kSecondNs);
}

TEST_P(FabricConformance, WaitIsBounded) {
  if (!cluster_->threads_allowed()) GTEST_SKIP() << "time is events there";
  auto endpoint = Connect();
  for (const int64_t wait_ns : {int64_t{-5}, int64_t{0}, int64_t{5'000}, 20 * kMillisecondNs}) {
    const int64_t start_ns = endpoint->clock().NowNs();
    endpoint->Wait(start_ns + wait_ns);
    EXPECT_LT(endpoint->clock().NowNs() - start_ns, 2 * kSecondNs);
  }
}

}  // namespace pando

#include "common/fabric/verbs/queue_pair_opener.h"

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/fabric/verbs/address_test_util.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

constexpr int64_t kAttemptNs = 500 * kMillisecondNs;  // the kernel's second, shorter

class FakePair : public ServedPair {
 public:
  explicit FakePair(const QueuePairAddress& remote) : address_(remote) {}
  QueuePairAddress address() const override { return address_; }

 private:
  const QueuePairAddress address_;
};

// Nobody answers in network 66.
ServedPairOr FakeOpen(const QueuePairOpener::Request& request) {
  if (request.remote.gid[10] != 66) return std::make_unique<FakePair>(request.remote);
  std::this_thread::sleep_for(std::chrono::nanoseconds(kAttemptNs));
  return absl::UnavailableError("find its peer");
}

class QueuePairOpenerTest : public testing::Test {
 protected:
  void StartDead(PeerId peer, int host, const std::string& origin = "mallory") {
    ASSERT_TRUE(opener_.Start({peer, origin, FakeAddress(66, host)}).ok());
  }
  // How long until the peer has its result.
  int64_t Await(PeerId peer, bool* ok = nullptr) {
    const int64_t begun_ns = RealClock().NowNs();
    for (;;) {
      for (const auto& result : opener_.TakeDone()) {
        done_.insert(result.peer);
        if (result.peer == peer && ok != nullptr) *ok = result.pair.ok();
      }
      if (done_.contains(peer)) return RealClock().NowNs() - begun_ns;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::atomic<int> woken_{0};
  std::set<PeerId> done_;
  QueuePairOpener opener_{FakeOpen, [this] { ++woken_; }};
};

TEST_F(QueuePairOpenerTest, WhoIsReachedIsConnectedAndWhoIsNotIsToldWhy) {
  bool ok = false;
  ASSERT_TRUE(opener_.Start({1, "anna", FakeAddress(1, 1)}).ok());
  Await(1, &ok);
  EXPECT_TRUE(ok);
  StartDead(2, 1);
  Await(2, &ok);
  EXPECT_FALSE(ok);
  EXPECT_EQ(woken_, 2);
  EXPECT_TRUE(absl::IsUnavailable(opener_.Start({2, "mallory", FakeAddress(66, 1)})))
      << "a moment later";
}

TEST_F(QueuePairOpenerTest, AddressesThatNobodyAnswersForHoldUpNobody) {
  ASSERT_TRUE(opener_.Start({1, "anna", FakeAddress(1, 1)}).ok());
  Await(1);
  for (int i = 0; i < 500; ++i) StartDead(static_cast<PeerId>(1000 + i), i);
  // Anna was reached before. Bert was not: he takes his turn beside the many of the other origin.
  ASSERT_TRUE(opener_.Start({2, "anna", FakeAddress(1, 1)}).ok());
  ASSERT_TRUE(opener_.Start({3, "bert", FakeAddress(1, 2)}).ok());
  EXPECT_LT(Await(2), kAttemptNs / 2);
  EXPECT_LT(Await(3), 3 * kAttemptNs);
}

TEST_F(QueuePairOpenerTest, OneAddressDoesNotTakeAllThreads) {
  for (int i = 0; i < 100; ++i) {
    // On a slow machine the first attempts are over, and the others wait their pause.
    (void)opener_.Start({static_cast<PeerId>(1000 + i), "mallory", FakeAddress(66, 1)});
  }
  ASSERT_TRUE(opener_.Start({2, "mallory", FakeAddress(1, 2)}).ok());
  EXPECT_LT(Await(2), kAttemptNs / 2);
}

TEST_F(QueuePairOpenerTest, WhatNobodyWantsAnyMoreDoesNotBegin) {
  for (int i = 0; i < 200; ++i) StartDead(static_cast<PeerId>(1000 + i), i);
  ASSERT_TRUE(opener_.Start({2, "mallory", FakeAddress(1, 2)}).ok());
  for (int i = 0; i < 200; ++i) opener_.Withdraw(static_cast<PeerId>(1000 + i));
  EXPECT_LT(Await(2), 2 * kAttemptNs) << "those that had begun were before him";
  EXPECT_GE(done_.size(), 200u - QueuePairOpener::kThreadsMax) << "all have their result";
  for (int i = 0; i < 200; ++i) Await(static_cast<PeerId>(1000 + i));
  EXPECT_EQ(done_.size(), 201u);
  opener_.Withdraw(2);  // over
  EXPECT_TRUE(opener_.TakeDone().empty());
}

TEST(QueuePairOpener, ADeviceWithoutQueuePairsSaysNothingAboutTheAddress) {
  std::atomic<int> done{0};
  QueuePairOpener opener(
      [](const QueuePairOpener::Request&) { return absl::ResourceExhaustedError("none left"); },
      [&] { ++done; });
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(opener.Start({1, "anna", FakeAddress(1, 1)}).ok());
    while (done < i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(QueuePairOpener, IsDestroyedWhileAttemptsAreUnderWay) {
  const int64_t begun_ns = RealClock().NowNs();
  {
    QueuePairOpener opener(FakeOpen, [] {});
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(opener.Start({static_cast<PeerId>(i + 1), "m", FakeAddress(66, i)}).ok());
    }
  }
  EXPECT_LT(RealClock().NowNs() - begun_ns, 5 * kAttemptNs) << "not the hundred of them";
}

}  // namespace
}  // namespace pando

#include "common/fabric/verbs/unreachable_peers.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

constexpr UnreachablePeers::Gid kAnna = {1}, kBert = {2};

TEST(UnreachablePeersTest, APeerRestsLongerEachTime) {
  UnreachablePeers peers;
  int64_t now_ns = 1'000, expected_ns = UnreachablePeers::kPauseFirstNs;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(peers.Check(kAnna, now_ns).ok());
    peers.Note(kAnna, false, now_ns, now_ns);
    EXPECT_TRUE(absl::IsUnavailable(peers.Check(kAnna, now_ns + expected_ns - 1)));
    EXPECT_TRUE(peers.Check(kBert, now_ns).ok());
    now_ns += expected_ns;
    expected_ns = std::min(2 * expected_ns, UnreachablePeers::kPauseLastNs);
  }
}

TEST(UnreachablePeersTest, SuccessForgetsIt) {
  UnreachablePeers peers;
  peers.Note(kAnna, false, 0, 0);
  peers.Note(kAnna, false, 0, 0);
  peers.Note(kAnna, true, 0, 0);
  EXPECT_TRUE(peers.Check(kAnna, 0).ok());
  peers.Note(kAnna, false, 0, 0);
  EXPECT_TRUE(peers.Check(kAnna, UnreachablePeers::kPauseFirstNs).ok());
}

TEST(UnreachablePeersTest, ManyOfThemTakeATenthOfTheTime) {
  constexpr int64_t kAttemptNs = 1'000'000'000;
  UnreachablePeers peers;
  int64_t now_ns = 0, spent_ns = 0;
  for (uint8_t i = 0; i < 20; ++i) peers.Note({i}, false, now_ns, now_ns);
  while (now_ns < 1'000 * kAttemptNs) {
    for (uint8_t i = 0; i < 20; ++i) {
      if (!peers.Check({i}, now_ns).ok()) continue;
      peers.Note({i}, false, now_ns, now_ns + kAttemptNs);
      now_ns += kAttemptNs;
      spent_ns += kAttemptNs;
    }
    now_ns += 10'000'000;
  }
  EXPECT_GT(spent_ns, now_ns / 20);
  EXPECT_LE(spent_ns, now_ns / 10 + kAttemptNs);
  EXPECT_TRUE(peers.Check({99}, now_ns).ok()) << "who is new is tried";
}

TEST(UnreachablePeersTest, TakesBoundedMemory) {
  UnreachablePeers peers;
  for (size_t i = 0; i < 3 * UnreachablePeers::kPeersMax; ++i) {
    peers.Note({static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8), 7}, false, 0, 0);
  }
  EXPECT_LE(peers.size(), UnreachablePeers::kPeersMax);
}

}  // namespace
}  // namespace pando

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
    peers.Note(kAnna, false, now_ns);
    EXPECT_TRUE(absl::IsUnavailable(peers.Check(kAnna, now_ns + expected_ns - 1)));
    EXPECT_TRUE(peers.Check(kBert, now_ns).ok());
    now_ns += expected_ns;
    expected_ns = std::min(2 * expected_ns, UnreachablePeers::kPauseLastNs);
  }
}

TEST(UnreachablePeersTest, SuccessForgetsIt) {
  UnreachablePeers peers;
  peers.Note(kAnna, false, 0);
  peers.Note(kAnna, false, 0);
  peers.Note(kAnna, true, 0);
  EXPECT_TRUE(peers.Check(kAnna, 0).ok());
  peers.Note(kAnna, false, 0);
  EXPECT_TRUE(peers.Check(kAnna, UnreachablePeers::kPauseFirstNs).ok());
}

TEST(UnreachablePeersTest, TakesBoundedMemory) {
  UnreachablePeers peers;
  for (size_t i = 0; i < 3 * UnreachablePeers::kPeersMax; ++i) {
    peers.Note({static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8), 7}, false, 0);
  }
  EXPECT_LE(peers.size(), UnreachablePeers::kPeersMax);
}

}  // namespace
}  // namespace pando

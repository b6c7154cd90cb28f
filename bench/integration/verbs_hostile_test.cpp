// Clients that name RDMA addresses which nobody answers for, beside a lawful one at work. Needs an
// RDMA device whose GID is an IPv4 address; the kernel does look for those addresses.
#include <algorithm>
#include <memory>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "bench/integration/lawful_work.h"
#include "common/fabric/verbs/speaker_test_util.h"

namespace pando {
namespace {

// Each asks again as soon as it is answered, for another address each time.
TEST(VerbsHostileTest, AddressesThatNobodyAnswersForHoldUpNobody) {
  if (IntegrationCluster::default_fabric() != "verbs") {
    GTEST_SKIP() << "PANDO_TEST_FABRIC is not verbs";
  }
  IntegrationCluster cluster;
  auto registry = OpenRegistry(cluster.registry());
  ASSERT_TRUE(registry.ok()) << registry.status();
  const auto servers = (*registry)->List();
  ASSERT_TRUE(servers.ok()) << servers.status();
  const auto port = ParseHostPort((*servers)[0].address);
  ASSERT_TRUE(port.ok()) << port.status();
  in_addr network;
  if (inet_pton(AF_INET, port->host.c_str(), &network) != 1) {
    GTEST_SKIP() << "the device's GID is no IPv4 address";
  }
  QueuePairAddress nobody = {.number = 1, .mtu_bytes = 1024, .responder_depth = 1};
  nobody.gid[10] = nobody.gid[11] = 0xFF;
  std::copy_n(reinterpret_cast<const uint8_t*>(&network.s_addr), 3, &nobody.gid[12]);

  LawfulWork work(&cluster);
  constexpr int kHostile = 20, kRounds = 4;
  std::vector<std::unique_ptr<Speaker>> hostile;
  for (int i = 0; i < kHostile; ++i) {
    hostile.push_back(std::make_unique<Speaker>(*port));
    ASSERT_TRUE(hostile.back()->Greet());
  }
  int64_t longest_ns = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begun_ns = RealClock().NowNs();
    for (int i = 0; i < kHostile; ++i) {
      nobody.gid[15] = static_cast<uint8_t>(100 + round * kHostile + i);
      hostile[static_cast<size_t>(i)]->AskForPair(nobody);
    }
    for (const auto& speaker : hostile) {
      const auto frame = speaker->Hear();
      ASSERT_TRUE(frame.has_value());
      EXPECT_EQ(frame->type, VerbsFrameType::kError);
    }
    longest_ns = std::max(longest_ns, RealClock().NowNs() - begun_ns);
  }
  work.Stop();
  EXPECT_GT(longest_ns, kSecondNs / 10) << "the kernel did not look for anybody: a test of nothing";
}

}  // namespace
}  // namespace pando

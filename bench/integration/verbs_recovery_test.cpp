// Queue pairs that break under a working tree (rule L5): nothing acknowledged is lost, locks do not
// stay behind, and everybody goes on. Needs an RDMA device.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "bench/integration/integration_cluster.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "compute/client/connect.h"

namespace pando {
namespace {

constexpr int kKeys = 40;
constexpr int kWritesMax = 300;  // of each key

std::string Key(int key) { return std::to_string(10'000'000 + key); }
std::string Value(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }
uint64_t Number(const std::string& value) {
  uint64_t number = 0;
  std::memcpy(&number, value.data(), std::min(value.size(), sizeof(number)));
  return number;
}

class VerbsRecoveryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (IntegrationCluster::default_fabric() != "verbs")
      GTEST_SKIP() << "PANDO_TEST_FABRIC is not verbs";
    cluster_ = std::make_unique<IntegrationCluster>();
  }
  // A client whose queue pairs break after as many chains each.
  std::unique_ptr<Client> FragileClient(uint32_t break_every) {
    auto registry = OpenRegistry(cluster_->registry());
    PANDO_CHECK_OK(registry.status());
    auto servers = (*registry)->List();
    PANDO_CHECK_OK(servers.status());
    auto fabric = ConnectVerbs(*servers, {.break_every = break_every});
    PANDO_CHECK_OK(fabric.status());
    auto client = ConnectOverFabric(cluster_->ClientDefaults(), *fabric);
    PANDO_CHECK_OK(client.status());
    return *std::move(client);
  }
  std::unique_ptr<IntegrationCluster> cluster_;
};

// Dead at one server, it would otherwise live on at the others (rule C2).
TEST_F(VerbsRecoveryTest, WhoLosesOneConnectionLeavesAndCanComeBack) {
  auto registry = OpenRegistry(cluster_->registry());
  ASSERT_OK(registry);
  auto servers = (*registry)->List();
  ASSERT_OK(servers);
  ASSERT_EQ(servers->size(), 2u);
  auto fabric = ConnectVerbs(*servers);
  ASSERT_OK(fabric);
  auto client = ConnectOverFabric(cluster_->ClientDefaults(), *fabric);
  ASSERT_OK(client);
  auto tree = (*client)->CreateTree("t", {});
  auto session = (*client)->NewSession();
  ASSERT_OK(tree);
  ASSERT_OK(session);
  ASSERT_OK((*session)->Put(**tree, Key(1), Value(1)));
  EXPECT_FALSE((*client)->fenced());
  BreakVerbsConnection(fabric->get(), 2);
  while (!(*client)->fenced()) std::this_thread::yield();
  const absl::Status put = (*session)->Put(**tree, Key(1), Value(2));
  EXPECT_TRUE(HasCode(put, absl::StatusCode::kFailedPrecondition));
  EXPECT_NE(put.message().find("lost its connection"), absl::string_view::npos) << put;
  session->reset();
  tree->reset();
  client->reset();

  auto next = cluster_->NewClient();
  auto next_tree = next->OpenTree("t");
  auto next_session = next->NewSession();
  ASSERT_OK(next_tree);
  ASSERT_OK(next_session);
  ASSERT_OK((*next_session)->Put(**next_tree, Key(1), Value(3)));
}

TEST_F(VerbsRecoveryTest, WritersGoOnAndLoseNothing) {
  auto sound = cluster_->NewClient();
  ASSERT_OK(sound->CreateTree("t", {}));
  struct Sums {
    std::atomic<uint64_t> acknowledged{0}, unknown{0}, failed{0};
  } sums;
  std::atomic<uint64_t> last[kKeys] = {};  // acknowledged, by key; one writer a key
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      auto client = FragileClient(150);
      auto tree = client->OpenTree("t");
      auto session = client->NewSession();
      PANDO_CHECK_OK(tree.status());
      PANDO_CHECK_OK(session.status());
      for (uint64_t value = 1; value <= kWritesMax; ++value) {
        for (int key = w; key < kKeys; key += 2) {
          const absl::Status put = (*session)->Put(**tree, Key(key), Value(value));
          if (put.ok()) {
            last[key] = value;
            ++sums.acknowledged;
          } else {
            // Nobody waits for a lock that was left behind.
            EXPECT_FALSE(absl::IsDeadlineExceeded(put)) << put;
            ++(IsOutcomeUnknown(put) ? sums.unknown : sums.failed);
          }
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(sums.unknown + sums.failed, 0u) << "nothing broke";
  EXPECT_GT(sums.acknowledged, uint64_t{kKeys} * kWritesMax / 2);
  auto tree = sound->OpenTree("t");
  auto session = sound->NewSession();
  ASSERT_OK(tree);
  ASSERT_OK(session);
  for (int key = 0; key < kKeys; ++key) {
    const auto found = (*session)->Get(**tree, Key(key));
    ASSERT_OK(found);
    EXPECT_GE(Number(*found), last[key].load()) << "key " << key;
    // Every lock can be had.
    ASSERT_OK((*session)->Put(**tree, Key(key), Value(kWritesMax + 1)));
  }
}

}  // namespace
}  // namespace pando

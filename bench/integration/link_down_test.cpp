// The link goes down for a while: every operation ends with a clear status, and afterwards
// everybody goes on and has lost nothing that was acknowledged. Takes the link of SoftRoCE's own
// interface down (scripts/softroce), no other.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "bench/integration/integration_cluster.h"
#include "common/base/clock.h"

namespace pando {
namespace {

constexpr char kInterface[] = "pando0";  // made by scripts/softroce, and carries nothing else
constexpr int64_t kLinkTimeoutMs = 2'000;

bool IsSoftRocesOwn() {
  const std::filesystem::path devices = "/sys/class/infiniband";
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(devices, error)) {
    std::ifstream name(device.path() / "ports/1/gid_attrs/ndevs/0");
    std::string interface;
    name >> interface;
    if (interface == kInterface) return geteuid() == 0;
  }
  return false;
}

class LinkDownTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (IntegrationCluster::default_fabric() != "verbs") {
      GTEST_SKIP() << "PANDO_TEST_FABRIC is not verbs";
    }
    if (!IsSoftRocesOwn()) GTEST_SKIP() << "not on the interface that scripts/softroce makes";
    cluster_ = std::make_unique<IntegrationCluster>();
  }
  static void SetLink(const char* state) {
    const std::string command = absl::StrCat("ip link set ", kInterface, " ", state);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  std::unique_ptr<Client> NewClient() {
    ClientOptions options = cluster_->ClientDefaults();
    options.operation_timeout_ms = kLinkTimeoutMs;
    return cluster_->NewClient(options);
  }
  std::unique_ptr<IntegrationCluster> cluster_;
};

std::string LinkKey(int key) { return std::to_string(10'000'000 + key); }

// Writes 1, 2, 3, ... to its own keys; with a new client where the old one was cut off.
struct Writer {
  static constexpr int kKeys = 16;

  void Run(const std::function<std::unique_ptr<Client>()>& connect, const std::atomic<bool>& stop) {
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::unique_ptr<Session> session;
    const auto renew = [&] {
      session.reset();
      tree.reset();
      client = connect();
      auto opened = client->OpenTree("t");
      PANDO_CHECK_OK(opened.status());
      tree = *std::move(opened);
      auto made = client->NewSession();
      PANDO_CHECK_OK(made.status());
      session = *std::move(made);
    };
    renew();
    for (int i = 0; !stop; ++i) {
      if (client->fenced() && link_is_up) renew();
      const int key = first_key + i % kKeys;
      const int64_t start_ns = RealClock().NowNs();
      const absl::Status put = session->Put(*tree, LinkKey(key), std::to_string(++written));
      longest_ns = std::max(longest_ns, RealClock().NowNs() - start_ns);
      if (put.ok()) {
        acknowledged[i % kKeys] = written;
        if (link_is_up) ++good_since_up;
      } else {
        ++failed;
        EXPECT_TRUE(absl::IsUnavailable(put) || absl::IsDeadlineExceeded(put) ||
                    IsOutcomeUnknown(put) || client->fenced())
            << put;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

  int first_key = 0;
  std::atomic<bool> link_is_up{true};
  std::atomic<int> good_since_up{0};
  int written = 0, failed = 0;
  int acknowledged[kKeys] = {};
  int64_t longest_ns = 0;
};

TEST_P(LinkDownTest, EverybodyGoesOnAfterwards) {
  auto sound = NewClient();
  ASSERT_OK(sound->CreateTree("t", {}));
  std::atomic<bool> stop{false};
  Writer writers[2];
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    writers[w].first_key = w * Writer::kKeys;
    threads.emplace_back([&, w] { writers[w].Run([&] { return NewClient(); }, stop); });
  }
  const auto await_good = [&] {
    for (Writer& writer : writers) writer.good_since_up = 0;
    for (Writer& writer : writers) writer.link_is_up = true;
    for (Writer& writer : writers) {
      while (writer.good_since_up < 50) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  await_good();
  for (Writer& writer : writers) writer.link_is_up = false;
  SetLink("down");
  std::this_thread::sleep_for(std::chrono::seconds(GetParam()));
  SetLink("up");
  await_good();
  stop = true;
  for (std::thread& thread : threads) thread.join();

  sound = NewClient();
  auto tree = sound->OpenTree("t");
  ASSERT_OK(tree);
  auto session = sound->NewSession();
  ASSERT_OK(session);
  for (const Writer& writer : writers) {
    EXPECT_GT(writer.failed, 0) << "the link was not down";
    // To its deadline, and where a lock is held to the time when that is given up.
    EXPECT_LT(writer.longest_ns, 40 * kSecondNs);
    for (int i = 0; i < Writer::kKeys; ++i) {
      const auto found = (*session)->Get(**tree, LinkKey(writer.first_key + i));
      ASSERT_OK(found);
      EXPECT_GE(std::stoi(*found), writer.acknowledged[i]) << "key " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seconds, LinkDownTest, testing::Values(1, 30));

}  // namespace
}  // namespace pando

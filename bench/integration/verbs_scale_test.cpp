// How many queue pairs clients have: none before they use a server, one a session and server then.
// Needs an RDMA device.
#include <gtest/gtest.h>

#include <thread>

#include "bench/integration/integration_cluster.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_server.h"
#include "compute/client/connect.h"

namespace pando {
namespace {

class VerbsMemoryServer {
 public:
  explicit VerbsMemoryServer(ServerId id) {
    auto server = VerbsServer::Create({.server_id = id, .main_bytes = uint64_t{64} << 20});
    PANDO_CHECK_OK(server.status());
    server_ = *std::move(server);
    auto handler = memory::MemoryServer::Create(server_->memory(),
                                                {.server_id = id,
                                                 .is_catalog = id == 1,
                                                 .chunk_bytes = 256 << 10,
                                                 .packet_bytes = server_->options().packet_bytes,
                                                 .needs_crc = server_->needs_crc(),
                                                 .first_id = 1,
                                                 .lease_ns = 20 * kSecondNs,
                                                 .fence = server_.get()});
    PANDO_CHECK_OK(handler.status());
    handler_ = *std::move(handler);
    thread_ = std::thread([this] { PANDO_CHECK_OK(server_->Serve(handler_.get())); });
  }
  ~VerbsMemoryServer() {
    server_->Stop();
    thread_.join();
  }
  ServerLocation location() const { return {server_->options().server_id, server_->address()}; }
  size_t queue_pairs() const { return server_->queue_pairs(); }

 private:
  std::unique_ptr<VerbsServer> server_;
  std::unique_ptr<memory::MemoryServer> handler_;
  std::thread thread_;
};

class VerbsScaleTest : public testing::Test {
 protected:
  void SetUp() override {
    if (IntegrationCluster::default_fabric() != "verbs")
      GTEST_SKIP() << "PANDO_TEST_FABRIC is not verbs";
  }
  static std::unique_ptr<Client> Connect(const std::vector<ServerLocation>& servers) {
    auto fabric = ConnectVerbs(servers);
    PANDO_CHECK_OK(fabric.status());
    auto client = ConnectOverFabric({}, *fabric);
    PANDO_CHECK_OK(client.status());
    return *std::move(client);
  }
};

TEST_F(VerbsScaleTest, AnIdleClientHasNoQueuePair) {
  VerbsMemoryServer one(1), two(2);
  auto client = Connect({one.location(), two.location()});
  auto session = client->NewSession();
  ASSERT_OK(session);
  // Heartbeats have gone meanwhile.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(one.queue_pairs() + two.queue_pairs(), 0u);
}

TEST_F(VerbsScaleTest, ATreeInUseOnOneServerTakesOneQueuePairASession) {
  VerbsMemoryServer server(1);
  auto client = Connect({server.location()});
  auto tree = client->CreateTree("t", {});
  auto session = client->NewSession(), another = client->NewSession();
  ASSERT_OK(tree);
  ASSERT_OK(session);
  ASSERT_OK(another);
  for (int i = 0; i < 200; ++i) ASSERT_OK((*session)->Put(**tree, NumberedKey(i), "v"));
  EXPECT_EQ(server.queue_pairs(), 1u);
  for (int i = 0; i < 200; ++i) ASSERT_OK((*another)->Get(**tree, NumberedKey(i)));
  EXPECT_EQ(server.queue_pairs(), 2u);
  another->reset();
  while (server.queue_pairs() > 1) std::this_thread::yield();
  EXPECT_EQ((*session)->Get(**tree, NumberedKey(7)).value_or(""), "v");
}

}  // namespace
}  // namespace pando

// Servers that are added to a fabric in use: another life of one that is gone (rule R8).
#include <unistd.h>

#include <atomic>
#include <memory>

#include "common/base/temporary_directory.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

class AddedServerTest : public testing::Test {
 protected:
  AddedServerTest() {
    options_.socket_path = directory_.path() + "/socket";
    options_.main_bytes = 1 << 20;
    Start();
    fabric_ = *ConnectShm({server_->location()});
    endpoint_ = *fabric_->Connect(1, 1);
  }
  void Start() { server_ = std::make_unique<ShmServerThread>(options_, &handler_); }
  // Another life of the server, which the fabric has found. As Fabric::AddServer().
  uint32_t StartAgain() {
    server_.reset();
    for (int i = 0; i < 2'000 && fabric_->IsConnected(1); ++i) usleep(1'000);
    Start();
    const auto added = fabric_->AddServer(server_->location());
    PANDO_CHECK_OK(added.status());
    return *added;
  }
  // What the word of the latest life of the server that was taken up holds.
  uint64_t Word() {
    Chain chain(1);
    chain.FetchAdd(MemorySpace::kLocks, 0, 0);
    endpoint_->set_overlap(false);
    endpoint_->Post(&chain);
    while (!chain.done()) endpoint_->Poll();
    EXPECT_TRUE(chain.ok()) << chain.status();
    return chain.verb(0).old_value;
  }

  TemporaryDirectory directory_;
  ShmServerOptions options_;
  EchoHandler handler_;
  std::unique_ptr<ShmServerThread> server_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<Endpoint> endpoint_;
};

TEST_F(AddedServerTest, WhatWasPostedToAnEarlierLifeDoesNotReachTheNext) {
  Chain lock(1);
  lock.CompareSwap(MemorySpace::kLocks, 0, 0, 77);
  endpoint_->set_overlap(true);
  endpoint_->Post(&lock);
  ASSERT_FALSE(lock.done()) << "it is left to Poll()";
  endpoint_->AdoptServers(StartAgain());
  while (!lock.done()) endpoint_->Poll();
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kUnavailable) << lock.status();
  EXPECT_EQ(endpoint_->in_flight(), 0u);
  EXPECT_EQ(Word(), 0u) << "nobody would ever free it";
}

// A client that a server refuses tries again for as long as it lives.
TEST_F(AddedServerTest, AServerThatIsGivenUpKeepsNoSlots) {
  ShmServerOptions options = options_;
  options.server_id = 2;
  options.socket_path = directory_.path() + "/other";
  options.endpoints_max = 3;
  options.connections_max = 3;
  ShmServerThread other(options, &handler_);
  auto second = *fabric_->Connect(1, 1);
  for (int i = 0; i < 20; ++i) {
    const auto added = fabric_->AddServer(other.location());
    ASSERT_TRUE(added.ok()) << i << ": " << added.status();
    second->AdoptServers(*added);  // as a client's control session, which makes calls alone
    fabric_->Disconnect(2);
    // The server has to see that they are free.
    usleep(20'000);
  }
}

// Answers nothing until it may.
class StoppedHandler : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view) override {
    ++heard;
    while (!goes_on) usleep(1'000);
    return "ok";
  }
  void OnPeerGone(PeerId) override { ++gone; }
  std::atomic<int> heard{0}, gone{0};
  std::atomic<bool> goes_on{false};
};

// What a client says last, to a server that it has given up as it is stopped, may matter to others.
TEST_F(AddedServerTest, AServerThatIsGivenUpHearsWhatItWasTold) {
  ShmServerOptions options = options_;
  options.server_id = 2;
  options.socket_path = directory_.path() + "/other";
  StoppedHandler handler;
  ShmServerThread other(options, &handler);
  const auto added = fabric_->AddServer(other.location());
  ASSERT_TRUE(added.ok()) << added.status();
  endpoint_->AdoptServers(*added);
  PendingCall calls[3];
  for (PendingCall& call : calls) {
    call = {.server = 2, .request = "hello"};
    endpoint_->Call(&call);
  }
  for (int i = 0; i < 2'000 && handler.heard == 0; ++i) usleep(1'000);
  fabric_->Disconnect(2);
  for (PendingCall& call : calls) {
    while (!call.done) endpoint_->Poll();
    EXPECT_TRUE(absl::IsUnavailable(call.status)) << call.status;
  }
  handler.goes_on = true;
  for (int i = 0; i < 2'000 && handler.gone == 0; ++i) usleep(1'000);
  EXPECT_EQ(handler.gone, 1);
  EXPECT_EQ(handler.heard, 3);
}

}  // namespace
}  // namespace pando

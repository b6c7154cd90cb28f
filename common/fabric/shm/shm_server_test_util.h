// A memory server, and clients that say only what a test says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/bystander.h"
#include "common/base/clock.h"
#include "common/fabric/body.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_server.h"
#include "common/fabric/shm/shm_stranger.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/unix_socket.h"
#include "gtest/gtest.h"

namespace pando {

class ShmServerTest : public testing::Test {
 protected:
  ShmServerTest() {
    options_.socket_path = directory_.path() + "/socket";
    options_.main_bytes = 1 << 20;
    options_.endpoints_max = 4;
    options_.connections_max = 8;
    options_.hello_timeout_ms = 300;
  }
  void Start() { thread_ = std::make_unique<ShmServerThread>(options_, &handler_); }

  UniqueFd Dial() { return DialAsStranger(options_.socket_path); }
  UniqueFd DialAndGreet() {
    UniqueFd socket = Dial();
    SendMessage(socket.get(), EncodeShmFrame(ShmFrameType::kHello, 0, {}));
    EXPECT_TRUE(Hear(socket).has_value());
    return socket;
  }
  // A client like any other finds the server well.
  void ExpectServerIsWell() {
    auto fabric = ConnectShm({{1, options_.socket_path}});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    auto endpoint = (*fabric)->Connect(1, 1);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(Work(endpoint->get()), "echo:well?");
  }
  // A verb and a call; the reply.
  static std::string Work(Endpoint* endpoint) {
    Chain chain(1);
    chain.FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(&chain);
    EXPECT_TRUE(chain.ok()) << chain.status();
    PendingCall call;
    call.server = 1;
    call.request = "well?";
    call.deadline_ns = RealClock().NowNs() + 10 * kSecondNs;
    endpoint->Call(&call);
    while (!call.done) {
      endpoint->Wait(call.deadline_ns);
      endpoint->Poll();
    }
    EXPECT_TRUE(call.status.ok()) << call.status;
    return call.reply;
  }

  const Bystander bystander_;
  TemporaryDirectory directory_;
  ShmServerOptions options_;
  EchoHandler handler_;
  std::unique_ptr<ShmServerThread> thread_;
};

}  // namespace pando

// A memory server over verbs, and clients of it. Needs an RDMA device.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {

class VerbsFabricTest : public VerbsDeviceTest {
 protected:
  void Start(VerbsServerOptions options = {}) {
    options.main_bytes = 1 << 20;
    server_ = std::make_unique<VerbsServerThread>(options, &handler_);
  }
  std::shared_ptr<Fabric> Connect(const VerbsFabricOptions& options = {}) {
    auto fabric = ConnectVerbs({server_->location()}, options);
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return fabric.ok() ? *std::move(fabric) : nullptr;
  }
  static void Finish(Endpoint& endpoint, const Chain& chain) {
    while (!chain.done()) {
      if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
    }
  }
  static absl::Status Add(Endpoint& endpoint, uint64_t offset = 0) {
    Chain chain(1);
    chain.FetchAdd(MemorySpace::kMain, offset, 1);
    endpoint.Post(&chain);
    Finish(endpoint, chain);
    return chain.status();
  }
  static absl::Status Call(Endpoint& endpoint, std::string* reply) {
    PendingCall call;
    call.server = 1;
    call.request = "hello";
    endpoint.Call(&call);
    while (!call.done) {
      if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
    }
    *reply = call.reply;
    return call.status;
  }
  // Until the server has confirmed; how many chains failed meanwhile.
  static int AwaitReconnect(Endpoint& endpoint) {
    int failures = 0;
    for (absl::Status status = Add(endpoint, 64); !status.ok(); status = Add(endpoint, 64)) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      endpoint.Wait(endpoint.clock().NowNs() + kMillisecondNs);
      if (++failures > 100'000) break;
    }
    return failures;
  }
  uint64_t Word(uint64_t offset) {
    return reinterpret_cast<const uint64_t*>(server_->server().memory().main.data())[offset / 8];
  }

  EchoHandler handler_;
  std::unique_ptr<VerbsServerThread> server_;
};

}  // namespace pando

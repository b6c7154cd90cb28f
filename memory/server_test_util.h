// A memory server on plain memory with two compute servers that have joined it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "memory/memory_server.h"
#include "memory/test_support.h"

namespace pando::memory {

// 0, and the test has failed: there is no such counter.
inline uint64_t CounterOf(const MemoryServer& server, const std::string& name) {
  for (const auto& [counter, value] : server.Counters()) {
    if (counter == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

// Of a fabric that can cut clients off: whom the server wanted to be cut off.
class RecordingFence : public PeerFence {
 public:
  bool CutOff(PeerId peer) override {
    peers.push_back(peer);
    return connected;
  }
  bool connected = true;  // those that are cut off
  std::vector<PeerId> peers;
};

class TwoClientsTest : public testing::Test {
 protected:
  // On clock_. Anna is peer 1, Bert peer 2.
  void Start(MemoryServerOptions options) {
    options.clock = &clock_;
    auto server = MemoryServer::Create(memory_.memory(), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    anna_ = std::make_unique<TestClient>(server_.get(), 1);
    bert_ = std::make_unique<TestClient>(server_.get(), 2);
    ASSERT_TRUE(anna_->Join().ok());
    ASSERT_TRUE(bert_->Join().ok());
  }

  ManualClock clock_;
  PlainMemory memory_;
  std::unique_ptr<MemoryServer> server_;
  std::unique_ptr<TestClient> anna_, bert_;
};

}  // namespace pando::memory

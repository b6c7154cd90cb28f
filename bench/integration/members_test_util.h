// A cluster that memory servers join and leave.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/bystander.h"
#include "common/base/sanitizer.h"

namespace pando {

// Sanitizers take their time.
inline bool Within(std::chrono::milliseconds time, const std::function<bool()>& condition) {
  const Bystander bystander;
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    if (std::chrono::steady_clock::now() - start > bystander.Bound((kSanitized ? 5 : 1) * time))
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class MembersTest : public testing::Test {
 protected:
  MembersTest() : client_(cluster_.NewClient()), session_(*client_->NewSession()) {}

  absl::Status Fill(Session& session, const Tree& tree, uint64_t first, uint64_t end) {
    for (uint64_t n = first; n < end; ++n) {
      const absl::Status put = session.Put(tree, NumberedKey(n), std::to_string(n));
      if (!put.ok()) return put;
    }
    return absl::OkStatus();
  }
  // All keys below `end`, read one by one and by a scan.
  void ExpectWhole(Session& session, const Tree& tree, uint64_t end) {
    for (uint64_t n = 0; n < end; ++n) {
      ASSERT_EQ(session.Get(tree, NumberedKey(n)).value_or("lost"), std::to_string(n)) << n;
    }
    std::vector<KeyValue> rows;
    ASSERT_OK(session.Scan(tree, "", end + 1, &rows));
    EXPECT_EQ(rows.size(), end);
  }
  static uint64_t NodesOut(Client& client, uint16_t server) {
    for (const ServerStatus& status : client.Servers()) {
      if (status.id == server && status.available) return status.used_bytes;
    }
    return 0;
  }

  // Few records fill much memory.
  static constexpr TreeOptions kWide = {.value_bytes_max = 200};
  IntegrationCluster cluster_{{.memory_servers = 1, .main_bytes = uint64_t{8} << 20}};
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};

}  // namespace pando

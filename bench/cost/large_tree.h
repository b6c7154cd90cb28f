// A tree of values in cells on a simulated cluster, for tests and counts.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bench/cost/sim_cluster.h"

namespace pando {

inline constexpr uint32_t kValueBytes = 1000;
inline constexpr uint64_t kMainBytes = 128 << 20;

// Recognizes itself.
inline std::string LargeValue(uint64_t n, uint32_t bytes = kValueBytes) {
  std::string value = KeyOf(n);
  value.resize(bytes, static_cast<char>('a' + n % 26));
  return value;
}

struct LargeTree {
  explicit LargeTree(uint64_t records, const TreeOptions& options = {.value_bytes_max = 65'536},
                     const SimCluster::Options& on = {.sim = {.seed = 1,
                                                              .mode = sim::DeliveryMode::kWhole},
                                                      .main_bytes = kMainBytes})
      : cluster(on), client(cluster.NewClient()), tree(*client->CreateTree("t", options)) {
    uint64_t next = 0;
    const absl::Status loaded = session->BulkLoad(*tree, [&](KeyValue* entry) {
      if (next == records) return false;
      *entry = {KeyOf(next * 2), LargeValue(next)};
      ++next;
      return true;
    });
    EXPECT_TRUE(loaded.ok()) << loaded;
    for (uint64_t n = 0; n < records; n += 100) {
      EXPECT_TRUE(session->Get(*tree, KeyOf(n * 2)).ok());
    }
  }
  // Of all memory servers.
  uint64_t UsedBytes() const {
    uint64_t used = 0;
    for (const ServerStatus& server : client->Servers()) used += server.used_bytes;
    return used;
  }

  SimCluster cluster;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session = *client->NewSession();
};

}  // namespace pando

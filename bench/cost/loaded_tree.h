// A bulk-loaded tree with one client that has all parents cached, for tests that count.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "bench/cost/sim_cluster.h"

namespace pando {

// Keys 0, 2, 4, ...
inline void BulkLoad(Session& session, const Tree& tree, uint64_t records) {
  uint64_t next = 0;
  const absl::Status loaded = session.BulkLoad(tree, [&](KeyValue* entry) {
    if (next == records) return false;
    entry->key = KeyOf(next * 2);
    entry->value = KeyOf(next++);
    return true;
  });
  ASSERT_TRUE(loaded.ok()) << loaded;
}

// Reads a few keys below every parent: all of them are cached then, if they fit.
inline void Warm(Session& session, const Tree& tree, uint64_t records) {
  for (uint64_t n = 0; n < records; n += 300) {
    ASSERT_TRUE(session.Get(tree, KeyOf(n * 2)).ok()) << n;
  }
}

struct LoadedTree {
  LoadedTree(const SimCluster::Options& cluster_options, const ClientOptions& options,
             uint64_t records)
      : cluster(cluster_options), client(cluster.NewClient(options)) {
    BulkLoad(*session, *tree, records);
    Warm(*session, *tree, records);
  }

  SimCluster cluster;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree = *client->CreateTree("t", {});
  std::unique_ptr<Session> session = *client->NewSession();
};

}  // namespace pando

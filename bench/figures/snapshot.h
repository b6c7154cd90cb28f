// A simulated cluster with one bulk-loaded tree: what the cases of a figure start from, each in a
// forked child of its own (fork_pool.h).
//
// One thread. Numbers of keys: [0, key_space()); all but every third (LoadedKey()) are in the tree,
// so that of writes at random two thirds are updates and one third inserts, as in the paper.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/cost/sim_cluster.h"
#include "bench/workload/keys.h"

namespace pando::bench {

struct SnapshotOptions {
  uint64_t records = 0;
  uint32_t key_bytes = 8;
  uint32_t value_bytes = 8;
  uint32_t node_bytes = 0;    // as TreeOptions
  bool narrow_reads = false;  // the tree's
  int memory_servers = 8;
  uint64_t seed = 1;
  // The tree's mode (common/owned-trees.md), and what erases of an owned one are held to.
  bool owned = false;
  uint32_t delete_persistence_ms = 0;
  // The network's timing; nullptr: a delay, and nothing else (tests).
  std::shared_ptr<const NicProfile> nic;

  friend bool operator==(const SnapshotOptions&, const SnapshotOptions&) = default;
};

// Of the simulated world that `options` ask for: deliveries are whole and nothing is lost.
sim::SimOptions WorldOptions(uint64_t seed, const std::shared_ptr<const NicProfile>& nic);

// Each host of the paper's cluster is a memory server and a compute server, which share its NIC.
// Compute servers beyond the memory servers have hosts of their own.
std::unique_ptr<Client> NewComputeServer(const ClientOptions& options, int index,
                                         SimCluster* cluster);

class Snapshot {
 public:
  static constexpr char kTree[] = "figures";

  // InvalidArgument: no records, or keys too short for them. ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Snapshot>> Load(const SnapshotOptions& options);

  SimCluster& cluster() { return *cluster_; }
  const SnapshotOptions& options() const { return options_; }
  const Keys& keys() const { return *keys_; }
  uint64_t key_space() const { return options_.records / 2 * 3 + options_.records % 2; }
  static bool LoadedKey(uint64_t number) { return number % 3 != 2; }
  // The number of the i-th of those that are loaded.
  static uint64_t LoadedNumber(uint64_t i) { return i / 2 * 3 + i % 2; }
  // The nodes of level 1.
  const std::vector<Reference>& parents() const { return parents_; }
  // What a compute server's index cache holds when it has all of those nodes and the levels above.
  uint64_t parent_bytes() const { return parent_bytes_; }
  // Of all leaves, in remote memory.
  uint64_t leaf_bytes() const { return leaf_bytes_; }
  // Puts all of them into a client's index cache, as far as they fit; without READs, which take
  // most of the time of a short case. Only while the tree is as it was loaded.
  void FillCache(const Tree& tree) const;

 private:
  explicit Snapshot(const SnapshotOptions& options) : options_(options) {}
  absl::Status Fill(Session* session, const Tree& tree);
  absl::Status FindParents(Client* client, Session* session, const Tree& tree);

  const SnapshotOptions options_;
  std::unique_ptr<Keys> keys_;
  std::unique_ptr<SimCluster> cluster_;
  std::vector<Reference> parents_;
  uint64_t parent_bytes_ = 0, leaf_bytes_ = 0;
};

}  // namespace pando::bench

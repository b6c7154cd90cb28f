// Compute servers that own the keys of an owned tree, as they do once they have worked for a while:
// each has as many of them, and its memory is full of records. The figures begin there: moves of
// ranges take seconds (rule O13), and memory fills by READs, one a record.
//
// One thread, outside tasks. Keys are the snapshot's, by number; each owner has several ranges of
// its own, one behind the other (ClientOptions::ranges_min, rule O13).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "bench/figures/snapshot.h"
#include "common/base/random.h"

namespace pando::bench {

// One of them; `session` is used in turns.
struct OwnedServer {
  Client* client;
  Tree* tree;
  Session* session;
};

// Which of so many compute servers has the key of this number, once they have divided the keys.
int OwnerOf(uint64_t number, uint64_t key_space, int servers);
// The first needs the tree's only range, divides it and gives the others theirs. Unavailable,
// DeadlineExceeded: it has not come to that.
absl::Status DivideKeys(const Snapshot& snapshot, std::span<const OwnedServer> servers);

// How long each partition has been held so far, in simulated time, in the order of their keys.
std::vector<int64_t> HeldNs(std::span<const OwnedServer> servers);

// Fills the memory of all, `hot_bytes` each, with clean records: those that are drawn first, then
// any. Without READs; what their leaves hold is not looked at. `draw`: the number of a key.
void WarmRecords(const Snapshot& snapshot, std::span<const OwnedServer> servers, size_t hot_bytes,
                 const std::function<uint64_t(Random*)>& draw, uint64_t seed);

}  // namespace pando::bench

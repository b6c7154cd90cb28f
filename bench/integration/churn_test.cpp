// What a tree still occupies after most of it was erased in the middle of other work (rules M).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"
#include "common/wire/internal_node.h"
#include "common/wire/node_layout.h"
#include "pando/check.h"

namespace pando {
namespace {

const uint64_t kRecords = IntegrationCluster::is_slow() ? 100'000 : 1'000'000;
const uint32_t kChunkBytes = IntegrationCluster::is_slow() ? 64 << 10 : 1 << 20;
constexpr int kTasks = 16;

// Eight bytes, big-endian: keys that sort like the numbers.
std::string KeyOf(uint64_t n) {
  std::string key(8, '\0');
  for (size_t i = 8; i-- > 0; n >>= 8) key[i] = static_cast<char>(n & 0xff);
  return key;
}

// The records that are there, in no order; keys are spread over all of 64 bits.
class Live {
 public:
  explicit Live(uint64_t seed) : random_(seed) {}

  uint64_t size() const { return keys_.size(); }
  uint64_t Fresh() { return random_.Next(); }
  void Add(uint64_t key) { keys_.push_back(key); }
  uint64_t TakeAny() {
    std::swap(keys_[random_.Uniform(keys_.size())], keys_.back());
    const uint64_t key = keys_.back();
    keys_.pop_back();
    return key;
  }
  std::vector<uint64_t> Sorted() const {
    std::vector<uint64_t> keys = keys_;
    std::sort(keys.begin(), keys.end());
    return keys;
  }

 private:
  Random random_;
  std::vector<uint64_t> keys_;
};

// The nodes that full leaves and full internal nodes would take.
uint64_t NodesAtLeast(uint64_t records, const NodeLayout& layout) {
  const auto divided = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
  uint64_t nodes = divided(records, layout.slot_count()), all = nodes;
  const uint64_t children =
      layout.internal_payload_bytes() / InternalNode::EntryBytes(KeyOf(0)) + 1;
  while (nodes > 1) all += nodes = divided(nodes, children);
  return all;
}

TEST(Churn, ATreeThatWasMostlyErasedIsWithinThreeTimesOfItsMinimum) {
  if (!IntegrationCluster::kWithOneSession) GTEST_SKIP() << "one session";
  IntegrationCluster cluster(
      {.main_bytes = uint64_t{128} << 20, .lock_words = 32768, .chunk_bytes = kChunkBytes});
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  Live live(1);
  while (live.size() < kRecords) live.Add(live.Fresh());
  const std::vector<uint64_t> sorted = live.Sorted();
  auto next = sorted.begin();
  ASSERT_TRUE(session
                  ->BulkLoad(*tree,
                             [&](KeyValue* entry) {
                               if (next == sorted.end()) return false;
                               *entry = {KeyOf(*next++), "v"};
                               return true;
                             })
                  .ok());
  // Eight erases, one insert.
  for (int task = 0; task < kTasks; ++task) {
    session->Spawn([&] {
      for (uint64_t n = 0; live.size() > kRecords / 10; ++n) {
        const bool inserts = n % 9 == 0;
        const uint64_t key = inserts ? live.Fresh() : live.TakeAny();
        const absl::Status status =
            inserts ? session->Insert(*tree, KeyOf(key), "w") : session->Erase(*tree, KeyOf(key));
        ASSERT_TRUE(status.ok()) << status;
        if (inserts) live.Add(key);
      }
    });
  }
  session->Run();
  const auto report = session->Check(*tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->ok()) << report->problems.front();
  EXPECT_EQ(report->keys, live.size());
  const NodeAccounting& nodes = report->nodes;
  const uint64_t least = NodesAtLeast(live.size(), *NodeLayout::Create(8, 8));
  std::printf("%zu records in %zu leaves; nodes in use %zu, held %zu, free %zu; at least %zu\n",
              size_t{report->keys}, size_t{report->nodes_per_level[0]}, size_t{nodes.reachable},
              size_t{nodes.held}, size_t{nodes.free}, size_t{least});
  EXPECT_EQ(nodes.orphans, 0u);
  EXPECT_LE(nodes.reachable + nodes.held, 3 * least) << "also with the client's spare nodes";
}

}  // namespace
}  // namespace pando

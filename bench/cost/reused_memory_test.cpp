// Memory of a tree's nodes that was given back serves something of another shape: nodes of another
// size, or values. A client whose cache still leads there finds its way again at once (rules V4,
// F3), though what it READs is no image of a node, and stays none.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

constexpr uint64_t kKeys = 20'000;
// The leaf of the first keys stays.
constexpr uint64_t kFirstErased = 100;
// The first look of each is led by a cache that nobody has told anything: each goes to another
// leaf.
constexpr uint64_t kReaders = 48;

class ReusedMemoryTest : public testing::Test {
 protected:
  struct Reader {
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::unique_ptr<Session> session;
  };

  // Most nodes of a tree are freed, and some chunks of them are given back.
  void SetUp() override {
    tree_ = *client_->CreateTree("tree", {.node_bytes = 4096});
    std::vector<KeyValue> entries;
    for (uint64_t n = 0; n < kKeys; ++n) entries.push_back({KeyOf(n), "value"});
    for (const absl::Status& put : session_->MultiPut(*tree_, entries)) ASSERT_TRUE(put.ok());
    for (uint64_t i = 0; i < kReaders; ++i) {
      Reader& reader = readers_.emplace_back();
      reader.client = cluster_.NewClient();
      reader.tree = *reader.client->OpenTree("tree");
      reader.session = *reader.client->NewSession();
      ASSERT_TRUE(reader.session->Get(*reader.tree, KeyOf(0)).ok());
    }
    ASSERT_TRUE(session_->EraseRange(*tree_, KeyOf(kFirstErased), KeyOf(kKeys)).ok());
    cluster_.world().RunUntil(cluster_.world().clock().NowNs() + 3 * kSecondNs);
    ASSERT_GT(cluster_.Counter("chunks_back"), 0u);
  }

  // `says_whose_it_is`: where the nodes began there is a whole line that says so.
  void ExpectReadersFindTheirWay(bool says_whose_it_is) {
    ASSERT_GT(cluster_.Counter("chunks_again"), 0u);
    const OperationOptions options = {.timeout_ms = 20};
    uint64_t met = 0, torn = 0, retries = 0;
    for (uint64_t i = 0; i < kReaders; ++i) {
      Reader& reader = readers_[i];
      const std::string key = KeyOf(kFirstErased + i * (kKeys - kFirstErased) / kReaders);
      const auto erased = reader.session->Get(*reader.tree, key, options);
      EXPECT_TRUE(absl::IsNotFound(erased.status())) << erased.status();
      std::vector<KeyValue> rows;
      const absl::Status scan = reader.session->Scan(*reader.tree, key, 10, &rows, options);
      EXPECT_TRUE(scan.ok() && rows.empty()) << scan;
      EXPECT_EQ(reader.session->Get(*reader.tree, KeyOf(1), options).value_or("lost"), "value");
      const TreeStats stats = reader.client->Stats().tree;
      met += stats.stale_retries > 0 ? 1 : 0;
      torn += stats.torn_retries > 0 ? 1 : 0;
      retries += stats.torn_retries;
    }
    EXPECT_GT(met, kReaders / 2) << "nobody's way leads to what is no node any more";
    if (says_whose_it_is) {
      EXPECT_EQ(torn, 0u) << "line 0 says enough, whatever is behind it";
    } else {
      EXPECT_GT(torn, 0u);
      EXPECT_LE(retries, 4 * torn) << "who meets it asks under its lock, and believes that";
    }
  }

  SimCluster cluster_{
      {.memory_servers = 1, .main_bytes = 2 << 20, .lock_words = 1024, .chunk_bytes = 64 << 10}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_ = *client_->NewSession();
  std::vector<Reader> readers_;
};

TEST_F(ReusedMemoryTest, ServesSmallerNodes) {
  const auto small = *client_->CreateTree("small", {.node_bytes = 1024});
  for (uint64_t n = 0; n < 6'000; ++n) {
    ASSERT_TRUE(session_->Put(*small, KeyOf(n * 7919 % 6'000), "small").ok());
  }
  ExpectReadersFindTheirWay(/*says_whose_it_is=*/true);
}

TEST_F(ReusedMemoryTest, ServesValues) {
  const auto large =
      *client_->CreateTree("large", {.value_bytes_max = 2000, .inline_value_bytes_max = 16});
  for (uint64_t n = 0; n < 400; ++n) {
    ASSERT_TRUE(session_->Put(*large, KeyOf(n), std::string(1900, static_cast<char>(n))).ok());
  }
  ExpectReadersFindTheirWay(/*says_whose_it_is=*/false);
}

// A client that is cut off, and has not heard of it, READs the root record that the catalog has
// left, or another tree's in its place. Neither is an answer about a key, or worth waiting for.
TEST(ReusedRootRecordTest, SaysThatTheTreeWasDropped) {
  for (const bool is_used_again : {false, true}) {
    SimCluster cluster({.sim = {.mode = sim::DeliveryMode::kWhole}});
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("tree", {});
    auto session = *client->NewSession();
    const TreeContext& context = ImplOf(*tree).context();
    const RemoteAddress record = context.entry.root_record;
    const uint32_t id = context.id() + (is_used_again ? 1 : 0);
    EncodeRootRecord({.tree_id = id, .root = {record, 0}, .dropped = !is_used_again},
                     cluster.At(record), context.environment.crc, cluster.At(record));
    const int64_t begun_ns = cluster.world().clock().NowNs();
    const absl::Status got = session->Get(*tree, "key").status();
    EXPECT_TRUE(absl::IsFailedPrecondition(got)) << got;
    EXPECT_LT(cluster.world().clock().NowNs() - begun_ns, kMillisecondNs);
  }
}

}  // namespace
}  // namespace pando

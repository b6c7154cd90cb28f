// Erasing ranges through the public API, of trees of both modes: bounds, results, who else writes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"

namespace pando {
namespace {

using Model = std::map<std::string, std::string>;

class EraseRangeTest : public testing::TestWithParam<TreeOptions::Mode> {
 protected:
  static constexpr uint32_t kKeyBytes = 6;

  EraseRangeTest() {
    auto created = client_->CreateTree(
        "t", {.key_bytes_max = kKeyBytes, .value_bytes_max = 8, .mode = GetParam()});
    EXPECT_TRUE(created.ok()) << created.status();
    tree_ = *std::move(created);
    session_ = *client_->NewSession();
  }

  // Keys of all lengths, of few bytes.
  static std::string RandomKey(Random* random, size_t bytes_max) {
    std::string key;
    for (size_t bytes = 1 + random->Uniform(bytes_max); key.size() < bytes;) {
      constexpr char kBytes[] = {'\0', '\1', 'a', 'b', 'c', '\x7f', '\xfe', '\xff'};
      key.push_back(kBytes[random->Uniform(sizeof(kBytes))]);
    }
    return key;
  }
  void Fill(Random* random, size_t keys, Model* model) {
    std::vector<KeyValue> entries;
    for (size_t n = 0; n < keys; ++n) {
      entries.push_back({RandomKey(random, kKeyBytes), std::to_string(n % 1000)});
      (*model)[entries.back().key] = entries.back().value;
    }
    for (const absl::Status& put : session_->MultiPut(*tree_, entries)) ASSERT_OK(put);
  }
  void ExpectHolds(const Model& model) {
    std::vector<KeyValue> rows;
    ASSERT_OK(session_->Scan(*tree_, {}, &rows));
    ASSERT_EQ(rows.size(), model.size());
    auto row = rows.begin();
    for (const auto& [key, value] : model) {
      ASSERT_EQ(*row, (KeyValue{key, value}));
      ++row;
    }
  }
  void Erase(const std::string& from, const std::optional<std::string>& to, Model* model) {
    const auto first = model->lower_bound(from);
    const auto last = to.has_value() ? model->lower_bound(*to) : model->end();
    const bool is_empty = to.has_value() && *to <= from;
    const auto count = is_empty ? 0 : std::distance(first, last);
    if (!is_empty) model->erase(first, last);
    RangeErased erased;
    ASSERT_OK(session_->EraseRange(*tree_, from, to, &erased));
    EXPECT_EQ(erased.erased, static_cast<uint64_t>(count));
    EXPECT_TRUE(erased.done);
  }

  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST_P(EraseRangeTest, AnyBoundsAsInAMap) {
  Random random(7);
  Model model;
  const int rounds = IntegrationCluster::is_slow() ? 20 : 100;
  for (int round = 0; round < rounds; ++round) {
    if (model.size() < 1'000) Fill(&random, 3'000, &model);
    const std::string from = random.Chance(0.1) ? "" : RandomKey(&random, 2 * kKeyBytes);
    std::optional<std::string> to;
    if (!random.Chance(0.1)) to = RandomKey(&random, 2 * kKeyBytes);
    // Mostly not much.
    if (to.has_value() && random.Chance(0.7)) to = from + *to;
    Erase(from, to, &model);
    if (round % 10 == 0) ExpectHolds(model);
  }
  ExpectHolds(model);
  Erase("", "", &model);
  ExpectHolds(model);
  Erase("", std::nullopt, &model);
  EXPECT_TRUE(model.empty());
  ExpectHolds(model);
  const auto report = session_->Check(*tree_);
  ASSERT_OK(report);
  EXPECT_TRUE(report->ok()) << report->problems.front();
  EXPECT_EQ(report->keys, 0u);
}

TEST_P(EraseRangeTest, SaysHowFarItHasComeAndGoesOnThere) {
  Random random(8);
  Model model;
  Fill(&random, 20'000, &model);
  EraseRangeOptions options;
  uint64_t seen = 0;
  std::string place;
  options.progress = [&](const RangeErased& so_far) {
    EXPECT_GE(so_far.erased, seen);
    EXPECT_GE(so_far.next, place);
    seen = so_far.erased;
    place = so_far.next;
    return seen == 0;
  };
  uint64_t erased = 0;
  std::string from;
  int calls = 0;
  for (bool done = false; !done; ++calls) {
    RangeErased result;
    seen = 0;
    const absl::Status status = session_->EraseRange(*tree_, from, std::nullopt, &result, options);
    ASSERT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    EXPECT_EQ(status.ok(), result.done);
    EXPECT_GE(result.next, from);
    erased += result.erased;
    from = result.next;
    done = result.done;
    // What is below is gone, and nothing else.
    model.erase(model.begin(), done ? model.end() : model.lower_bound(from));
    if (calls % 50 == 0) ExpectHolds(model);
  }
  EXPECT_GT(calls, 3);
  EXPECT_TRUE(model.empty());
  ExpectHolds(model);
}

TEST_P(EraseRangeTest, EndsWithWhatIsWrong) {
  Random random(9);
  Model model;
  Fill(&random, 3'000, &model);
  EXPECT_CODE(
      session_->EraseRange(*tree_, "", std::nullopt, nullptr, {.operation = {.timeout_ms = -1}}),
      InvalidArgument);
  ExpectHolds(model);
  EraseRangeOptions options;
  options.progress = [](const RangeErased&) -> bool { throw std::runtime_error("no more"); };
  const absl::Status thrown = session_->EraseRange(*tree_, "", std::nullopt, nullptr, options);
  EXPECT_CODE(thrown, Cancelled);
  EXPECT_NE(thrown.message().find("no more"), std::string::npos) << thrown;
  const auto other = cluster_.NewClient();
  const auto stranger = *other->OpenTree("t");
  EXPECT_CODE(session_->EraseRange(*stranger, "", std::nullopt), InvalidArgument);
}

// Others write what lies beside the range, and what lies in it: the first is there afterwards, and
// of the second what was put last may be.
TEST_P(EraseRangeTest, OthersWriteMeanwhile) {
  const auto key_of = [](uint64_t n) { return "k" + std::to_string(10'000 + n); };
  std::atomic<bool> is_over = false;
  std::vector<std::thread> writers;
  const int rounds = IntegrationCluster::is_slow() ? 3 : 30;
  for (uint64_t w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      auto tree = client_->OpenTree("t");
      auto session = client_->NewSession();
      ASSERT_OK(tree);
      ASSERT_OK(session);
      Random random(w);
      while (!is_over) {
        const std::string key = key_of(2 * random.Uniform(3'000) + w);
        ASSERT_OK((*session)->Put(**tree, key, "v"));
        const absl::StatusOr<std::string> got = (*session)->Get(**tree, key);
        if (key < key_of(2'000) || key >= key_of(4'000)) {
          ASSERT_OK(got);
        } else {
          ASSERT_TRUE(got.ok() || absl::IsNotFound(got.status())) << got.status();
        }
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    ASSERT_OK(session_->EraseRange(*tree_, key_of(2'000), key_of(4'000)));
  }
  is_over = true;
  for (std::thread& writer : writers) writer.join();
  ASSERT_OK(session_->EraseRange(*tree_, key_of(2'000), key_of(4'000)));
  std::vector<KeyValue> rows;
  ASSERT_OK(session_->Scan(*tree_, {.from = key_of(2'000), .to = key_of(4'000)}, &rows));
  EXPECT_TRUE(rows.empty());
  const auto report = session_->Check(*tree_);
  ASSERT_OK(report);
  EXPECT_TRUE(report->ok()) << report->problems.front();
}

INSTANTIATE_TEST_SUITE_P(Modes, EraseRangeTest,
                         testing::Values(TreeOptions::Mode::kShared, TreeOptions::Mode::kOwned),
                         [](const auto& info) {
                           return info.param == TreeOptions::Mode::kOwned ? "owned" : "shared";
                         });

}  // namespace
}  // namespace pando

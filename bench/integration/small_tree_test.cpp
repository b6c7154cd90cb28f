// Small trees from their first operation on: sessions that insert into an empty tree at once meet
// in one leaf, race for the first splits and for every growth of the root.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"

namespace pando {
namespace {

constexpr int kSessions = 8, kClients = 2;

struct Setting {
  const char* name;
  Techniques techniques;
};

Techniques Without(bool Techniques::*technique) {
  Techniques techniques;
  techniques.*technique = false;
  return techniques;
}

class SmallTreeTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    ClientOptions options = cluster_.ClientDefaults();
    options.techniques = GetParam().techniques;
    options.operation_timeout_ms = 120'000;  // sanitizers on a busy machine
    for (int c = 0; c < kClients; ++c) clients_.push_back(cluster_.NewClient(options));
  }

  // Runs `work(session, tree, number)` on all sessions at once, each on its thread.
  template <typename Work>
  void OnAllSessions(const std::string& name, const TreeOptions& options, Work work) {
    std::barrier start(kSessions);
    std::vector<std::thread> threads;
    for (int s = 0; s < kSessions; ++s) {
      threads.emplace_back([&, s] {
        Client& client = *clients_[static_cast<size_t>(s % kClients)];
        auto tree = client.CreateTree(name, options);
        auto session = client.NewSession();
        start.arrive_and_wait();
        ASSERT_OK(tree);
        ASSERT_OK(session);
        work(**session, **tree, s);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void ExpectContents(const std::string& name, const std::map<std::string, std::string>& model) {
    for (auto& client : clients_) {
      auto tree = client->OpenTree(name);
      auto session = client->NewSession();
      ASSERT_OK(tree);
      ASSERT_OK(session);
      std::vector<KeyValue> rows;
      ASSERT_OK((*session)->Scan(**tree, "", model.size() + 10, &rows));
      ASSERT_EQ(rows.size(), model.size());
      auto expected = model.begin();
      for (const KeyValue& row : rows) {
        ASSERT_EQ(row.key, expected->first);
        ASSERT_EQ(row.value, expected->second);
        ++expected;
      }
      for (const auto& [key, value] : model) {
        const auto found = (*session)->Get(**tree, key);
        ASSERT_OK(found);
        ASSERT_EQ(*found, value);
      }
      EXPECT_CODE((*session)->Get(**tree, "~"), NotFound);
    }
  }

  IntegrationCluster cluster_;
  std::vector<std::unique_ptr<Client>> clients_;
};

std::string ShuffledKey(uint64_t n) { return "k" + std::to_string(n * 7919 % 10'007); }

// Each session has keys of its own; all arrive.
TEST_P(SmallTreeTest, SessionsInsertTheirShares) {
  for (const uint64_t count : {1, 2, 5, 8, 42, 43, 50, 84, 130, 400, 1'000}) {
    const std::string name = "shares" + std::to_string(count);
    OnAllSessions(name, {}, [&](Session& session, Tree& tree, int s) {
      for (auto n = static_cast<uint64_t>(s); n < count; n += kSessions) {
        ASSERT_OK(session.Insert(tree, ShuffledKey(n), std::to_string(n)));
      }
    });
    std::map<std::string, std::string> model;
    for (uint64_t n = 0; n < count; ++n) model[ShuffledKey(n)] = std::to_string(n);
    ASSERT_NO_FATAL_FAILURE(ExpectContents(name, model)) << count;
  }
}

// All want all keys, in the same order: one of them gets each.
TEST_P(SmallTreeTest, SessionsRaceForEveryKey) {
  for (const uint64_t count : {1, 43, 300}) {
    const std::string name = "race" + std::to_string(count);
    std::vector<std::atomic<int>> winners(count), owner(count);
    OnAllSessions(name, {}, [&](Session& session, Tree& tree, int s) {
      for (uint64_t n = 0; n < count; ++n) {
        const absl::Status status = session.Insert(tree, ShuffledKey(n), std::to_string(s));
        if (status.ok()) {
          ++winners[n];
          owner[n] = s;
        } else {
          EXPECT_CODE(status, AlreadyExists);
        }
      }
    });
    std::map<std::string, std::string> model;
    for (uint64_t n = 0; n < count; ++n) {
      ASSERT_EQ(winners[n], 1) << n << " of " << count;
      model[ShuffledKey(n)] = std::to_string(owner[n]);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectContents(name, model)) << count;
  }
}

// Nodes of four slots: a thousand keys make a tree of many levels, so everything splits all the
// time. Coroutines on top of threads, and erased keys among the inserted ones.
TEST_P(SmallTreeTest, DeepTreesOfTinyNodes) {
  constexpr uint64_t kCount = 1'000;
  const TreeOptions tiny{.key_bytes_max = 60, .value_bytes_max = 60, .node_bytes = 1024};
  OnAllSessions("deep", tiny, [&](Session& session, Tree& tree, int s) {
    for (uint64_t c = 0; c < 4; ++c) {
      session.Spawn([&, s, c] {
        for (auto n = static_cast<uint64_t>(s) * 4 + c; n < kCount; n += kSessions * 4) {
          const std::string key = std::string(50, 'p') + ShuffledKey(n);
          ASSERT_OK(session.Put(tree, key, "first"));
          if (n % 3 == 0) {
            ASSERT_OK(session.Erase(tree, key));
          }
          if (n % 3 == 1) {
            ASSERT_OK(session.Update(tree, key, "second"));
          }
        }
      });
    }
    session.Run();
  });
  std::map<std::string, std::string> model;
  for (uint64_t n = 0; n < kCount; ++n) {
    if (n % 3 != 0) model[std::string(50, 'p') + ShuffledKey(n)] = n % 3 == 1 ? "second" : "first";
  }
  ASSERT_NO_FATAL_FAILURE(ExpectContents("deep", model));
  uint64_t splits = 0;
  for (auto& client : clients_) splits += client->Stats().tree.splits;
  EXPECT_GT(splits, 50u);
}

INSTANTIATE_TEST_SUITE_P(
    Techniques, SmallTreeTest,
    testing::Values(Setting{"Everything", Techniques::Everything()},
                    Setting{"Sherman", Techniques::Sherman()},
                    Setting{"FgPlus", Techniques::FgPlus()},
                    Setting{"NoCombining", Without(&Techniques::operation_combining)},
                    Setting{"NoHandover", Without(&Techniques::handover)},
                    Setting{"NoLocalLocks", Without(&Techniques::local_locks)},
                    Setting{"NoWaitQueue", Without(&Techniques::wait_queue)}),
    [](const testing::TestParamInfo<Setting>& info) { return info.param.name; });

}  // namespace
}  // namespace pando

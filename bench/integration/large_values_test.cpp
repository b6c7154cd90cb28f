// Values that lie outside the leaves while clients on threads of their own replace them: no client
// ever sees a torn, stale or foreign one, and in the end no memory is left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"
#include "pando/check.h"

namespace pando {
namespace {

constexpr int kLargeClients = 2, kLargeThreads = 2, kLargeTasks = 3;  // of a client; of a thread
constexpr int kLargeWorkers = kLargeClients * kLargeThreads * kLargeTasks;
constexpr int kLargeOwnKeys = 4;     // of each worker, which alone writes them
constexpr int kLargeSharedKeys = 3;  // that all of them write
const int kLargeRounds = IntegrationCluster::is_slow() ? 40 : 400;
constexpr auto kLargeNext = static_cast<UpsertFunction>(1024);
constexpr size_t kStampBytes = 12;

// The state of a key after so many writes; nothing: it is erased. A value says by itself of which
// key and write it is, unless it is empty.
std::optional<std::string> LargeStateAfter(uint32_t key, uint64_t writes, bool may_be_absent) {
  Random random(writes * 1'000'003 + key);
  const uint64_t kind = random.Uniform(16);
  if (may_be_absent && (kind < 2 || writes == 0)) return std::nullopt;
  if (may_be_absent && kind == 2) return std::string();
  static constexpr std::array<size_t, 8> kLengths = {kStampBytes, 40,  41,     255,
                                                     256,         959, 65'535, 65'536};
  const size_t length = kind < 11 ? kLengths[random.Uniform(kLengths.size())]
                                  : kStampBytes + random.Uniform(65'536 - kStampBytes);
  std::string value(length, '\0');
  std::memcpy(value.data(), &key, sizeof(key));
  std::memcpy(value.data() + sizeof(key), &writes, sizeof(writes));
  for (size_t at = kStampBytes; at < length; at += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    std::memcpy(value.data() + at, &word, std::min(sizeof(word), length - at));
  }
  return value;
}

std::optional<uint64_t> LargeWritesOf(std::string_view value) {
  if (value.size() < kStampBytes) return std::nullopt;
  uint64_t writes = 0;
  std::memcpy(&writes, value.data() + sizeof(uint32_t), sizeof(writes));
  return writes;
}

std::string LargeKey(uint32_t key) { return "key-" + std::to_string(1000 + key); }

// Of a key that one worker writes: how many writes have begun, and how many were acknowledged.
struct LargeKeyWrites {
  std::atomic<uint64_t> begun{0}, done{0};
};

class LargeValuesWork {
 public:
  static constexpr uint32_t kKeys = kLargeWorkers * kLargeOwnKeys + kLargeSharedKeys;
  static bool IsShared(uint32_t key) { return key >= kLargeWorkers * kLargeOwnKeys; }

  // One client's life.
  void Run(IntegrationCluster* cluster, int client_number) {
    const auto client = cluster->NewClient();
    // The next state of a key that all write.
    const absl::Status registered = client->RegisterUpsertFunction(
        static_cast<uint32_t>(kLargeNext),
        [](std::string_view, std::optional<std::string_view> present,
           std::string_view operand) -> absl::StatusOr<std::string> {
          uint32_t key = 0;
          std::memcpy(&key, operand.data(), sizeof(key));
          const uint64_t writes = present.has_value() ? LargeWritesOf(*present).value_or(0) : 0;
          return *LargeStateAfter(key, writes + 1, false);
        });
    Expect(registered.ok(), registered.ToString());
    const auto tree = *client->OpenTree("large");
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kLargeThreads; ++thread) {
      threads.emplace_back([&, thread] {
        const auto session = *client->NewSession();
        for (int task = 0; task < kLargeTasks; ++task) {
          const int worker = (client_number * kLargeThreads + thread) * kLargeTasks + task;
          session->Spawn([&, worker] { Work(session.get(), *tree, worker); });
        }
        session->Run();
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Owners' slots are at hand, and no place is remembered.
    const bool remembers = tree->mode() == TreeOptions::Mode::kShared;
    Expect(!remembers || client->Stats().tree.place_hits > 0,
           "no value was where it had been met before");
  }

  // When all have ended: the last state of every key, once each upsert counts.
  void ExpectEnd(Session* session, const Tree& tree) {
    for (uint32_t key = 0; key < kKeys; ++key) {
      const uint64_t writes = IsShared(key)
                                  ? shared_writes_[key - kLargeWorkers * kLargeOwnKeys].load()
                                  : own_[key].done.load();
      const std::optional<std::string> state = LargeStateAfter(key, writes, !IsShared(key));
      const auto value = session->Get(tree, LargeKey(key));
      EXPECT_EQ(value.ok(), state.has_value()) << LargeKey(key) << ": " << value.status();
      if (value.ok() && state.has_value()) {
        EXPECT_TRUE(*value == *state) << LargeKey(key);
      }
    }
  }
  std::vector<std::string> problems() {
    const std::lock_guard lock(mutex_);
    return problems_;
  }

 private:
  void Expect(bool holds, const std::string& what) {
    if (holds) return;
    const std::lock_guard lock(mutex_);
    if (problems_.size() < 20) problems_.push_back(what);
  }

  // What somebody read of a key; nothing: it was absent. `low` writes were done before that.
  void ExpectSeen(uint32_t key, uint64_t low, const std::optional<std::string>& seen,
                  const char* by) {
    const uint64_t high = IsShared(key) ? UINT64_MAX : own_[key].begun.load();
    const std::optional<uint64_t> said = seen.has_value() ? LargeWritesOf(*seen) : std::nullopt;
    bool found = false;
    if (said.has_value()) {
      found = *said >= low && *said <= high && LargeStateAfter(key, *said, !IsShared(key)) == seen;
    } else if (!IsShared(key)) {
      for (uint64_t n = low; n <= high && !found; ++n)
        found = LargeStateAfter(key, n, true) == seen;
    }
    Expect(found, std::string(by) + " sees " +
                      (seen.has_value() ? std::to_string(seen->size()) + " bytes" : "nothing") +
                      " of " + LargeKey(key) + " after " + std::to_string(low) + " to " +
                      std::to_string(high) + " writes; they say " +
                      std::to_string(said.value_or(0)));
  }
  uint64_t DoneBefore(uint32_t key) const {
    return IsShared(key) ? shared_seen_[key - kLargeWorkers * kLargeOwnKeys].load()
                         : own_[key].done.load();
  }

  // The write that leads from one state to the next.
  Write NextWrite(uint32_t key, Random* random) {
    const uint64_t writes = own_[key].done.load();
    const std::optional<std::string> from = LargeStateAfter(key, writes, true),
                                     to = LargeStateAfter(key, writes + 1, true);
    Write write{.key = LargeKey(key)};
    if (to.has_value()) write.value = *to;
    if (!to.has_value()) {
      write.kind =
          from.has_value() && random->Uniform(2) == 0 ? Write::Kind::kEraseIf : Write::Kind::kErase;
    } else if (!from.has_value()) {
      write.kind = random->Uniform(2) == 0 ? Write::Kind::kInsert : Write::Kind::kPut;
    } else {
      constexpr std::array kKinds = {Write::Kind::kPut, Write::Kind::kUpdate,
                                     Write::Kind::kReplace};
      write.kind = kKinds[random->Uniform(kKinds.size())];
    }
    if (from.has_value()) write.expected = *from;
    return write;
  }
  void ExpectWritten(uint32_t key, const Write& write, const absl::Status& status) {
    const bool was_there = LargeStateAfter(key, own_[key].done.load(), true).has_value();
    const bool is_right =
        write.kind == Write::Kind::kErase && !was_there ? absl::IsNotFound(status) : status.ok();
    Expect(is_right, "a write of " + LargeKey(key) + ": " + status.ToString());
    own_[key].done.store(own_[key].begun.load());
  }

  void WriteOwn(Session* session, const Tree& tree, int worker, Random* random) {
    std::vector<Write> writes;
    std::vector<uint32_t> keys;
    for (uint32_t i = 0; i < kLargeOwnKeys; ++i) {
      const uint32_t key = static_cast<uint32_t>(worker) * kLargeOwnKeys + i;
      if (random->Uniform(2) == 0) continue;
      keys.push_back(key);
      writes.push_back(NextWrite(key, random));
      own_[key].begun.fetch_add(1);
    }
    const std::vector<WriteResult> results = session->WriteMany(tree, writes);
    for (size_t i = 0; i < keys.size(); ++i) ExpectWritten(keys[i], writes[i], results[i].status);
  }

  void WriteShared(Session* session, const Tree& tree, uint32_t number, Random* random) {
    const uint32_t key = kLargeWorkers * kLargeOwnKeys + number;
    const uint64_t low = shared_seen_[number].load();
    std::string value;
    if (random->Uniform(2) == 0) {
      const std::string operand(reinterpret_cast<const char*>(&key), sizeof(key));
      const auto made = session->Upsert(tree, LargeKey(key), kLargeNext, operand);
      Expect(made.ok(), "an upsert: " + made.status().ToString());
      if (!made.ok()) return;
      value = *made;
      shared_writes_[number].fetch_add(1);
    } else {
      // The same by hand: it may be overtaken.
      const auto present = session->Get(tree, LargeKey(key));
      Expect(present.ok(), "a get of what is never erased: " + present.status().ToString());
      if (!present.ok()) return;
      ExpectSeen(key, low, *present, "a get");
      const std::string next =
          *LargeStateAfter(key, LargeWritesOf(*present).value_or(0) + 1, false);
      const absl::Status replaced =
          session->Replace(tree, LargeKey(key), *present, next, {}, &value);
      Expect(replaced.ok() || IsConditionFailed(replaced), "a replace: " + replaced.ToString());
      if (replaced.ok()) {
        shared_writes_[number].fetch_add(1);
        value = next;
      }
    }
    ExpectSeen(key, low, value, "a write");
    // What was seen once nobody sees an older state of.
    const uint64_t writes = LargeWritesOf(value).value_or(0);
    uint64_t seen = shared_seen_[number].load();
    while (seen < writes && !shared_seen_[number].compare_exchange_weak(seen, writes)) {
    }
  }

  void ReadSome(Session* session, const Tree& tree, Random* random) {
    std::vector<uint32_t> keys;
    std::vector<uint64_t> low;
    std::vector<std::string> names;
    for (int i = 0; i < 3; ++i) {
      keys.push_back(static_cast<uint32_t>(random->Uniform(kKeys)));
      low.push_back(DoneBefore(keys.back()));
      names.push_back(LargeKey(keys.back()));
    }
    const auto values = session->MultiGet(tree, names);
    for (size_t i = 0; i < keys.size(); ++i) {
      Expect(values[i].ok() || absl::IsNotFound(values[i].status()), values[i].status().ToString());
      ExpectSeen(keys[i], low[i],
                 values[i].ok() ? std::optional<std::string>(*values[i]) : std::nullopt, "a get");
    }
  }

  // Keys that are absent throughout are missing from it, and no others.
  void ScanSome(Session* session, const Tree& tree, Random* random) {
    const auto first = static_cast<uint32_t>(random->Uniform(kKeys));
    const uint32_t end = std::min(first + 12, kKeys);
    std::vector<uint64_t> low;
    for (uint32_t key = first; key < end; ++key) low.push_back(DoneBefore(key));
    std::vector<KeyValue> rows;
    const absl::Status scanned = session->Scan(
        tree, {.from = LargeKey(first), .to = LargeKey(end), .reverse = random->Uniform(2) == 0},
        &rows);
    Expect(scanned.ok(), "a scan: " + scanned.ToString());
    for (uint32_t key = first; key < end && scanned.ok(); ++key) {
      std::optional<std::string> seen;
      for (const KeyValue& row : rows) {
        if (row.key == LargeKey(key)) seen = row.value;
      }
      ExpectSeen(key, low[key - first], seen, "a scan");
    }
  }

  void Work(Session* session, const Tree& tree, int worker) {
    Random random(static_cast<uint64_t>(worker) + 1);
    for (int round = 0; round < kLargeRounds; ++round) {
      WriteOwn(session, tree, worker, &random);
      if (random.Uniform(2) == 0) {
        WriteShared(session, tree, static_cast<uint32_t>(random.Uniform(kLargeSharedKeys)),
                    &random);
      }
      ReadSome(session, tree, &random);
      if (random.Uniform(8) == 0) ScanSome(session, tree, &random);
    }
  }

  std::array<LargeKeyWrites, kLargeWorkers * kLargeOwnKeys> own_;
  // Of keys that all write: writes that took effect; the most that somebody has seen.
  std::array<std::atomic<uint64_t>, kLargeSharedKeys> shared_writes_{}, shared_seen_{};
  std::mutex mutex_;
  std::vector<std::string> problems_;
};

class LargeValues : public testing::TestWithParam<TreeOptions::Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, LargeValues,
                         testing::Values(TreeOptions::Mode::kShared, TreeOptions::Mode::kOwned),
                         [](const auto& info) {
                           return info.param == TreeOptions::Mode::kOwned ? "owned" : "shared";
                         });

TEST_P(LargeValues, ThreadsReadAndReplaceThem) {
  IntegrationCluster cluster({.main_bytes = uint64_t{256} << 20, .chunk_bytes = 1 << 20});
  const auto observer = cluster.NewClient();
  const auto tree = *observer->CreateTree(
      "large", {.value_bytes_max = 65'536, .mode = GetParam(), .inline_value_bytes_max = 40});
  const auto session = *observer->NewSession();
  for (uint32_t key = LargeValuesWork::kKeys - kLargeSharedKeys; key < LargeValuesWork::kKeys;
       ++key) {
    ASSERT_TRUE(session->Put(*tree, LargeKey(key), *LargeStateAfter(key, 0, false)).ok());
  }
  LargeValuesWork work;
  std::vector<std::thread> clients;
  for (int client = 0; client < kLargeClients; ++client) {
    clients.emplace_back([&, client] { work.Run(&cluster, client); });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& problem : work.problems()) ADD_FAILURE() << problem;
  work.ExpectEnd(session.get(), *tree);

  SweepResult swept;
  ASSERT_TRUE(session->Sweep(*tree, &swept).ok());
  EXPECT_EQ(swept.left, 0u);
  const auto report = session->Check(*tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->problems, std::vector<std::string>());
  EXPECT_GT(report->cells, 0u);
  EXPECT_EQ(report->cells_unused, 0u);
  EXPECT_EQ(report->nodes.orphans, 0u);
}

}  // namespace
}  // namespace pando

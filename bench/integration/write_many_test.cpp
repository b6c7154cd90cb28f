// Many writes in one call: a result each, in their order, whatever becomes of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/bystander.h"
#include "common/base/random.h"
#include "common/wire/lock_word.h"
#include "pando/check.h"

namespace pando {
namespace {

using Model = std::map<std::string, std::string>;

// What a write that is executed alone does, and says.
WriteResult Expected(const Write& write, Model* model) {
  const auto at = model->find(write.key);
  const bool there = at != model->end();
  const auto refused = [&](const std::string& actual) {
    return WriteResult{absl::FailedPreconditionError(""), actual};
  };
  switch (write.kind) {
    case Write::Kind::kPut:
      (*model)[write.key] = write.value;
      return {};
    case Write::Kind::kInsert:
      if (there) return {absl::AlreadyExistsError(""), ""};
      model->emplace(write.key, write.value);
      return {};
    case Write::Kind::kUpsert: {
      std::string& value = (*model)[write.key];
      if (!there) {
        value = write.value;
      } else if (write.function == UpsertFunction::kAppend) {
        if (value.size() + write.value.size() > 8) return refused(value);
        value += write.value;
      } else {
        const auto number = ParseInt64Value(value);
        if (!number.has_value()) return refused(value);
        value = Int64Value(*number + *ParseInt64Value(write.value));
      }
      return {absl::OkStatus(), value};
    }
    default:
      break;
  }
  if (!there) return {absl::NotFoundError(""), ""};
  const bool conditional =
      write.kind == Write::Kind::kReplace || write.kind == Write::Kind::kEraseIf;
  if (conditional && at->second != write.expected) return refused(at->second);
  if (write.kind == Write::Kind::kErase || write.kind == Write::Kind::kEraseIf) {
    model->erase(at);
  } else {
    at->second = write.value;
  }
  return {};
}

class WriteManyTest : public OneTreeTest {
 protected:
  explicit WriteManyTest(const IntegrationCluster::Options& options = {}) : OneTreeTest(options) {}

  // Executes them, and compares what each says with what it says where they come one by one.
  void WriteAndCompare(const std::vector<Write>& writes, Model* model) {
    const std::vector<WriteResult> results = session_->WriteMany(*tree_, writes);
    ASSERT_EQ(results.size(), writes.size());
    for (size_t i = 0; i < writes.size(); ++i) {
      const WriteResult expected = Expected(writes[i], model);
      ASSERT_EQ(results[i].status.code(), expected.status.code())
          << i << ": " << results[i].status << " of " << writes[i].key;
      ASSERT_EQ(results[i].value, expected.value) << i << " of " << writes[i].key;
      ASSERT_EQ(IsConditionFailed(results[i].status),
                expected.status.code() == absl::StatusCode::kFailedPrecondition);
    }
  }
  void ExpectHolds(const Model& model) {
    std::vector<KeyValue> rows;
    ASSERT_OK(session_->Scan(*tree_, "", SIZE_MAX, &rows));
    std::vector<KeyValue> expected;
    for (const auto& [key, value] : model) expected.push_back({key, value});
    ASSERT_EQ(rows, expected);
    session_->Run();  // what is still to be merged
    const auto report = session_->Check(*tree_, {.quiet_tree = true});
    ASSERT_OK(report);
    EXPECT_THAT(report->problems, testing::IsEmpty());
    EXPECT_EQ(report->keys, model.size());
  }
  void SetLockWords(uint64_t value) {
    for (int server = 1; server <= 2; ++server) {
      auto* const words = reinterpret_cast<uint64_t*>(cluster_.memory(server).locks.data());
      for (uint32_t i = kRootLockWords; i < cluster_.lock_words(); ++i) {
        std::atomic_ref<uint64_t>(words[i]).store(value);
      }
    }
  }
};

TEST_F(WriteManyTest, EveryKindSaysWhatItSaysAlone) {
  Model model;
  WriteAndCompare({{.kind = Write::Kind::kPut, .key = "b", .value = "1"},
                   {.kind = Write::Kind::kInsert, .key = "a", .value = "2"},
                   {.kind = Write::Kind::kInsert, .key = "b", .value = "3"},
                   {.kind = Write::Kind::kUpdate, .key = "none", .value = "4"},
                   {.kind = Write::Kind::kUpdate, .key = "a", .value = "5"},
                   {.kind = Write::Kind::kErase, .key = "none"},
                   {.kind = Write::Kind::kReplace, .key = "a", .value = "6", .expected = "2"},
                   {.kind = Write::Kind::kReplace, .key = "a", .value = "7", .expected = "5"},
                   {.kind = Write::Kind::kEraseIf, .key = "b", .expected = "3"},
                   {.kind = Write::Kind::kEraseIf, .key = "b", .expected = "1"},
                   {.kind = Write::Kind::kUpsert, .key = "n", .value = Int64Value(40)},
                   {.kind = Write::Kind::kUpsert, .key = "n", .value = Int64Value(2)},
                   {.kind = Write::Kind::kUpsert, .key = "a", .value = Int64Value(2)},
                   {.kind = Write::Kind::kErase, .key = "a"}},
                  &model);
  ExpectHolds(model);
  EXPECT_EQ(model, (Model{{"n", Int64Value(42)}}));
  EXPECT_TRUE(session_->WriteMany(*tree_, {}).empty());
}

// All kinds in any order, of few keys and of many, so that most keys come several times: only one
// order of those on each key gives these results.
TEST_F(WriteManyTest, OfOneKeyTheyTakeEffectInTheirOrder) {
  Random random(1);
  Model model;
  for (const uint64_t keys : {3, 100, 4'000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<Write> writes(1 + random.Uniform(2'000));
      for (Write& write : writes) {
        write.kind = static_cast<Write::Kind>(random.Uniform(7));
        write.key = NumberedKey(random.Uniform(keys));
        write.value = std::to_string(random.Uniform(3));
        const auto present = model.find(write.key);
        const bool as_it_was = present != model.end() && random.Chance(0.5);
        write.expected = as_it_was ? present->second : std::to_string(random.Uniform(3));
        if (write.kind != Write::Kind::kUpsert) continue;
        if (random.Chance(0.5)) {
          write.function = UpsertFunction::kAppend;
        } else {
          write.value = Int64Value(static_cast<int64_t>(random.Uniform(9)));
        }
      }
      ASSERT_NO_FATAL_FAILURE(WriteAndCompare(writes, &model));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(model));
  }
}

TEST_F(WriteManyTest, TenThousandKeysInAnyOrder) {
  constexpr uint64_t kKeys = 10'000;
  Model model;
  std::vector<Write> writes;
  for (uint64_t n = 0; n < kKeys; ++n) {
    const uint64_t number = n * 7919 % kKeys;
    writes.push_back({.kind = Write::Kind::kInsert, .key = NumberedKey(number), .value = "in"});
  }
  WriteAndCompare(writes, &model);
  ExpectHolds(model);
  WriteAndCompare(writes, &model);  // they are there
  std::vector<KeyValue> entries;
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kKeys; n += 2) entries.push_back({NumberedKey(kKeys + n), "put"});
  for (uint64_t n = 0; n < kKeys; ++n) keys.push_back(NumberedKey(kKeys - 1 + n));
  for (const absl::Status& put : session_->MultiPut(*tree_, entries)) ASSERT_OK(put);
  const std::vector<absl::Status> erased = session_->MultiErase(*tree_, keys);
  for (uint64_t n = 0; n < kKeys; ++n) {
    // One of the first ten thousand; then every other one is there.
    const bool there = n % 2 == 1 || n == 0;
    ASSERT_EQ(erased[n].code(), there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
  }
  model.erase(NumberedKey(kKeys - 1));
  ExpectHolds(model);
}

TEST_F(WriteManyTest, WhatIsNoGoodIsRefusedAlone) {
  ASSERT_OK(
      client_->RegisterUpsertFunction(1024,
                                      [](std::string_view, std::optional<std::string_view>,
                                         std::string_view operand) -> absl::StatusOr<std::string> {
                                        if (operand == "no")
                                          return absl::InternalError("not today");
                                        if (operand == "long") return std::string(9, 'x');
                                        return std::string(operand);
                                      }));
  const auto unknown = static_cast<UpsertFunction>(7'777);
  const auto own = UpsertFunction::kFirstRegistered;
  const std::vector<Write> writes = {
      {.key = "first", .value = "1"},
      {.key = "", .value = "1"},
      {.key = "much too long", .value = "1"},
      {.key = "key", .value = "much too long"},
      {.kind = Write::Kind::kReplace, .key = "first", .value = "much too long", .expected = "1"},
      {.kind = Write::Kind::kUpsert, .key = "key", .value = Int64Value(1), .function = unknown},
      {.kind = Write::Kind::kUpsert, .key = "key", .value = "1"},
      {.kind = Write::Kind::kUpsert, .key = "key", .value = "no", .function = own},
      {.kind = Write::Kind::kUpsert, .key = "key", .value = "long", .function = own},
      {.kind = Write::Kind::kUpsert, .key = "key", .value = "fits", .function = own},
      {.kind = Write::Kind::kReplace, .key = "first", .value = "2", .expected = "much too long"},
      {.kind = Write::Kind::kEraseIf, .key = "first", .value = "much too long", .expected = "1"},
      {.key = "last", .value = ""}};
  const std::vector<WriteResult> results = session_->WriteMany(*tree_, writes);
  for (const size_t i : {1, 2, 3, 4, 5, 6}) {
    EXPECT_CODE(results[i].status, InvalidArgument) << i;
    EXPECT_EQ(results[i].value, "");
  }
  EXPECT_NE(results[2].status.message().find("13 bytes"), std::string::npos) << results[2].status;
  EXPECT_NE(results[5].status.message().find("7777"), std::string::npos) << results[5].status;
  for (const size_t i : {7, 8, 10}) EXPECT_TRUE(IsConditionFailed(results[i].status)) << i;
  for (const size_t i : {0, 9, 11, 12}) EXPECT_OK(results[i].status) << i;
  EXPECT_EQ(results[9].value, "fits");
  EXPECT_EQ(results[10].value, "1");
  ExpectHolds({{"key", "fits"}, {"last", ""}});
  const auto multi_erased = session_->MultiErase(*tree_, {"", "last", "none"});
  EXPECT_CODE(multi_erased[0], InvalidArgument);
  EXPECT_OK(multi_erased[1]);
  EXPECT_CODE(multi_erased[2], NotFound);

  for (const WriteResult& result : session_->WriteMany(*tree_, writes, {.timeout_ms = -1})) {
    EXPECT_CODE(result.status, InvalidArgument);
  }
  const auto other_client = cluster_.NewClient();
  const auto other_session = *other_client->NewSession();
  for (const WriteResult& result : other_session->WriteMany(*tree_, writes)) {
    EXPECT_CODE(result.status, InvalidArgument);
  }
  const auto another = *client_->NewSession();
  session_->Spawn([&] {
    for (const WriteResult& result : another->WriteMany(*tree_, {{.key = "a"}, {.key = "z"}})) {
      EXPECT_CODE(result.status, FailedPrecondition);
    }
  });
  session_->Run();
  ExpectHolds({{"key", "fits"}});
}

TEST_F(WriteManyTest, WhatHadNoTurnByTheDeadlineHadNoEffect) {
  constexpr int64_t kTimeoutMs = 100;
  std::vector<Write> writes;
  for (uint64_t n = 0; n < 5'000; ++n) {
    writes.push_back({.kind = Write::Kind::kInsert, .key = NumberedKey(n), .value = "v"});
  }
  const std::vector<Write> some(writes.begin(), writes.begin() + 2'000);
  for (const WriteResult& result : session_->WriteMany(*tree_, some)) ASSERT_OK(result.status);
  SetLockWords(LockWord{777, 5}.Encode());
  const Bystander bystander;
  const auto start = std::chrono::steady_clock::now();
  const auto results = session_->WriteMany(*tree_, writes, {.timeout_ms = kTimeoutMs});
  const auto took = std::chrono::steady_clock::now() - start;
  SetLockWords(LockWord::kFree);
  EXPECT_GE(took, std::chrono::milliseconds(kTimeoutMs));
  EXPECT_LT(took, bystander.Bound(std::chrono::milliseconds(3 * kTimeoutMs)));
  for (const WriteResult& result : results) {
    ASSERT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  }
  EXPECT_NE(results.back().status.message().find("no effect"), std::string::npos)
      << results.back().status;
  Model model;
  for (const Write& write : some) model[write.key] = "v";
  ExpectHolds(model);
  for (const WriteResult& result : session_->WriteMany(*tree_, writes)) {
    ASSERT_TRUE(result.status.ok() || absl::IsAlreadyExists(result.status)) << result.status;
  }
}

// Sessions of two clients add to the same counters in large batches, tasks of theirs at the same
// time: each addition counts once.
TEST_F(WriteManyTest, ManySessionsOnTheSameKeys) {
  constexpr uint64_t kKeys = 500, kBatch = 800;
  constexpr int kThreads = 4, kTasks = 3, kRounds = 10;
  const auto other_client = cluster_.NewClient();
  const auto other_tree = *other_client->OpenTree("t");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto session = *(t % 2 == 0 ? client_ : other_client)->NewSession();
      const Tree& tree = t % 2 == 0 ? *tree_ : *other_tree;
      for (int task = 0; task < kTasks; ++task) {
        session->Spawn([&, task] {
          Random random(static_cast<uint64_t>(t * kTasks + task));
          for (int round = 0; round < kRounds; ++round) {
            std::vector<Write> writes(kBatch);
            for (Write& write : writes) {
              write = {.kind = Write::Kind::kUpsert,
                       .key = NumberedKey(random.Uniform(kKeys)),
                       .value = Int64Value(1)};
            }
            for (const WriteResult& result : session->WriteMany(tree, writes)) {
              ASSERT_OK(result.status);
            }
          }
        });
      }
      session->Run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t sum = 0;
  std::vector<KeyValue> rows;
  ASSERT_OK(session_->Scan(*tree_, "", SIZE_MAX, &rows));
  for (const KeyValue& row : rows) sum += *ParseInt64Value(row.value);
  EXPECT_EQ(sum, int64_t{kThreads} * kTasks * kRounds * int64_t{kBatch});
}

class WriteManyInLittleMemoryTest : public WriteManyTest {
 protected:
  WriteManyInLittleMemoryTest()
      : WriteManyTest({.main_bytes = 256 << 10, .lock_words = 1024, .chunk_bytes = 64 << 10}) {}
};

TEST_F(WriteManyInLittleMemoryTest, WhatFitsIsStoredAndTheRestIsResourceExhausted) {
  constexpr uint64_t kKeys = 16'000;
  Model model;
  std::vector<Write> writes;
  for (uint64_t n = 0; n < 1'000; ++n) {
    writes.push_back({.key = NumberedKey(n * 7919 % kKeys), .value = "first"});
  }
  WriteAndCompare(writes, &model);
  for (Write& write : writes) write.value = "second";
  for (uint64_t n = 1'000; n < kKeys; ++n) {
    writes.push_back(
        {.kind = Write::Kind::kInsert, .key = NumberedKey(n * 7919 % kKeys), .value = "v"});
  }
  // Each that finds no room asks the servers, which takes its time in a slow build.
  const std::vector<WriteResult> results =
      session_->WriteMany(*tree_, writes, {.timeout_ms = 100'000});
  size_t refused = 0;
  for (size_t i = 0; i < writes.size(); ++i) {
    if (results[i].status.ok()) {
      model[writes[i].key] = writes[i].value;
      continue;
    }
    ASSERT_TRUE(absl::IsResourceExhausted(results[i].status)) << results[i].status;
    ASSERT_GE(i, 1'000u) << "an update needs no memory";
    ++refused;
  }
  std::printf("%zu refused, %zu stored\n", refused, model.size());
  EXPECT_GT(refused, 1'000u);
  EXPECT_GT(model.size(), 5'000u);
  ExpectHolds(model);
}

}  // namespace
}  // namespace pando

// A deadline is of the whole call: in virtual time, so to the chain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "common/base/clock.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

class CallDeadlineTest : public testing::Test {
 protected:
  static constexpr uint64_t kRecords = 100'000;

  // What the call takes, ns of virtual time.
  template <typename Call>
  int64_t Timed(const Call& call) {
    const int64_t start_ns = loaded_.cluster.world().clock().NowNs();
    call();
    return loaded_.cluster.world().clock().NowNs() - start_ns;
  }
  // Every word of the lock tables but those of root records: somebody has it who never gives it up.
  void SetLocks(uint64_t word) {
    for (int server = 1; server <= loaded_.cluster.memory_servers(); ++server) {
      const auto locks = loaded_.cluster.world().Memory(static_cast<ServerId>(server)).locks;
      for (size_t at = kRootLockWords * sizeof(word); at < locks.size(); at += sizeof(word)) {
        std::memcpy(locks.data() + at, &word, sizeof(word));
      }
    }
  }
  int64_t chain_ns() { return ImplOf(*loaded_.session).context().chain_ns(); }

  // Few coroutines: with many a millisecond is enough for all records.
  LoadedTree loaded_{
      {.sim = {.mode = sim::DeliveryMode::kWhole}}, {.coroutines_per_session = 8}, kRecords};
  Session& session_ = *loaded_.session;
  Tree& tree_ = *loaded_.tree;
};

template <typename Result>
size_t CountOf(const std::vector<Result>& results, absl::StatusCode code) {
  return static_cast<size_t>(
      std::count_if(results.begin(), results.end(), [code](const Result& result) {
        if constexpr (std::is_same_v<Result, absl::Status>) {
          return result.code() == code;
        } else {
          return result.status().code() == code;
        }
      }));
}

TEST_F(CallDeadlineTest, ManyGetsEndWithTheCall) {
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kRecords; ++n) keys.push_back(KeyOf(2 * n));
  std::vector<absl::StatusOr<std::string>> values;
  const int64_t took_ns =
      Timed([&] { values = session_.MultiGet(tree_, keys, {.timeout_ms = 1}); });
  EXPECT_GE(took_ns, kMillisecondNs);
  EXPECT_LE(took_ns, kMillisecondNs + 2 * chain_ns());
  ASSERT_EQ(values.size(), keys.size());
  const size_t found = CountOf(values, absl::StatusCode::kOk);
  EXPECT_GT(found, 1'000u);
  EXPECT_EQ(found + CountOf(values, absl::StatusCode::kDeadlineExceeded), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (values[i].ok()) {
      ASSERT_EQ(*values[i], KeyOf(i));
    }
  }
  EXPECT_FALSE(values.back().ok()) << "their turns come in order";
  EXPECT_NE(values.back().status().message().find("no effect"), std::string::npos)
      << values.back().status();
}

TEST_F(CallDeadlineTest, ManyPutsEndWithTheCallAndThoseWithoutATurnAreNotStored) {
  std::vector<KeyValue> entries;
  for (uint64_t n = 0; n < kRecords; ++n) entries.push_back({KeyOf(2 * n), "new"});
  std::vector<absl::Status> statuses;
  const int64_t took_ns =
      Timed([&] { statuses = session_.MultiPut(tree_, entries, {.timeout_ms = 1}); });
  EXPECT_GE(took_ns, kMillisecondNs);
  // An update is two chains, and a contended lock word is waited for no longer than until then.
  EXPECT_LE(took_ns, kMillisecondNs + 4 * chain_ns());
  EXPECT_GT(CountOf(statuses, absl::StatusCode::kOk), 500u);
  EXPECT_GT(CountOf(statuses, absl::StatusCode::kDeadlineExceeded), kRecords / 2);
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto value = session_.Get(tree_, entries[i].key);
    ASSERT_TRUE(value.ok()) << value.status();
    if (statuses[i].ok()) {
      ASSERT_EQ(*value, "new") << i;
    } else if (!IsOutcomeUnknown(statuses[i])) {  // in the hands of another coroutine just then
      ASSERT_EQ(statuses[i].code(), absl::StatusCode::kDeadlineExceeded) << statuses[i];
      ASSERT_EQ(*value, KeyOf(i)) << i;
    }
  }
}

// In any order, new keys between those that are there and conditions that hold: what is said is
// what happened.
TEST_F(CallDeadlineTest, ManyWritesEndWithTheCallAndSayWhatBecameOfThem) {
  for (const bool inside : {false, true}) {
    std::vector<Write> writes;
    for (uint64_t n = 0; n < kRecords / 2; ++n) {
      const uint64_t number = n * 7919 % (kRecords / 2) + (inside ? kRecords / 2 : 0);
      const bool is_new = number % 3 == 0;
      writes.push_back({.kind = is_new ? Write::Kind::kInsert : Write::Kind::kReplace,
                        .key = KeyOf(2 * number + (is_new ? 1 : 0)),
                        .value = "new",
                        .expected = KeyOf(number)});
    }
    std::vector<WriteResult> results;
    int64_t took_ns = 0;
    const auto call = [&] {
      took_ns = Timed([&] { results = session_.WriteMany(tree_, writes, {.timeout_ms = 1}); });
    };
    if (inside) {
      session_.Spawn(call);
      session_.Run();
    } else {
      call();
    }
    EXPECT_GE(took_ns, kMillisecondNs);
    // A split that is under way then: the leaf, its new siblings, and what the parent hears of it.
    EXPECT_LE(took_ns, kMillisecondNs + 8 * chain_ns());
    ASSERT_EQ(results.size(), writes.size());
    size_t done = 0, late = 0;
    for (size_t i = 0; i < writes.size(); ++i) {
      const auto value = session_.Get(tree_, writes[i].key);
      const bool is_there = value.ok() && *value == "new";
      const absl::Status& status = results[i].status;
      done += status.ok();
      late += absl::IsDeadlineExceeded(status);
      if (IsOutcomeUnknown(status)) continue;  // in the hands of another coroutine just then
      ASSERT_TRUE(status.ok() || absl::IsDeadlineExceeded(status)) << status;
      ASSERT_EQ(is_there, status.ok()) << i << ": " << status;
    }
    EXPECT_GT(done, 500u);
    EXPECT_GT(late, kRecords / 4);
  }
}

// Each of the session's coroutines waits for a lock once: with a deadline each, the call took as
// many deadlines as there are rounds of coroutines.
TEST_F(CallDeadlineTest, WaitingForLocksEndsThen) {
  constexpr uint64_t kPuts = 1'000;
  std::vector<KeyValue> entries;
  for (uint64_t n = 0; n < kPuts; ++n) entries.push_back({KeyOf(200 * n), "new"});
  SetLocks(LockWord{777, 5}.Encode());
  std::vector<absl::Status> statuses;
  const int64_t took_ns =
      Timed([&] { statuses = session_.MultiPut(tree_, entries, {.timeout_ms = 20}); });
  SetLocks(LockWord::kFree);
  EXPECT_GE(took_ns, 20 * kMillisecondNs);
  EXPECT_LE(took_ns, 20 * kMillisecondNs + 4 * chain_ns()) << "what is in flight then";
  EXPECT_EQ(CountOf(statuses, absl::StatusCode::kDeadlineExceeded), kPuts);
}

TEST_F(CallDeadlineTest, InsideATaskToo) {
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kRecords; ++n) keys.push_back(KeyOf(2 * n));
  int64_t took_ns = 0;
  session_.Spawn(
      [&] { took_ns = Timed([&] { (void)session_.MultiGet(tree_, keys, {.timeout_ms = 1}); }); });
  session_.Run();
  EXPECT_GE(took_ns, kMillisecondNs);
  EXPECT_LE(took_ns, kMillisecondNs + 2 * chain_ns());
}

TEST_F(CallDeadlineTest, NegativeOnesAreRefusedAndNothingHappens) {
  const OperationOptions negative = {.timeout_ms = -1};
  const auto refused = absl::StatusCode::kInvalidArgument;
  const std::string key = KeyOf(0);
  std::vector<KeyValue> rows;
  SweepResult swept;
  EXPECT_EQ(session_.Get(tree_, key, negative).status().code(), refused);
  EXPECT_EQ(session_.Put(tree_, key, "new", negative).code(), refused);
  EXPECT_EQ(session_.Insert(tree_, "new", "new", negative).code(), refused);
  EXPECT_EQ(session_.Erase(tree_, key, negative).code(), refused);
  EXPECT_EQ(session_.Scan(tree_, "", 10, &rows, negative).code(), refused);
  EXPECT_EQ(session_.Sweep(tree_, &swept, negative).code(), refused);
  EXPECT_EQ(session_.Check(tree_, {.timeout_ms = -1}).status().code(), refused);
  EXPECT_EQ(CountOf(session_.MultiGet(tree_, {key, key}, negative), refused), 2u);
  EXPECT_EQ(CountOf(session_.MultiPut(tree_, {{key, "new"}}, negative), refused), 1u);
  EXPECT_EQ(CountOf(session_.MultiErase(tree_, {key}, negative), refused), 1u);
  EXPECT_EQ(session_.WriteMany(tree_, {{.key = key}}, negative)[0].status.code(), refused);
  EXPECT_EQ(session_.Get(tree_, key).value_or("lost"), KeyOf(0));
  EXPECT_TRUE(absl::IsNotFound(session_.Get(tree_, "new").status()));
}

TEST_F(CallDeadlineTest, VeryLongOnesAreLong) {
  EXPECT_EQ(session_.Get(tree_, KeyOf(0), {.timeout_ms = INT64_MAX}).value_or("lost"), KeyOf(0));
  EXPECT_TRUE(session_.Put(tree_, KeyOf(0), "new", {.timeout_ms = INT64_MAX}).ok());
  EXPECT_EQ(*session_.MultiGet(tree_, {KeyOf(0)}, {.timeout_ms = INT64_MAX})[0], "new");
}

}  // namespace
}  // namespace pando

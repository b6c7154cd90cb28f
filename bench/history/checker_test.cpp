// Whole histories: scans, states, files, and mutations that make a correct history wrong for
// certain.
#include "bench/history/checker.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/history/history_io.h"
#include "common/base/random.h"
#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::history {
namespace {

using testing::HasSubstr;

Operation Single(OperationKind kind, std::string key, std::string value, bool found,
                 int64_t call_ns, int64_t return_ns) {
  Operation o;
  o.kind = kind;
  o.key = std::move(key);
  o.value = std::move(value);
  o.found = found;
  o.call_ns = call_ns;
  o.return_ns = return_ns;
  return o;
}
Operation Put(std::string key, std::string value, int64_t call_ns, int64_t return_ns) {
  return Single(OperationKind::kPut, std::move(key), std::move(value), false, call_ns, return_ns);
}
Operation Scan(std::string from, size_t limit,
               std::vector<std::pair<std::string, std::string>> rows, int64_t call_ns,
               int64_t return_ns) {
  Operation o = Single(OperationKind::kScan, std::move(from), "", false, call_ns, return_ns);
  o.limit = limit;
  o.rows = std::move(rows);
  return o;
}

Operation ScanTo(std::string from, std::string to, size_t limit,
                 std::vector<std::pair<std::string, std::string>> rows) {
  Operation o = Scan(std::move(from), limit, std::move(rows), 5, 6);
  o.to = std::move(to);
  return o;
}

std::string WhyWrong(const std::vector<Operation>& operations, const State* initial = nullptr,
                     const State* final = nullptr) {
  const CheckResult result = CheckHistory(operations, initial, final);
  EXPECT_EQ(result.verdict == Verdict::kViolation, !result.violations.empty());
  return result.violations.empty() ? "" : result.violations[0];
}

const std::vector<Operation> kAbc = {Put("a", "1", 0, 1), Put("b", "2", 0, 1), Put("c", "3", 0, 1)};

std::vector<Operation> AbcAnd(Operation o) {
  std::vector<Operation> operations = kAbc;
  operations.push_back(std::move(o));
  return operations;
}

TEST(Checker, Scans) {
  EXPECT_EQ(WhyWrong(AbcAnd(Scan("a", 9, {{"a", "1"}, {"b", "2"}, {"c", "3"}}, 5, 6))), "");
  EXPECT_EQ(WhyWrong(AbcAnd(Scan("b", 1, {{"b", "2"}}, 5, 6))), "");
  EXPECT_EQ(WhyWrong(AbcAnd(Scan("d", 1, {}, 5, 6))), "");
  EXPECT_EQ(WhyWrong(AbcAnd(Scan("a", 0, {}, 5, 6))), "");
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("a", 9, {{"a", "1"}, {"c", "3"}}, 5, 6))),
              HasSubstr("key \"b\""))
      << "lost row";
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("a", 2, {{"a", "1"}, {"c", "3"}}, 5, 6))),
              HasSubstr("key \"b\""));
  EXPECT_EQ(WhyWrong(AbcAnd(Scan("a", 1, {{"a", "1"}}, 5, 6))), "") << "stops at its limit";
  EXPECT_EQ(WhyWrong(AbcAnd(ScanTo("a", "b", 9, {{"a", "1"}}))), "") << "stops at its end";
  EXPECT_EQ(WhyWrong(AbcAnd(ScanTo("a", "bb", 9, {{"a", "1"}, {"b", "2"}}))), "");
  EXPECT_EQ(WhyWrong(AbcAnd(ScanTo("b", "", 9, {}))), "") << "nothing is below";
  EXPECT_THAT(WhyWrong(AbcAnd(ScanTo("a", "bb", 9, {{"a", "1"}}))), HasSubstr("key \"b\""));
  EXPECT_THAT(WhyWrong(AbcAnd(ScanTo("a", "b", 9, {{"a", "1"}, {"b", "2"}}))),
              HasSubstr("not before the scan's end"));
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("a", 2, {{"a", "1"}}, 5, 6))), HasSubstr("key \"b\""))
      << "stops too early";
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("a", 9, {{"b", "2"}, {"a", "1"}, {"c", "3"}}, 5, 6))),
              HasSubstr("not in order"));
  EXPECT_THAT(
      WhyWrong(AbcAnd(Scan("a", 9, {{"a", "1"}, {"a", "1"}, {"b", "2"}, {"c", "3"}}, 5, 6))),
      HasSubstr("twice"));
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("b", 9, {{"a", "1"}, {"b", "2"}, {"c", "3"}}, 5, 6))),
              HasSubstr("before"));
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("a", 2, {{"a", "1"}, {"b", "2"}, {"c", "3"}}, 5, 6))),
              HasSubstr("limit"));
  EXPECT_THAT(WhyWrong(AbcAnd(Scan("a", 9, {{"a", "1"}, {"b", "2"}, {"c", "x"}}, 5, 6))),
              HasSubstr("nobody"));
  EXPECT_THAT(
      WhyWrong(AbcAnd(Scan("a", 9, {{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}}, 5, 6))),
      HasSubstr("key \"d\""))
      << "phantom";
}

TEST(Checker, AScanIsNotASnapshot) {
  // It sees b before and a after: each was current at some moment of the scan.
  std::vector<Operation> operations = kAbc;
  operations.push_back(Put("b", "2b", 11, 12));
  operations.push_back(Put("a", "1b", 21, 22));
  operations.push_back(Scan("a", 9, {{"a", "1b"}, {"b", "2"}, {"c", "3"}}, 10, 30));
  EXPECT_EQ(WhyWrong(operations), "");
}

TEST(Checker, States) {
  const State initial = {{"a", "0"}}, good = {{"a", "1"}, {"b", "2"}, {"c", "3"}};
  EXPECT_EQ(WhyWrong(kAbc, &initial, &good), "");
  const State lost = {{"a", "1"}, {"c", "3"}},
              twice = {{"a", "1"}, {"b", "2"}, {"b", "2"}, {"c", "3"}};
  EXPECT_THAT(WhyWrong(kAbc, &initial, &lost), HasSubstr("key \"b\""));
  EXPECT_THAT(WhyWrong(kAbc, &initial, &twice), HasSubstr("twice"));
  const std::vector<Operation> reads = {Single(OperationKind::kGet, "a", "0", true, 0, 1)};
  EXPECT_EQ(WhyWrong(reads, &initial), "");
  EXPECT_NE(WhyWrong(reads), "");
}

TEST(Checker, ExplainsWithTheOperationsAround) {
  std::vector<Operation> operations = kAbc;
  operations.push_back(Put("a", "new", 10, 20));
  operations.push_back(Single(OperationKind::kGet, "a", "1", true, 30, 40));
  const std::string why = WhyWrong(operations);
  EXPECT_THAT(why, HasSubstr("=> [30, 40] client 0 get \"1\""));
  EXPECT_THAT(why, HasSubstr("put \"new\""));
}

// --- A correct random history of a small index, then one thing made wrong.

struct Simulated {
  std::vector<Operation> operations;
  State final;
};

Simulated Simulate(uint64_t seed, size_t count) {
  Random random(seed);
  Simulated simulated;
  std::map<std::string, std::string> index;
  for (size_t i = 0; i < count; ++i) {
    const int64_t effect_ns = static_cast<int64_t>(i) * 10;
    Operation o;
    o.client = static_cast<int32_t>(random.Uniform(8));
    o.kind = static_cast<OperationKind>(random.Uniform(8));
    o.key = "k" + std::to_string(random.Uniform(12));
    o.call_ns = effect_ns - static_cast<int64_t>(random.Uniform(60));
    o.return_ns = effect_ns + static_cast<int64_t>(random.Uniform(60));
    const auto entry = index.find(o.key);
    o.found = entry != index.end();
    const std::string value = "v" + std::to_string(i);
    if (o.kind == OperationKind::kGet && o.found) o.value = entry->second;
    if (o.kind == OperationKind::kPut || o.kind == OperationKind::kInsert ||
        o.kind == OperationKind::kUpdate) {
      o.value = value;
    }
    if (o.kind == OperationKind::kPut || (o.kind == OperationKind::kInsert && !o.found) ||
        (o.kind == OperationKind::kUpdate && o.found)) {
      index[o.key] = value;
    }
    if (o.kind == OperationKind::kReplace || o.kind == OperationKind::kEraseIf) {
      if (o.found) o.actual = entry->second;
      o.expected = o.found && random.Chance(0.5) ? entry->second : "another";
      o.found = o.actual == o.expected;
      if (o.found) o.actual.reset();
      if (o.kind == OperationKind::kReplace) o.value = value;
      if (o.found && o.kind == OperationKind::kReplace) index[o.key] = value;
      if (o.found && o.kind == OperationKind::kEraseIf) index.erase(o.key);
    }
    if (o.kind == OperationKind::kDelete) index.erase(o.key);
    if (o.kind == OperationKind::kScan) {
      o.limit = random.Uniform(6);
      for (auto at = index.lower_bound(o.key); at != index.end() && o.rows.size() < o.limit; ++at) {
        o.rows.push_back(*at);
      }
    }
    if (random.Chance(0.01)) o.return_ns = kNeverReturned;
    simulated.operations.push_back(std::move(o));
  }
  simulated.final.assign(index.begin(), index.end());
  return simulated;
}

TEST(Checker, CorrectHistoriesPass) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Simulated simulated = Simulate(seed, 2000);
    EXPECT_EQ(WhyWrong(simulated.operations, nullptr, &simulated.final), "") << seed;
  }
}

// Finds, from the end, an operation that `change` can make wrong.
bool Mutate(std::vector<Operation>* operations, const std::function<bool(Operation*)>& change) {
  for (size_t i = operations->size() * 3 / 4; i > 0; --i) {
    Operation& o = (*operations)[i];
    if (!o.unknown() && change(&o)) return true;
  }
  return false;
}

TEST(Checker, MutatedHistoriesFail) {
  const std::map<std::string, std::function<bool(const std::vector<Operation>&, Operation*)>>
      mutations = {
          {"stale read",
           [](const std::vector<Operation>& all, Operation* o) {
             if (o->kind != OperationKind::kGet || !o->found) return false;
             for (const Operation& old : all) {
               // Overwritten long ago by a put that had returned.
               if (old.kind != OperationKind::kPut || old.unknown() || old.key != o->key) continue;
               for (const Operation& newer : all) {
                 if (newer.kind == OperationKind::kPut && newer.key == o->key && !newer.unknown() &&
                     newer.call_ns > old.return_ns && newer.return_ns < o->call_ns) {
                   o->value = old.value;
                   return true;
                 }
               }
             }
             return false;
           }},
          {"row from nowhere",
           [](const std::vector<Operation>&, Operation* o) {
             if (o->rows.empty()) return false;
             o->rows[0].second = "never written";
             return true;
           }},
          {"row twice",
           [](const std::vector<Operation>&, Operation* o) {
             if (o->rows.empty()) return false;
             o->rows.push_back(o->rows.back());
             ++o->limit;
             return true;
           }},
          {"rows not sorted",
           [](const std::vector<Operation>&, Operation* o) {
             if (o->rows.size() < 2) return false;
             std::swap(o->rows[0], o->rows[1]);
             return true;
           }},
          {"refused though its condition held",
           [](const std::vector<Operation>&, Operation* o) {
             if (!o->actual.has_value()) return false;
             o->expected = *o->actual;
             return true;
           }},
      };
  for (const auto& [name, change] : mutations) {
    int mutated = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Simulated simulated = Simulate(seed, 1000);
      const std::vector<Operation> original = simulated.operations;
      if (!Mutate(&simulated.operations, [&](Operation* o) { return change(original, o); }))
        continue;
      ++mutated;
      EXPECT_NE(WhyWrong(simulated.operations, nullptr, &simulated.final), "")
          << name << ", seed " << seed;
    }
    EXPECT_GT(mutated, 10) << name;
  }
}

// What certainly happened after everything else, on a key that nothing else touches.
TEST(Checker, LostUpdateAndDoubleInsertFail) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Simulated simulated = Simulate(seed, 1000);
    int64_t end_ns = 0;
    for (const Operation& o : simulated.operations) {
      if (!o.unknown()) end_ns = std::max(end_ns, o.return_ns);
    }
    std::vector<Operation> operations = simulated.operations;
    operations.push_back(Put("new", "lost", end_ns + 10, end_ns + 20));
    EXPECT_NE(WhyWrong(operations, nullptr, &simulated.final), "") << seed;
    simulated.final.emplace_back("new", "lost");
    EXPECT_EQ(WhyWrong(operations, nullptr, &simulated.final), "") << seed;

    operations.push_back(
        Single(OperationKind::kInsert, "new", "second", false, end_ns + 30, end_ns + 40));
    EXPECT_NE(WhyWrong(operations), "") << seed;
    operations.back().found = true;
    EXPECT_EQ(WhyWrong(operations), "") << seed;
  }
}

// Of a key of which nothing is known from then on only what was said before counts.
TEST(Checker, NothingIsSaidOfAKeyThatIsUntold) {
  const std::vector<Operation> before = {Put("a", "1", 0, 1), Put("b", "2", 0, 1),
                                         Single(OperationKind::kUpsert, "b", "2x", true, 2, 3)};
  std::vector<Operation> operations = before;
  operations[2].upsert = UpsertKind::kAppend;
  operations[2].operand = "x";
  operations.push_back(Single(OperationKind::kUpsert, "b", "9y", true, 10, 11));
  operations.back().upsert = UpsertKind::kAppend;
  operations.back().operand = "y";
  operations.push_back(Single(OperationKind::kGet, "b", "7", true, 12, 13));
  operations.push_back(Scan("a", 9, {{"a", "1"}}, 14, 15));
  operations.push_back(Scan("a", 9, {{"a", "1"}, {"b", "5"}}, 16, 17));
  const State final = {{"a", "1"}};
  EXPECT_NE(WhyWrong(operations, nullptr, &final), "");
  const auto check = [&](const Untold& untold) {
    return CheckHistory(operations, nullptr, &final, {}, untold).verdict;
  };
  EXPECT_EQ(check({{"b", 10}}), Verdict::kCorrect);
  EXPECT_EQ(check({{"b", 11}}), Verdict::kViolation) << "what was called before counts";
  EXPECT_EQ(check({{"a", 2}, {"c", 0}}), Verdict::kViolation) << "other keys";
  operations[2].value = "3x";
  EXPECT_EQ(check({{"b", 10}}), Verdict::kViolation);
}

// --- Files.

class HistoryFiles : public testing::Test {
 protected:
  // The one file, with that in it.
  std::string File(const std::string& content) {
    std::ofstream(file_) << content;
    return file_;
  }

  const TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/history";
};

TEST_F(HistoryFiles, WrittenAndReadAgain) {
  const Simulated simulated = Simulate(3, 500);
  const std::string path = File("");
  ASSERT_TRUE(WriteHistory(simulated.operations, path).ok());
  const auto read = ReadHistory(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), simulated.operations.size());
  for (size_t i = 0; i < read->size(); ++i) {
    const Operation &want = simulated.operations[i], &got = (*read)[i];
    EXPECT_EQ(got.key, ToHex(want.key));
    EXPECT_EQ(got.client, want.client);
    EXPECT_EQ(got.kind, want.kind);
    EXPECT_EQ(got.call_ns, want.call_ns);
    EXPECT_EQ(got.return_ns, want.return_ns);
    EXPECT_EQ(got.line, i + 1);
    if (!want.unknown()) {
      EXPECT_EQ(got.rows.size(), want.rows.size());
    }
  }
  ASSERT_TRUE(WriteState(simulated.final, path).ok());
  const auto state = ReadState(path);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->size(), simulated.final.size());
}

TEST_F(HistoryFiles, FormatIsTheDocumentedOne) {
  EXPECT_EQ(
      FormatOperation(Put("k", "v", 10, 20)),
      R"({"client":0,"op":"put","key":"6b","value":"76","found":false,"call":10,"return":20})");
  EXPECT_EQ(
      FormatOperation(Single(OperationKind::kGet, "k", "", false, 10, kNeverReturned)),
      R"({"client":0,"op":"get","key":"6b","value":null,"found":false,"call":10,"return":null})");
  EXPECT_EQ(
      FormatOperation(Scan("a", 2, {{"k", "v"}}, 1, 2)),
      R"({"client":0,"op":"scan","from":"61","limit":2,"rows":[["6b","76"]],"call":1,"return":2})");
}

TEST_F(HistoryFiles, AScansEndIsThereWhereItHasOne) {
  const Operation scan = ScanTo("a", "c", 2, {});
  EXPECT_EQ(
      FormatOperation(scan),
      R"({"client":0,"op":"scan","from":"61","to":"63","limit":2,"rows":[],"call":5,"return":6})");
  const auto read = ReadHistory(File(FormatOperation(scan)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->front().to, "63") << "keys stay as they are in the file";
}

TEST_F(HistoryFiles, AClearIsTwoLinesThatOthersCanRead) {
  const Operation clear = Single(OperationKind::kClear, "k", "", false, 5, 6);
  const std::string path = File("");
  ASSERT_TRUE(WriteHistory({clear, Put("k", "v", 7, 8)}, path).ok());
  std::string content;
  std::getline(std::ifstream(path), content, '\0');
  EXPECT_THAT(content, HasSubstr(R"("op":"delete","key":"6b","value":null,"found":false,"call":5,)"
                                 R"("return":null,"clear":true})"));
  EXPECT_THAT(content, HasSubstr(R"("op":"get","key":"6b","value":null,"found":false,"call":5,)"
                                 R"("return":6,"clear":true})"));
  const auto read = ReadHistory(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ(read->front().kind, OperationKind::kClear);
  EXPECT_EQ(read->front().return_ns, 6);
  const State absent;
  EXPECT_THAT(WhyWrong(*read, nullptr, &absent), HasSubstr("key \"6b\""))
      << "what was put after it may not be gone";
  EXPECT_EQ(WhyWrong({clear, Put("k", "v", 6, 8)}, nullptr, &absent), "");
  EXPECT_FALSE(ReadHistory(File(R"({"op":"put","key":"k","value":"v","clear":1})")).ok());
}

TEST_F(HistoryFiles, AnUnknownOutcomeMayHaveALatestTime) {
  Operation put = Put("k", "v", 10, kNeverReturned);
  put.latest_ns = 90;
  EXPECT_EQ(FormatOperation(put), R"({"client":0,"op":"put","key":"6b","value":"76","found":false,)"
                                  R"("call":10,"return":null,"latest":90})");
  const auto read = ReadHistory(File(FormatOperation(put)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->front().latest_ns, 90);
  const std::vector<Operation> late = {put, Single(OperationKind::kGet, "k", "", false, 91, 92)};
  const State there = {{"k", "v"}};
  EXPECT_THAT(WhyWrong(late, nullptr, &there), HasSubstr("[10, unknown by 90]"));
  put.latest_ns = 9;
  EXPECT_FALSE(ReadHistory(File(FormatOperation(put))).ok());
}

TEST_F(HistoryFiles, BadInputNamesFileAndLine) {
  const std::string good =
      R"({"client":1,"op":"put","key":"k","value":"v","call":1,"return":2,"more":[1]})";
  for (
      const std::string bad : {
          R"({"client":1,"op":"put","key":"k","call":1,"return":2})",
          R"({"client":1,"op":"get","key":"k","call":1,"return":2})",
          R"({"client":1,"op":"get","key":"k","found":true,"call":1,"return":2})",
          R"({"client":1,"op":"put","key":"k","value":"v","call":1})",
          R"({"client":1,"op":"put","key":"k","value":"v","call":3,"return":2})",
          R"({"client":1,"op":"put","key":"k","value":"v","call":"1","return":2})",
          R"({"client":1,"op":"put","key":"k","value":"v","call":1,"return":18446744073709551615})",
          R"({"client":1,"op":"jump","key":"k","call":1,"return":2})",
          R"({"client":1,"op":"scan","from":"k","rows":[],"call":1,"return":2})",
          R"({"client":1,"op":"scan","from":"k","limit":2,"call":1,"return":2})",
          R"({"client":1,"op":"scan","from":"k","limit":2,"rows":[["a"]],"call":1,"return":2})",
          R"([1,2])",
          "{",
          "\xff",
      }) {
    const std::string path = File(good + "\n\n" + bad + "\n");
    const auto read = ReadHistory(path);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(path + ":3")) << bad;
  }
  EXPECT_FALSE(ReadHistory("/nonexistent/history").ok());
  EXPECT_FALSE(ReadHistory(File("\n")).ok());
}

}  // namespace
}  // namespace pando::history

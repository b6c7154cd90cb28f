// Conditional operations in whole histories: what is said of them, and a comparison with brute
// force.
#include "bench/history/upserts.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "bench/history/checker.h"
#include "bench/history/history_io.h"
#include "bench/history/known_terms.h"
#include "common/base/random.h"
#include "common/base/sanitizer.h"
#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::history {
namespace {

using testing::HasSubstr;

std::string Number(uint64_t number) {
  std::string value(sizeof(number), '\0');
  std::memcpy(value.data(), &number, sizeof(number));
  return value;
}

Operation Of(OperationKind kind, int64_t call_ns, int64_t return_ns) {
  Operation o;
  o.kind = kind;
  o.key = "k";
  o.call_ns = call_ns;
  o.return_ns = return_ns;
  o.found = true;
  return o;
}
Operation Put(std::string value, int64_t call_ns, int64_t return_ns) {
  Operation o = Of(OperationKind::kPut, call_ns, return_ns);
  o.value = std::move(value);
  return o;
}
Operation Get(std::string value, int64_t call_ns, int64_t return_ns) {
  Operation o = Of(OperationKind::kGet, call_ns, return_ns);
  o.value = std::move(value);
  return o;
}
Operation Upsert(UpsertKind upsert, std::string operand, std::string result, int64_t call_ns,
                 int64_t return_ns) {
  Operation o = Of(OperationKind::kUpsert, call_ns, return_ns);
  o.upsert = upsert;
  o.operand = std::move(operand);
  o.value = std::move(result);
  return o;
}
Operation Replace(std::string expected, std::string value, int64_t call_ns, int64_t return_ns) {
  Operation o = Of(OperationKind::kReplace, call_ns, return_ns);
  o.expected = std::move(expected);
  o.value = std::move(value);
  return o;
}
Operation Refused(Operation o, std::optional<std::string> actual) {
  o.found = false;
  o.actual = std::move(actual);
  if (o.kind == OperationKind::kUpsert) o.value.clear();
  return o;
}

Verdict Check(const std::vector<Operation>& operations) { return CheckHistory(operations).verdict; }

TEST(Upserts, AFunctionUndone) {
  EXPECT_EQ(BeforeUpsert(UpsertKind::kAdd, Number(2), Number(42)), Number(40));
  EXPECT_EQ(BeforeUpsert(UpsertKind::kAdd, Number(2), Number(1)), Number(UINT64_MAX));
  EXPECT_EQ(BeforeUpsert(UpsertKind::kAdd, ToHex(Number(2)), ToHex(Number(42))), ToHex(Number(40)))
      << "as in files";
  EXPECT_EQ(BeforeUpsert(UpsertKind::kAdd, Number(2), "seven"), std::nullopt);
  EXPECT_EQ(BeforeUpsert(UpsertKind::kAppend, "c", "abc"), "ab");
  EXPECT_EQ(BeforeUpsert(UpsertKind::kAppend, "x", "abc"), std::nullopt);
}

TEST(Upserts, PlainCases) {
  const auto add = [](uint64_t operand, uint64_t sum, int64_t call_ns, int64_t return_ns) {
    return Upsert(UpsertKind::kAdd, Number(operand), Number(sum), call_ns, return_ns);
  };
  EXPECT_EQ(Check({add(5, 5, 0, 1), add(2, 7, 2, 3)}), Verdict::kCorrect);
  EXPECT_EQ(Check({add(5, 5, 0, 9), add(2, 7, 0, 9), add(100, 107, 0, 9)}), Verdict::kCorrect);
  EXPECT_EQ(Check({add(5, 5, 0, 1), add(2, 7, 2, 3), add(3, 8, 4, 5)}), Verdict::kViolation)
      << "one is lost";
  EXPECT_EQ(Check({add(5, 5, 0, 1), add(2, 9, 2, 3)}), Verdict::kViolation) << "counted twice";
  EXPECT_EQ(Check({Upsert(UpsertKind::kAppend, "x", "aby", 0, 1)}), Verdict::kViolation);
  EXPECT_EQ(Check({Put("a", 0, 1), Replace("a", "b", 2, 9), Replace("a", "c", 2, 9)}),
            Verdict::kViolation)
      << "both had it";
  EXPECT_EQ(Check({Put("a", 0, 1), Replace("a", "b", 2, 9), Refused(Replace("a", "c", 2, 9), "b")}),
            Verdict::kCorrect);
  EXPECT_EQ(Check({Put("a", 0, 1), Refused(Replace("a", "c", 2, 9), std::nullopt)}),
            Verdict::kViolation)
      << "it was there";
  EXPECT_EQ(Check({Put("a", 0, 1), Refused(Upsert(UpsertKind::kAppend, "x", "", 2, 3), "another")}),
            Verdict::kViolation);
}

TEST(Upserts, ARefusalNeedsAReason) {
  const auto why = [](const std::vector<Operation>& operations) {
    const CheckResult result = CheckHistory(operations);
    return result.violations.empty() ? "" : result.violations[0];
  };
  const auto no_reason = HasSubstr("no reason to refuse it");
  Operation erase = Of(OperationKind::kEraseIf, 2, 3);
  erase.expected = "a";
  EXPECT_THAT(why({Put("a", 0, 1), Refused(Replace("a", "b", 2, 3), "a")}), no_reason);
  EXPECT_THAT(why({Put("a", 0, 1), Refused(erase, "a")}), no_reason);
  EXPECT_EQ(why({Put("b", 0, 1), Refused(erase, "b")}), "");
  EXPECT_EQ(why({Refused(erase, std::nullopt)}), "");

  const Operation add = Upsert(UpsertKind::kAdd, Number(2), "", 2, 3);
  EXPECT_THAT(why({Put(Number(1), 0, 1), Refused(add, Number(1))}), no_reason);
  EXPECT_EQ(why({Put("seven", 0, 1), Refused(add, "seven")}), "") << "no number";
  EXPECT_EQ(why({Put(ToHex(Number(1)), 0, 1), Refused(add, ToHex(Number(1)))}), "")
      << "16 bytes are no number";
  EXPECT_THAT(why({Refused(add, std::nullopt)}), no_reason) << "the operand would do";

  const Operation append = Upsert(UpsertKind::kAppend, "xy", "", 2, 3);
  EXPECT_THAT(why({Refused(append, std::nullopt)}), no_reason);
  EXPECT_EQ(why({Put("abc", 0, 1), Refused(append, "abc")}), "") << "it may be too long";
  EXPECT_THAT(why({Put("abc", 0, 1), Refused(append, "abc"), Put("12345", 4, 5)}), no_reason)
      << "as long as another";
  EXPECT_EQ(why({Put("abc", 0, 1), Refused(append, "abc"), Put("1234", 4, 5)}), "");
  EXPECT_EQ(why({Put("abc", 0, 1), Refused(append, "abc"), Put("12345", 4, kNeverReturned)}), "")
      << "perhaps nobody stored that";
}

TEST(Upserts, OfUnknownOutcome) {
  const Operation unknown = Upsert(UpsertKind::kAppend, "x", "", 2, kNeverReturned);
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, Get("ax", 4, 5)}), Verdict::kCorrect);
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, Get("a", 4, 5), Get("ax", 6, 7)}), Verdict::kCorrect);
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, Get("ax", 4, 5), Get("a", 6, 7)}), Verdict::kViolation);
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, Get("axx", 4, 5)}), Verdict::kViolation)
      << "applied twice";
  EXPECT_EQ(Check({unknown, Get("x", 4, 5)}), Verdict::kCorrect) << "the key was absent";
  const Operation another = Upsert(UpsertKind::kAppend, "y", "", 2, kNeverReturned);
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, another, Get("ayx", 4, 5)}), Verdict::kCorrect)
      << "what nobody saw lies between";
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, Upsert(UpsertKind::kAppend, "z", "axz", 4, 5)}),
            Verdict::kCorrect)
      << "another upsert saw it";
  Operation erase = Of(OperationKind::kEraseIf, 4, kNeverReturned);
  erase.expected = "ax";
  const Operation absent = Refused(Replace("none", "n", 6, 7), std::nullopt);
  EXPECT_EQ(Check({Put("a", 0, 1), unknown, erase, absent}), Verdict::kCorrect)
      << "an erase of unknown outcome saw it";
  erase.expected = "ay";
  EXPECT_NE(Check({Put("a", 0, 1), unknown, erase, absent}), Verdict::kCorrect);
}

TEST(Upserts, FilesHaveThem) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/history";
  std::vector<Operation> operations = {Put(Number(1), 0, 1),
                                       Upsert(UpsertKind::kAdd, Number(2), Number(3), 2, 3),
                                       Replace(Number(3), "abc", 4, 5),
                                       Refused(Replace("x", "y", 6, 7), "abc"),
                                       Upsert(UpsertKind::kAppend, "d", "", 8, kNeverReturned),
                                       Upsert(UpsertKind::kAppend, "e", "abcde", 10, 11)};
  Operation erase = Of(OperationKind::kEraseIf, 12, 13);
  erase.expected = "abcde";
  operations.push_back(erase);
  ASSERT_EQ(Check(operations), Verdict::kCorrect);
  ASSERT_TRUE(WriteHistory(operations, path).ok());
  auto read = ReadHistory(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Check(*read), Verdict::kCorrect);
  for (size_t i = 0; i < read->size(); ++i) {
    EXPECT_EQ((*read)[i].kind, operations[i].kind);
    EXPECT_EQ((*read)[i].expected, ToHex(operations[i].expected));
    EXPECT_EQ((*read)[i].operand, ToHex(operations[i].operand));
    EXPECT_EQ((*read)[i].upsert, operations[i].upsert);
    EXPECT_EQ((*read)[i].actual.has_value(), operations[i].actual.has_value());
  }
  EXPECT_EQ(FormatOperation(operations[3]),
            R"({"client":0,"op":"replace","key":"6b","value":"79","found":false,)"
            R"("expected":"78","actual":"616263","call":6,"return":7})");
  EXPECT_EQ(FormatOperation(operations[5]),
            R"({"client":0,"op":"upsert","key":"6b","value":"6162636465","found":true,)"
            R"("function":"append","operand":"65","actual":null,"call":10,"return":11})");
  EXPECT_EQ(FormatOperation(erase),
            R"({"client":0,"op":"erase_if","key":"6b","value":null,"found":true,)"
            R"("expected":"6162636465","actual":null,"call":12,"return":13})");
  // In other terms it is correct still, and nothing is conditional.
  const std::vector<Operation> known = InKnownTerms(operations);
  for (const Operation& o : known) EXPECT_LT(o.kind, OperationKind::kReplace);
  EXPECT_EQ(Check(known), Verdict::kCorrect);
}

TEST(Upserts, BadOnesNameTheLine) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/history";
  for (const char* bad : {
           R"({"op":"replace","key":"k","value":"v","found":true,"call":1,"return":2})",
           R"({"op":"erase_if","key":"k","found":false,"expected":"v","call":1,"return":2})",
           R"({"op":"upsert","key":"k","value":"v","found":true,"function":"max",)"
           R"("operand":"1","call":1,"return":2})",
           R"({"op":"upsert","key":"k","value":"v","found":true,"function":"add",)"
           R"("call":1,"return":2})",
       }) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    std::fprintf(file, "%s\n", bad);
    std::fclose(file);
    EXPECT_THAT(std::string(ReadHistory(path).status().message()), HasSubstr(path + ":1")) << bad;
  }
}

// --- Against brute force: a register of texts that really has them, every order, every choice.

using Register = std::optional<std::string>;

std::string Applied(const Operation& o, const Register& state) {
  if (!state.has_value()) return o.operand;
  if (o.upsert == UpsertKind::kAppend) return *state + o.operand;
  uint64_t sum, added;
  std::memcpy(&sum, state->data(), sizeof(sum));
  std::memcpy(&added, o.operand.data(), sizeof(added));
  return Number(sum + added);
}

// Of a register that takes values of any length.
bool Refuses(const Operation& o, const Register& state) {
  if (o.kind != OperationKind::kUpsert) return state != o.expected;
  return o.upsert == UpsertKind::kAdd && state.has_value() && state->size() != 8;
}

bool Apply(const Operation& o, Register* state) {
  switch (o.kind) {
    case OperationKind::kGet:
      return o.unknown() || (o.found ? *state == o.value : !state->has_value());
    case OperationKind::kPut:
      *state = o.value;
      return true;
    case OperationKind::kDelete:
      if (!o.unknown() && !o.found) return !state->has_value();
      if (!state->has_value()) return o.unknown();
      state->reset();
      return true;
    case OperationKind::kUpsert: {
      if (!o.unknown() && !o.found) return *state == o.actual && Refuses(o, *state);
      if (Refuses(o, *state)) return o.unknown();
      const std::string result = Applied(o, *state);
      if (!o.unknown() && result != o.value) return false;
      *state = result;
      return true;
    }
    default:
      if (!o.unknown() && !o.found) return *state == o.actual && Refuses(o, *state);
      if (Refuses(o, *state)) return o.unknown();
      if (o.kind == OperationKind::kEraseIf) {
        state->reset();
      } else {
        *state = o.value;
      }
      return true;
  }
}

bool BruteForce(const std::vector<Operation>& operations, unsigned used, const Register& state) {
  int64_t first_return_ns = INT64_MAX;
  bool all = true;
  for (size_t i = 0; i < operations.size(); ++i) {
    if ((used >> i & 1) != 0 || operations[i].unknown()) continue;
    all = false;
    first_return_ns = std::min(first_return_ns, operations[i].return_ns);
  }
  if (all) return true;
  for (size_t i = 0; i < operations.size(); ++i) {
    if ((used >> i & 1) != 0 || operations[i].call_ns > first_return_ns) continue;
    Register next = state;
    if (Apply(operations[i], &next) && BruteForce(operations, used | 1u << i, next)) return true;
  }
  return false;
}

// What a register said that was real, with some intervals and answers that are not.
// With so many different numbers; 0: no two are the same.
std::vector<Operation> RandomHistory(Random* random, uint64_t numbers) {
  const auto any = [&] { return numbers == 0 ? random->Next() : random->Uniform(numbers); };
  constexpr OperationKind kKinds[] = {OperationKind::kGet,     OperationKind::kPut,
                                      OperationKind::kDelete,  OperationKind::kUpsert,
                                      OperationKind::kReplace, OperationKind::kEraseIf,
                                      OperationKind::kUpsert};
  std::vector<Operation> operations;
  Register state;
  std::vector<std::string> values;
  const size_t count = 2 + random->Uniform(7);
  for (size_t i = 0; i < count; ++i) {
    const auto now_ns = static_cast<int64_t>(i) * 10;
    Operation o = Of(kKinds[random->Uniform(7)], now_ns - static_cast<int64_t>(random->Uniform(25)),
                     now_ns + static_cast<int64_t>(random->Uniform(25)));
    o.upsert = random->Chance(0.5) ? UpsertKind::kAdd : UpsertKind::kAppend;
    o.operand = o.upsert == UpsertKind::kAdd ? Number(any())
                                             : Number(any()).substr(0, numbers == 0 ? 3 : 1);
    o.value = Number(any());
    const bool right = state.has_value() && random->Chance(0.7);
    o.expected = right ? *state : values.empty() ? "none" : values[random->Uniform(values.size())];
    const bool unknown = random->Chance(numbers == 0 ? 0.2 : 0.4);
    const bool happens = !unknown || random->Chance(0.5);
    const bool refused = IsConditional(o.kind) && Refuses(o, state);
    if (refused) {
      o.found = false;
      o.actual = state;
    }
    if (o.kind == OperationKind::kGet || o.kind == OperationKind::kDelete)
      o.found = state.has_value();
    if (o.kind == OperationKind::kGet) o.value = state.value_or("");
    if (o.kind == OperationKind::kUpsert) o.value = refused ? "" : Applied(o, state);
    if (happens && !refused) (void)Apply(o, &state);
    if (state.has_value()) values.push_back(*state);
    if (unknown) o.return_ns = kNeverReturned;
    operations.push_back(std::move(o));
  }
  // Something that was not the case, mostly.
  for (uint64_t changes = random->Uniform(4); changes > 0; --changes) {
    Operation& o = operations[random->Uniform(operations.size())];
    const uint64_t how = random->Uniform(4);
    if (how == 0) {
      const int64_t later_ns = random->Chance(0.5) ? 15 : 40;
      o.call_ns += later_ns;
      if (!o.unknown()) o.return_ns += later_ns;
    } else if (how == 1) {
      o.call_ns = o.unknown() ? o.call_ns : o.return_ns;  // no time to wait
    } else if (how == 2 && IsConditional(o.kind) && !o.unknown() && !values.empty()) {
      // An append that is refused was too long, which nothing is here.
      const bool upserts = o.kind == OperationKind::kUpsert;
      if (upserts && o.upsert == UpsertKind::kAppend) continue;
      o = Refused(o, upserts ? values.back() : o.expected);
    } else if (!values.empty() && o.found &&
               (o.kind == OperationKind::kGet || o.kind == OperationKind::kUpsert)) {
      o.value = values[random->Uniform(values.size())];
    } else if (!values.empty() && o.actual.has_value()) {
      o.actual = values[random->Uniform(values.size())];
    }
  }
  return operations;
}

// How many of them nobody could decide.
int CompareWithBruteForce(uint64_t seed, int rounds, uint64_t numbers) {
  Random random(seed);
  int correct = 0, undecided = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Operation> operations = RandomHistory(&random, numbers);
    const bool want = BruteForce(operations, 0, std::nullopt);
    const CheckResult got = CheckHistory(operations);
    correct += want ? 1 : 0;
    if (got.verdict == Verdict::kUndecided) {
      ++undecided;
      continue;
    }
    std::string text;
    for (const Operation& o : operations) text += FormatOperation(o) + "\n";
    EXPECT_EQ(got.verdict, want ? Verdict::kCorrect : Verdict::kViolation)
        << "round " << round << "\n"
        << text << (got.violations.empty() ? "" : got.violations[0]);
    if (want && numbers == 0) {
      EXPECT_NE(Check(InKnownTerms(operations)), Verdict::kViolation) << text;
    }
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(correct, rounds / 10);
  EXPECT_LT(correct, rounds * 19 / 20);
  return undecided;
}

TEST(Upserts, HistoriesAgreeWithBruteForce) {
  const int rounds = kSanitized ? 5'000 : 100'000;
  EXPECT_LT(CompareWithBruteForce(11, rounds, 0), rounds / 50);
}

// What somebody read somebody else may have stored, too, before or after, and some upserts of
// unknown outcome or others.
TEST(Upserts, HistoriesOfAFewNumbersAgreeWithBruteForce) {
  const int rounds = kSanitized ? 5'000 : 50'000;
  for (const uint64_t numbers : {2, 4, 9}) {
    EXPECT_EQ(CompareWithBruteForce(12 + numbers, rounds, numbers), 0);
  }
}

}  // namespace
}  // namespace pando::history

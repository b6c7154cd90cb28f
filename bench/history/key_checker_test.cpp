#include "bench/history/key_checker.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/sanitizer.h"
#include "gtest/gtest.h"

namespace pando::history {
namespace {

using Kind = KeyOperation::Kind;

KeyOperation Op(Kind kind, int32_t value, int64_t call_ns, int64_t return_ns) {
  KeyOperation o;
  o.kind = kind;
  o.value = value;
  o.call_ns = call_ns;
  o.return_ns = return_ns;
  return o;
}
KeyOperation Unknown(Kind kind, int32_t value, int64_t call_ns) {
  KeyOperation o = Op(kind, value, call_ns, 0);
  o.unknown = true;
  return o;
}

Verdict Check(const std::vector<KeyOperation>& operations, int32_t initial = kAbsent) {
  return CheckKey(initial, operations).verdict;
}

TEST(KeyChecker, PlainCases) {
  EXPECT_EQ(Check({}), Verdict::kCorrect);
  EXPECT_EQ(Check({Op(Kind::kSee, kAbsent, 0, 1)}), Verdict::kCorrect);
  EXPECT_EQ(Check({Op(Kind::kSee, kAbsent, 0, 1)}, 5), Verdict::kViolation);
  EXPECT_EQ(Check({Op(Kind::kPut, 1, 0, 10), Op(Kind::kSee, 1, 20, 30)}), Verdict::kCorrect);
  EXPECT_EQ(Check({Op(Kind::kPut, 1, 0, 10), Op(Kind::kSee, kAbsent, 20, 30)}),
            Verdict::kViolation);
  EXPECT_EQ(Check({Op(Kind::kPut, 1, 0, 10), Op(Kind::kSee, kAbsent, 10, 30)}), Verdict::kCorrect)
      << "intervals are closed";
  EXPECT_EQ(Check({Op(Kind::kSee, 9, 0, 1)}), Verdict::kViolation) << "from nowhere";
  EXPECT_EQ(Check({Op(Kind::kSee, 1, 0, 1), Op(Kind::kPut, 1, 2, 3)}), Verdict::kViolation)
      << "early";
}

TEST(KeyChecker, StaleReadLostUpdateDoubleInsert) {
  const KeyOperation first = Op(Kind::kPut, 1, 0, 10), second = Op(Kind::kPut, 2, 20, 30);
  EXPECT_EQ(Check({first, second, Op(Kind::kSee, 1, 40, 50)}), Verdict::kViolation);
  EXPECT_EQ(Check({first, second, Op(Kind::kSee, 1, 25, 50)}), Verdict::kCorrect);
  EXPECT_EQ(Check({first, second, Op(Kind::kSee, 2, 22, 24), Op(Kind::kSee, 1, 25, 50)}),
            Verdict::kViolation)
      << "new before old";
  EXPECT_EQ(Check({Op(Kind::kInsert, 1, 0, 10), Op(Kind::kInsert, 2, 5, 15)}), Verdict::kViolation);
  EXPECT_EQ(Check({Op(Kind::kInsert, 1, 0, 10), Op(Kind::kDelete, kAbsent, 5, 15),
                   Op(Kind::kInsert, 2, 5, 15)}),
            Verdict::kCorrect);
  EXPECT_EQ(Check({Op(Kind::kDelete, kAbsent, 0, 10), Op(Kind::kDelete, kAbsent, 5, 15)}, 3),
            Verdict::kViolation)
      << "deleted twice";
  EXPECT_EQ(Check({Op(Kind::kUpdate, 4, 0, 10)}), Verdict::kViolation) << "nothing to update";
  EXPECT_EQ(Check({Op(Kind::kSeePresent, kAbsent, 0, 10)}), Verdict::kViolation)
      << "refused by nobody";
}

TEST(KeyChecker, UnknownOutcomes) {
  EXPECT_EQ(Check({Unknown(Kind::kPut, 1, 0), Op(Kind::kSee, kAbsent, 10, 20),
                   Op(Kind::kSee, 1, 90, 95)}),
            Verdict::kCorrect);
  EXPECT_EQ(Check({Unknown(Kind::kPut, 1, 0), Op(Kind::kSee, 1, 10, 20),
                   Op(Kind::kSee, kAbsent, 90, 95)}),
            Verdict::kViolation);
  EXPECT_EQ(Check({Unknown(Kind::kDelete, kAbsent, 0), Op(Kind::kSee, kAbsent, 90, 95)}, 1),
            Verdict::kCorrect);
  EXPECT_EQ(Check({Unknown(Kind::kDelete, kAbsent, 0), Op(Kind::kSee, kAbsent, 10, 20),
                   Op(Kind::kSee, 1, 90, 95)},
                  1),
            Verdict::kViolation);
  EXPECT_EQ(Check({Unknown(Kind::kPut, 2, 50), Op(Kind::kSee, 2, 10, 20)}), Verdict::kViolation);
}

TEST(KeyChecker, AnUnknownOutcomeThatHasALatestTime) {
  std::vector<KeyOperation> operations = {Unknown(Kind::kPut, 1, 0), Op(Kind::kPut, 2, 10, 20),
                                          Op(Kind::kSee, 2, 30, 40), Op(Kind::kSee, 1, 90, 95)};
  EXPECT_EQ(Check(operations), Verdict::kCorrect);
  operations[0].latest_ns = 40;
  EXPECT_EQ(Check(operations), Verdict::kCorrect);
  operations[0].latest_ns = 29;
  EXPECT_EQ(Check(operations), Verdict::kViolation);
  operations = {Unknown(Kind::kDelete, kAbsent, 0), Op(Kind::kSee, 1, 10, 20),
                Op(Kind::kSee, kAbsent, 30, 40)};
  EXPECT_EQ(Check(operations, 1), Verdict::kCorrect);
  operations[0].latest_ns = 9;
  EXPECT_EQ(Check(operations, 1), Verdict::kViolation);
  operations = {Unknown(Kind::kPut, 1, 0), Op(Kind::kSee, kAbsent, 10, 20),
                Op(Kind::kSeePresent, kAbsent, 30, 40)};
  EXPECT_EQ(Check(operations), Verdict::kCorrect);
  operations[0].latest_ns = 9;
  EXPECT_EQ(Check(operations), Verdict::kViolation);
}

TEST(KeyChecker, AClearExplainsNoAbsenceAfterItsReturn) {
  const KeyOperation put = Op(Kind::kPut, 1, 0, 10), clear = Op(Kind::kClear, kAbsent, 20, 30);
  EXPECT_EQ(Check({put, clear, Op(Kind::kSee, kAbsent, 40, 50)}), Verdict::kCorrect);
  EXPECT_EQ(Check({put, clear, Op(Kind::kSee, 1, 40, 50)}), Verdict::kViolation);
  EXPECT_EQ(Check({put, clear, Op(Kind::kPut, 2, 25, 35), Op(Kind::kSee, 2, 40, 50)}),
            Verdict::kCorrect);
  EXPECT_EQ(Check({put, clear, Op(Kind::kPut, 2, 35, 38), Op(Kind::kSee, kAbsent, 40, 50)}),
            Verdict::kViolation);
  EXPECT_EQ(Check({clear, Op(Kind::kPut, 2, 20, 25), Op(Kind::kSee, 2, 40, 50)}), Verdict::kCorrect)
      << "of what was absent";
}

TEST(KeyChecker, SaysWhichOperationCannotBeExplained) {
  const std::vector<KeyOperation> operations = {Op(Kind::kPut, 1, 0, 10), Op(Kind::kPut, 2, 20, 30),
                                                Op(Kind::kSee, 1, 40, 50),
                                                Op(Kind::kSee, 2, 60, 70)};
  const KeyVerdict verdict =
      CheckKey(kAbsent, operations);  // it may blame the second put: somebody reads 1 later
  EXPECT_EQ(verdict.verdict, Verdict::kViolation);
  EXPECT_EQ(EarliestCulprit(kAbsent, operations, verdict).culprit, 2u);
}

// --- Against brute force: every order, every choice for the unknown ones.

bool Apply(const KeyOperation& o, int32_t* state) {
  const bool present = *state != kAbsent;
  switch (o.kind) {
    case Kind::kSee:
      return *state == o.value;
    case Kind::kSeePresent:
      return present;
    case Kind::kPut:
      *state = o.value;
      return true;
    case Kind::kInsert:
      if (present) return o.unknown;
      *state = o.value;
      return true;
    case Kind::kUpdate:
      if (!present) return o.unknown;
      *state = o.value;
      return true;
    case Kind::kDelete:
      if (!present) return o.unknown;
      *state = kAbsent;
      return true;
    case Kind::kSwap:
    case Kind::kEraseIf:
      if (*state == kAbsent || *state != o.prior) return o.unknown;
      *state = o.kind == Kind::kSwap ? o.value : kAbsent;
      return true;
    case Kind::kClear:
      *state = kAbsent;
      return true;
    case Kind::kUpsert:
      break;  // of CheckKeyWith(); none is drawn here
  }
  return false;
}

// `now_ns`: the latest call of what has been done.
bool BruteForce(const std::vector<KeyOperation>& operations, unsigned used, int32_t state,
                int64_t now_ns = 0) {
  int64_t first_return_ns = INT64_MAX;
  bool all = true;
  for (size_t i = 0; i < operations.size(); ++i) {
    if ((used >> i & 1) != 0 || operations[i].unknown) continue;
    all = false;
    first_return_ns = std::min(first_return_ns, operations[i].return_ns);
  }
  if (all) return true;
  for (size_t i = 0; i < operations.size(); ++i) {
    if ((used >> i & 1) != 0 || operations[i].call_ns > first_return_ns) continue;
    const int64_t then_ns = std::max(now_ns, operations[i].call_ns);
    if (operations[i].unknown && then_ns > operations[i].latest_ns) continue;
    int32_t next = state;
    if (Apply(operations[i], &next) && BruteForce(operations, used | 1u << i, next, then_ns))
      return true;
  }
  return false;
}

std::vector<KeyOperation> RandomHistory(Random* random, bool unique, double unknown_share,
                                        bool conditions, double clears, double bounded) {
  std::vector<KeyOperation> operations;
  const size_t count = 1 + random->Uniform(9);
  const int64_t span = 4 + static_cast<int64_t>(random->Uniform(30));
  int32_t stored = 1;
  for (size_t i = 0; i < count; ++i) {
    KeyOperation o;
    o.kind = static_cast<Kind>(random->Uniform(conditions ? 8 : 6));
    if (clears > 0 && random->Chance(clears)) o.kind = Kind::kClear;
    o.call_ns = static_cast<int64_t>(random->Uniform(static_cast<uint64_t>(span)));
    o.return_ns = o.call_ns + static_cast<int64_t>(random->Uniform(12));
    o.unknown = random->Chance(unknown_share);
    if (bounded > 0 && o.unknown && random->Chance(bounded)) o.latest_ns = o.return_ns;
    if (o.kind == Kind::kPut || o.kind == Kind::kInsert || o.kind == Kind::kUpdate ||
        o.kind == Kind::kSwap) {
      o.value = unique ? ++stored : 1 + static_cast<int32_t>(random->Uniform(3));
    }
    operations.push_back(o);
  }
  const auto values = static_cast<uint64_t>(unique ? stored : 3);
  for (KeyOperation& o : operations) {
    if (o.kind == Kind::kSee) o.value = static_cast<int32_t>(random->Uniform(values + 1));
    if (o.kind == Kind::kSwap || o.kind == Kind::kEraseIf) {
      o.prior = 1 + static_cast<int32_t>(random->Uniform(values));
    }
  }
  return operations;
}

std::string Describe(int32_t initial, const std::vector<KeyOperation>& operations) {
  std::string text = "\ninitially " + std::to_string(initial);
  for (const KeyOperation& o : operations) {
    text += "\n[" + std::to_string(o.call_ns) + ", " +
            (o.unknown ? "unknown" : std::to_string(o.return_ns)) + "] kind " +
            std::to_string(static_cast<int>(o.kind)) + " value " + std::to_string(o.value) +
            " prior " + std::to_string(o.prior);
  }
  return text;
}

void CompareWithBruteForce(uint64_t seed, int rounds, bool unique, double unknown_share,
                           bool conditions = false, double clears = 0, double bounded = 0) {
  if (kSanitized) rounds /= 10;
  Random random(seed);
  int correct = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<KeyOperation> operations =
        RandomHistory(&random, unique, unknown_share, conditions, clears, bounded);
    const auto initial = static_cast<int32_t>(random.Uniform(2));
    const bool want = BruteForce(operations, 0, initial);
    correct += want ? 1 : 0;
    const KeyVerdict got = CheckKey(initial, operations);
    ASSERT_EQ(got.verdict, want ? Verdict::kCorrect : Verdict::kViolation)
        << "round " << round << ": " << got.why << Describe(initial, operations);
  }
  EXPECT_GT(correct, rounds / 20);
  EXPECT_LT(correct, rounds * 19 / 20);
}

TEST(KeyChecker, AgreesWithBruteForceOnUniqueValues) {
  CompareWithBruteForce(1, 60'000, true, 0.0);
}
TEST(KeyChecker, AgreesWithBruteForceOnUnknownOutcomes) {
  CompareWithBruteForce(2, 60'000, true, 0.25);
}
TEST(KeyChecker, AgreesWithBruteForceOnRepeatedValues) {
  CompareWithBruteForce(3, 30'000, false, 0.0);
}
TEST(KeyChecker, AgreesWithBruteForceOnRepeatedAndUnknown) {
  CompareWithBruteForce(4, 30'000, false, 0.25);
}

TEST(KeyChecker, AgreesWithBruteForceOnConditions) {
  CompareWithBruteForce(5, 120'000, true, 0.0, true);
}
TEST(KeyChecker, AgreesWithBruteForceOnUnknownConditions) {
  CompareWithBruteForce(6, 120'000, true, 0.3, true);
}
TEST(KeyChecker, AgreesWithBruteForceOnConditionsOfRepeatedValues) {
  CompareWithBruteForce(7, 60'000, false, 0.2, true);
}

TEST(KeyChecker, AgreesWithBruteForceOnClears) {
  CompareWithBruteForce(8, 120'000, true, 0.0, false, 0.3);
}
TEST(KeyChecker, AgreesWithBruteForceOnClearsAndUnknown) {
  CompareWithBruteForce(9, 120'000, true, 0.2, false, 0.2);
}
TEST(KeyChecker, AgreesWithBruteForceOnClearsAndConditions) {
  CompareWithBruteForce(10, 120'000, true, 0.2, true, 0.2);
}
TEST(KeyChecker, AgreesWithBruteForceOnClearsAndRepeatedValues) {
  CompareWithBruteForce(11, 60'000, false, 0.2, true, 0.2);
}

TEST(KeyChecker, AgreesWithBruteForceOnUnknownOutcomesWithALatestTime) {
  CompareWithBruteForce(12, 120'000, true, 0.4, false, 0, 0.7);
  CompareWithBruteForce(13, 60'000, true, 0.4, false, 0.2, 0.7);
}
TEST(KeyChecker, AgreesWithBruteForceOnLatestTimesOfRepeatedValues) {
  CompareWithBruteForce(14, 60'000, false, 0.3, false, 0.1, 0.7);
}
// Those that lead to a conditional erase may happen at any time: nothing correct is a violation.
TEST(KeyChecker, LatestTimesOfConditionsAskForTooLittleAtMost) {
  Random random(15);
  int found = 0, wrong = 0;
  for (int round = 0; round < (kSanitized ? 6'000 : 60'000); ++round) {
    const auto operations = RandomHistory(&random, true, 0.4, true, 0.1, 0.7);
    const auto initial = static_cast<int32_t>(random.Uniform(2));
    const bool got = CheckKey(initial, operations).verdict == Verdict::kCorrect;
    const bool want = BruteForce(operations, 0, initial);
    ASSERT_LE(want, got) << Describe(initial, operations);
    wrong += want ? 0 : 1;
    found += got ? 0 : 1;
  }
  EXPECT_GT(found, wrong * 99 / 100);
}

// Long correct histories made by a register that really runs: operations take effect at a moment of
// their interval.
std::vector<KeyOperation> LongHistory(Random* random, size_t count, int64_t overlap, bool deletes) {
  std::vector<std::pair<int64_t, KeyOperation>> by_effect;
  int32_t stored = 1;
  for (size_t i = 0; i < count; ++i) {
    KeyOperation o;
    const int64_t effect_ns =
        static_cast<int64_t>(i) * 100 + static_cast<int64_t>(random->Uniform(100));
    o.call_ns =
        effect_ns - static_cast<int64_t>(random->Uniform(static_cast<uint64_t>(overlap) * 100));
    o.return_ns =
        effect_ns + static_cast<int64_t>(random->Uniform(static_cast<uint64_t>(overlap) * 100));
    const uint64_t kind = random->Uniform(deletes ? 8 : 3);
    o.kind = kind == 0   ? Kind::kPut
             : kind <= 2 ? Kind::kSee
             : kind == 3 ? Kind::kInsert
             : kind == 4 ? Kind::kUpdate
             : kind == 5 ? Kind::kDelete
             : kind == 6 ? Kind::kSwap
                         : Kind::kEraseIf;
    const bool stores = o.kind != Kind::kSee && o.kind != Kind::kDelete && o.kind != Kind::kEraseIf;
    o.value = stores ? ++stored : kAbsent;
    by_effect.emplace_back(effect_ns, o);
  }
  std::sort(by_effect.begin(), by_effect.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<KeyOperation> operations;
  int32_t state = kAbsent;
  for (auto& [effect_ns, o] : by_effect) {
    if (o.kind == Kind::kSee) o.value = state;
    o.prior = (o.kind == Kind::kSwap || o.kind == Kind::kEraseIf) && state != kAbsent ? state : 0;
    if (!Apply(o, &state)) {  // refused: what it saw instead
      o.kind = o.kind == Kind::kInsert ? Kind::kSeePresent : Kind::kSee;
      o.value = kAbsent;
    }
    operations.push_back(o);
  }
  return operations;
}

TEST(KeyChecker, LongHistoriesOfOneKey) {
  Random random(5);
  for (const bool deletes : {false, true}) {
    // On average so many are in progress at once, on this one key.
    std::vector<KeyOperation> operations =
        LongHistory(&random, kSanitized ? 5'000 : 50'000, deletes ? 24 : 64, deletes);
    ASSERT_EQ(Check(operations), Verdict::kCorrect);
    // A read of a value that had been replaced for sure.
    for (size_t i = operations.size() - 1; i > 0; --i) {
      if (operations[i].kind != Kind::kSee || operations[i].value == kAbsent) continue;
      for (const KeyOperation& old : operations) {
        if (old.kind == Kind::kPut && old.value != operations[i].value) {
          operations[i].value = old.value;
          break;
        }
      }
      break;
    }
    EXPECT_EQ(Check(operations), Verdict::kViolation);
  }
}

TEST(KeyChecker, TooManyAtOnceIsUndecidedNotCorrect) {
  std::vector<KeyOperation> operations;
  for (int i = 0; i < 300; ++i) operations.push_back(Op(Kind::kPut, 1 + i, 0, 10));
  const KeyVerdict verdict = CheckKey(kAbsent, operations);
  EXPECT_EQ(verdict.verdict, Verdict::kUndecided);
  EXPECT_STREQ(verdict.why, "too many operations at once");
}

TEST(KeyChecker, AnUndecidedKeySaysWhichLimitItCameTo) {
  const std::vector<KeyOperation> operations = {Op(Kind::kPut, 1, 0, 10), Op(Kind::kPut, 2, 0, 10),
                                                Op(Kind::kSee, 1, 0, 10), Op(Kind::kSee, 2, 0, 10)};
  EXPECT_EQ(Check(operations), Verdict::kCorrect);
  const KeyVerdict verdict = CheckKey(kAbsent, operations, {.configurations_max = 0});
  EXPECT_EQ(verdict.verdict, Verdict::kUndecided);
  EXPECT_STREQ(verdict.why, "the limit of configurations looked at was reached");
}

}  // namespace
}  // namespace pando::history

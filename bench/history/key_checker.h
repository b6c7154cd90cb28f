// Is the history of one key linearizable? The key is a register that may be absent.
//
// Just-in-time linearization: events are taken in order of time; a set of configurations says what
// can have happened so far (the state, and which of the operations in progress have taken effect).
// Operations take effect as late as possible: when one returns, whatever must have happened before
// it is tried.
//
// Where each value is stored once, which histories should provide, these facts keep the set small;
// none changes the verdict (a test compares with brute force):
//   1. An operation without effect takes effect at the first moment at which its result is right.
//   2. A value stays until the last read of it has been called. Then it is "some value": nobody
//      will ask which.
//   3. A store whose reads have all been called is one step with them. From "some value" it changes
//      nothing; from "absent" it makes the key present. Of several such the one with the earliest
//      deadline goes first, and so do deletes.
//   4. A store whose reads have not all been called blocks the key. From "some value" there is no
//      reason to do that before one of them returns.
//   5. A value that a swap took away was there until then: once its other reads have been called
//      the swap is the only way on, and taken. So nothing else comes after it. A conditional erase
//      is the only way on, too, but may wait: it makes the key absent, which others need. One of
//      unknown outcome is a choice, which the value is kept for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace pando::history {

inline constexpr int32_t kAbsent = 0;  // values are numbered from 1

struct KeyOperation {
  enum class Kind : uint8_t {
    kSee,         // the state is `value` (perhaps kAbsent), no effect
    kSeePresent,  // a refused insert
    kPut,
    kInsert,   // needs absent
    kUpdate,   // needs present
    kDelete,   // needs present
    kSwap,     // needs `prior`
    kEraseIf,  // needs `prior`; leaves nothing
    kUpsert,   // leaves what a function makes of the state: CheckKeyWith() alone
    kClear,    // leaves nothing, whatever was there
  };
  Kind kind = Kind::kSee;
  bool unknown = false;           // may take effect at any time after its call, if it can, or never
  int64_t latest_ns = INT64_MAX;  // of an unknown one: but at no time after this
  int32_t value = kAbsent;        // kSee: what was read; stores: what was stored; else kAbsent
  int32_t prior = kAbsent;        // kSwap, kEraseIf: a value that has to be there
  int64_t call_ns = 0;
  int64_t return_ns = 0;
  uint32_t source = 0;  // the caller's
};

enum class Verdict { kCorrect, kViolation, kUndecided };

struct KeyVerdict {
  Verdict verdict = Verdict::kCorrect;
  const char* why = "";
  size_t culprit =
      0;  // of a violation: the operation (by position) whose return cannot be explained
};

struct KeyLimits {
  size_t configurations_max = 40'000'000;  // looked at for one key; beyond: undecided
};

// `operations` in any order. Closed intervals: one that returns at 10 is concurrent with one called
// at 10.
KeyVerdict CheckKey(int32_t initial, const std::vector<KeyOperation>& operations,
                    const KeyLimits& limits = {});

// What an upsert (by position) makes of a state; nothing: it is refused, or changes nothing.
using UpsertFunctions = std::function<std::optional<int32_t>(size_t operation, int32_t state)>;
// The same without the facts above, so that it soon is too hard, and with upserts.
KeyVerdict CheckKeyWith(const UpsertFunctions& upserts, int32_t initial,
                        const std::vector<KeyOperation>& operations, const KeyLimits& limits);

// CheckKey() knows the future: it may blame a store because an older value is read later. This
// finds the earliest return that what had been called by then cannot explain. `violation`: what
// CheckKey() said.
KeyVerdict EarliestCulprit(int32_t initial, const std::vector<KeyOperation>& operations,
                           const KeyVerdict& violation);

}  // namespace pando::history

// What the upserts of one key saw and stored, as far as the history tells: known ones from result
// and operand, those of unknown outcome from values that somebody read and nobody else can have
// stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/history/history.h"
#include "bench/history/key_checker.h"

namespace pando::history {

// The value from which the function and the operand make `result`; nothing: there is none. Values
// of 8 bytes, or of 16 hex digits as in files, are numbers; for others kAdd has none.
std::optional<std::string> BeforeUpsert(UpsertKind kind, std::string_view operand,
                                        std::string_view result);

// What they make of a value; nothing: the function refuses it.
std::optional<std::string> AfterUpsert(UpsertKind kind, std::string_view operand,
                                       std::string_view present);

// One upsert of the key: which of its operations, and what it was asked.
struct KeyUpsert {
  size_t operation;  // position in the key's operations; its call, return and unknown are set
  UpsertKind kind;
  std::string_view operand;
  std::string_view result;  // of a known one
};

struct UpsertsRead {
  bool impossible = false;  // a result that the function never has: `culprit`
  size_t culprit = 0;
  // More than one explanation was possible and one was chosen, or looking was given up: a violation
  // that is found then may be none.
  bool ambiguous = false;
};

// Completes kind, value and prior of the key's operations that are upserts. `text` of a number,
// `number` of a text (which it need not outlive): of values. `erases_too`: also what conditional
// erases of unknown outcome expected was there, if an upsert can have made it.
UpsertsRead ReadUpserts(int32_t initial, const std::vector<KeyUpsert>& upserts,
                        const std::function<std::string_view(int32_t)>& text,
                        const std::function<int32_t(const std::string&)>& number, bool erases_too,
                        std::vector<KeyOperation>* operations);

}  // namespace pando::history

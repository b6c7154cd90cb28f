#include "bench/history/checker.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "bench/history/upserts.h"

namespace pando::history {
namespace {

using Kind = KeyOperation::Kind;

constexpr size_t kExamplesMax = 5;
// Configurations of one key, where every choice is tried.
constexpr size_t kChoicesMax = 200'000;
constexpr uint32_t kFinalState = UINT32_MAX;  // as the source of an operation

// Text as it is, other bytes as hex.
std::string Printable(std::string_view bytes) {
  const bool plain =
      std::all_of(bytes.begin(), bytes.end(), [](char c) { return c > ' ' && c < 127; });
  return plain ? absl::StrCat("\"", absl::string_view(bytes.data(), bytes.size()), "\"")
               : absl::StrCat("0x", ToHex(bytes));
}

struct KeyHistory {
  int32_t initial = kAbsent;
  std::vector<KeyOperation> operations;
  std::vector<KeyUpsert> upserts;
  int64_t untold_ns = INT64_MAX;  // from then on

  void Add(const KeyOperation& o) {
    if (o.call_ns < untold_ns) operations.push_back(o);
  }
};

class HistoryCheck {
 public:
  HistoryCheck(const std::vector<Operation>& operations, const State* initial, const State* final,
               const Untold& untold)
      : operations_(operations) {
    CollectKeys(initial, final);
    for (const auto& [key, from_ns] : untold) {
      const size_t index = KeyIndex(key);
      if (index < names_.size() && names_[index] == key) keys_[index].untold_ns = from_ns;
    }
    if (initial != nullptr) {
      for (const auto& [key, value] : *initial) keys_[KeyIndex(key)].initial = Number(value);
    }
    for (size_t i = 0; i < operations_.size(); ++i) AddOperation(static_cast<uint32_t>(i));
    if (final != nullptr) AddFinal(*final);
  }

  CheckResult Run(const KeyLimits& limits);

 private:
  void CollectKeys(const State* initial, const State* final);
  size_t KeyIndex(const std::string& key) const {
    return static_cast<size_t>(std::lower_bound(names_.begin(), names_.end(), key) -
                               names_.begin());
  }
  int32_t Number(const std::string& value) {
    const auto [entry, is_new] = numbers_.emplace(value, static_cast<int32_t>(values_.size()));
    if (is_new) values_.push_back(value);
    return entry->second;
  }
  void AddOperation(uint32_t source);
  void AddConditional(uint32_t source, KeyOperation o);
  // Whether it could have been done, given what it says was there.
  bool RefusedWithoutReason(const Operation& operation) const;
  void AddScan(uint32_t source);
  void AddFinal(const State& final);
  int32_t NumberOfText(const std::string& text) {
    const auto known = numbers_.find(text);
    return known != numbers_.end() ? known->second : Number(texts_.emplace_back(text));
  }
  KeyVerdict Check(size_t key, const KeyLimits& limits);
  KeyVerdict CheckEveryChoice(const KeyHistory& history, std::vector<KeyOperation> operations,
                              const KeyLimits& limits);
  void Broken(const std::string& what) { broken_.push_back(what); }
  std::string Describe(const KeyOperation& o) const;
  std::string Explain(size_t key, const KeyVerdict& verdict) const;

  const std::vector<Operation>& operations_;
  std::vector<std::string_view> names_;  // sorted
  std::vector<KeyHistory> keys_;         // by position in names_
  std::vector<std::string_view> values_ = {"(absent)"};
  absl::flat_hash_map<std::string_view, int32_t> numbers_;
  size_t longest_ = 0;               // of all values that were there
  std::deque<std::string> texts_;    // of values that are nowhere in the history
  std::vector<std::string> broken_;  // wrong by itself, whatever the order
  int64_t last_ns_ = 0;
};

void HistoryCheck::CollectKeys(const State* initial, const State* final) {
  const auto there = [this](const std::string& value) {
    longest_ = std::max(longest_, value.size());
  };
  for (const Operation& o : operations_) {
    if (o.kind != OperationKind::kScan) names_.push_back(o.key);
    for (const auto& row : o.rows) {
      names_.push_back(row.first);
      there(row.second);
    }
    const bool of_value =
        o.kind == OperationKind::kPut || (o.kind == OperationKind::kInsert ? !o.found : o.found);
    if (of_value && !o.unknown()) there(o.value);
    if (o.actual.has_value() && !o.unknown()) there(*o.actual);
    last_ns_ = std::max(last_ns_, o.unknown() ? o.call_ns : o.return_ns);
  }
  for (const State* state : {initial, final}) {
    if (state == nullptr) continue;
    for (const auto& entry : *state) {
      names_.push_back(entry.first);
      there(entry.second);
    }
  }
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  keys_.resize(names_.size());
}

void HistoryCheck::AddOperation(uint32_t source) {
  const Operation& operation = operations_[source];
  if (operation.kind == OperationKind::kScan) return AddScan(source);
  KeyOperation o;
  o.unknown = operation.unknown();
  o.call_ns = operation.call_ns;
  o.return_ns = operation.return_ns;
  o.latest_ns = operation.latest_ns;
  o.source = source;
  const bool takes_effect = o.unknown || operation.found;
  switch (operation.kind) {
    case OperationKind::kGet:
      o.kind = Kind::kSee;
      if (operation.found) o.value = Number(operation.value);
      break;
    case OperationKind::kPut:
      o.kind = Kind::kPut;
      o.value = Number(operation.value);
      break;
    case OperationKind::kInsert:
      o.kind = operation.found && !o.unknown ? Kind::kSeePresent : Kind::kInsert;
      if (o.kind == Kind::kInsert) o.value = Number(operation.value);
      break;
    case OperationKind::kUpdate:
      o.kind = takes_effect ? Kind::kUpdate : Kind::kSee;
      if (takes_effect) o.value = Number(operation.value);
      break;
    case OperationKind::kDelete:
      o.kind = takes_effect ? Kind::kDelete : Kind::kSee;
      break;
    case OperationKind::kClear:
      o.kind = Kind::kClear;
      break;
    case OperationKind::kReplace:
    case OperationKind::kEraseIf:
    case OperationKind::kUpsert:
      return AddConditional(source, o);
    case OperationKind::kScan:
      break;
  }
  keys_[KeyIndex(operation.key)].Add(o);
}

// `o` but for kind and values.
void HistoryCheck::AddConditional(uint32_t source, KeyOperation o) {
  const Operation& operation = operations_[source];
  KeyHistory& key = keys_[KeyIndex(operation.key)];
  if (!o.unknown && !operation.found) {
    o.kind = Kind::kSee;
    if (operation.actual.has_value()) o.value = Number(*operation.actual);
    if (RefusedWithoutReason(operation)) {
      Broken(absl::StrCat("key ", Printable(operation.key), ": ", Describe(o),
                          ", which is no reason to refuse it"));
    }
  } else if (o.call_ns >= key.untold_ns) {
    return;
  } else if (operation.kind == OperationKind::kUpsert) {
    key.upserts.push_back(
        {key.operations.size(), operation.upsert, operation.operand, operation.value});
  } else {
    const bool replaces = operation.kind == OperationKind::kReplace;
    o.kind = replaces ? Kind::kSwap : Kind::kEraseIf;
    o.prior = Number(operation.expected);
    if (replaces) o.value = Number(operation.value);
  }
  key.Add(o);
}

bool HistoryCheck::RefusedWithoutReason(const Operation& operation) const {
  if (operation.kind != OperationKind::kUpsert) return operation.actual == operation.expected;
  // Of an absent key each function makes its operand.
  if (!operation.actual.has_value()) return true;
  const auto made = AfterUpsert(operation.upsert, operation.operand, *operation.actual);
  // How long values may be the history does not say: not shorter than the longest that was there.
  return made.has_value() && made->size() <= longest_;
}

void HistoryCheck::AddScan(uint32_t source) {
  const Operation& scan = operations_[source];
  if (scan.unknown()) return;
  const std::string where =
      scan.line > 0 ? absl::StrCat("line ", scan.line, ": scan: ")
                    : absl::StrCat("scan of client ", scan.client, " at ", scan.call_ns, ": ");
  if (scan.rows.size() > scan.limit) {
    Broken(absl::StrCat(where, scan.rows.size(), " rows, limit ", scan.limit));
  }
  std::vector<std::pair<size_t, int32_t>> returned;
  for (size_t i = 0; i < scan.rows.size(); ++i) {
    const std::string& key = scan.rows[i].first;
    const char* what = key < scan.key                           ? "is before the scan's start"
                       : scan.to.has_value() && key >= *scan.to ? "is not before the scan's end"
                       : i > 0 && key == scan.rows[i - 1].first ? "is there twice"
                       : i > 0 && key < scan.rows[i - 1].first  ? "is not in order"
                                                                : nullptr;
    if (what != nullptr) Broken(absl::StrCat(where, "key ", Printable(key), " ", what));
    returned.emplace_back(KeyIndex(key), Number(scan.rows[i].second));
  }
  std::sort(returned.begin(), returned.end());
  if (scan.limit == 0) return;
  const bool to_end = scan.rows.size() < scan.limit;
  const size_t first = KeyIndex(scan.key);
  const size_t range_end = scan.to.has_value() ? KeyIndex(*scan.to) : names_.size();
  const size_t end = to_end ? range_end : returned.back().first + 1;
  auto row = returned.begin();
  for (size_t key = std::min(first, returned.empty() ? first : returned.front().first); key < end;
       ++key) {
    KeyOperation o;
    o.call_ns = scan.call_ns;
    o.return_ns = scan.return_ns;
    o.source = source;
    const bool is_row = row != returned.end() && row->first == key;
    if (!is_row && key < first) continue;
    for (; row != returned.end() && row->first == key; ++row) {
      o.value = row->second;
      keys_[key].Add(o);
    }
    if (!is_row) keys_[key].Add(o);
  }
}

void HistoryCheck::AddFinal(const State& final) {
  std::vector<bool> seen(keys_.size());
  KeyOperation o;
  o.call_ns = last_ns_ + 1;
  o.return_ns = last_ns_ + 2;
  o.source = kFinalState;
  for (const auto& [key, value] : final) {
    const size_t index = KeyIndex(key);
    if (seen[index]) Broken(absl::StrCat("final state: key ", Printable(key), " twice"));
    seen[index] = true;
    o.value = Number(value);
    keys_[index].Add(o);
  }
  o.value = kAbsent;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!seen[i]) keys_[i].Add(o);
  }
}

std::string HistoryCheck::Describe(const KeyOperation& o) const {
  if (o.source == kFinalState) return absl::StrCat("final state: ", Printable(values_[o.value]));
  const Operation& operation = operations_[o.source];
  const std::string line = operation.line > 0 ? absl::StrCat("line ", operation.line, " ") : "";
  const std::string returned = !o.unknown ? absl::StrCat(operation.return_ns)
                               : operation.latest_ns == kAtAnyTime
                                   ? "unknown"
                                   : absl::StrCat("unknown by ", operation.latest_ns);
  std::string text = absl::StrCat(line, "[", operation.call_ns, ", ", returned, "] client ",
                                  operation.client, " ", OperationKindName(operation.kind));
  if (!operation.value.empty()) absl::StrAppend(&text, " ", Printable(operation.value));
  if (operation.kind == OperationKind::kScan || operation.kind == OperationKind::kGet) {
    return absl::StrCat(text, " -> ", o.value == kAbsent ? "absent" : Printable(values_[o.value]));
  }
  if (!operation.expected.empty()) {
    absl::StrAppend(&text, " expected ", Printable(operation.expected));
  }
  if (operation.kind == OperationKind::kUpsert) {
    absl::StrAppend(&text, operation.upsert == UpsertKind::kAdd ? " add " : " append ",
                    Printable(operation.operand));
  }
  if (operation.kind == OperationKind::kClear) return absl::StrCat(text, " -> absent by then");
  if (o.unknown || operation.kind == OperationKind::kPut) return text;
  if (IsConditional(operation.kind)) {
    if (operation.found) return absl::StrCat(text, " -> done");
    return absl::StrCat(text, " -> refused: ",
                        operation.actual.has_value() ? Printable(*operation.actual) : "absent");
  }
  return absl::StrCat(text, operation.found ? " -> it was there" : " -> it was not there");
}

std::string HistoryCheck::Explain(size_t key, const KeyVerdict& verdict) const {
  const std::vector<KeyOperation>& all = keys_[key].operations;
  const size_t culprit = EarliestCulprit(keys_[key].initial, all, verdict).culprit;
  const int64_t end_ns = all[culprit].return_ns;
  // What is concurrent with the culprit, what stored the value it read, and the few before.
  constexpr size_t kBefore = 6, kMost = 24;
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].call_ns <= end_ns) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return all[a].call_ns < all[b].call_ns; });
  size_t before = 0;
  std::vector<size_t> shown;
  for (auto at = order.rbegin(); at != order.rend() && shown.size() < kMost; ++at) {
    const KeyOperation& o = all[*at];
    const bool concurrent = o.unknown || o.return_ns >= all[culprit].call_ns;
    const bool stored_it =
        o.kind != Kind::kSee && o.value != kAbsent && o.value == all[culprit].value;
    if (concurrent || stored_it || ++before <= kBefore) shown.push_back(*at);
  }
  std::string text = absl::StrCat(
      "key ", Printable(names_[key]), ", initially ",
      keys_[key].initial == kAbsent ? "absent" : Printable(values_[keys_[key].initial]), ": ",
      verdict.why);
  for (auto at = shown.rbegin(); at != shown.rend(); ++at) {
    absl::StrAppend(&text, *at == culprit ? "\n  => " : "\n     ", Describe(all[*at]));
  }
  return text;
}

// Every order of them, with everything that upserts of unknown outcome may have done.
KeyVerdict HistoryCheck::CheckEveryChoice(const KeyHistory& history,
                                          std::vector<KeyOperation> operations,
                                          const KeyLimits& limits) {
  absl::flat_hash_map<size_t, const KeyUpsert*> upserts;
  for (const KeyUpsert& upsert : history.upserts) {
    KeyOperation& o = operations[upsert.operation];
    o.kind = Kind::kUpsert;
    if (!o.unknown) o.value = NumberOfText(std::string(upsert.result));
    upserts[upsert.operation] = &upsert;
  }
  const auto after = [&](size_t operation, int32_t state) -> std::optional<int32_t> {
    const KeyUpsert& upsert = *upserts.at(operation);
    if (state == kAbsent) return NumberOfText(std::string(upsert.operand));
    const auto made = AfterUpsert(upsert.kind, upsert.operand, values_[state]);
    return made.has_value() ? std::optional<int32_t>(NumberOfText(*made)) : std::nullopt;
  };
  return CheckKeyWith(after, history.initial, operations,
                      {.configurations_max = std::min(limits.configurations_max, kChoicesMax)});
}

KeyVerdict HistoryCheck::Check(size_t key, const KeyLimits& limits) {
  KeyHistory& history = keys_[key];
  if (history.upserts.empty()) return CheckKey(history.initial, history.operations, limits);
  const std::vector<KeyOperation> unread = history.operations;
  KeyVerdict verdict;
  bool ambiguous = false;
  // Whatever reading of them explains the history is good.
  for (const bool erases_too : {false, true}) {
    history.operations = unread;
    const UpsertsRead upserts = ReadUpserts(
        history.initial, history.upserts, [this](int32_t value) { return values_[value]; },
        [this](const std::string& text) { return NumberOfText(text); }, erases_too,
        &history.operations);
    if (upserts.impossible) {
      return {Verdict::kViolation, "its result is none of its function and operand",
              upserts.culprit};
    }
    verdict = CheckKey(history.initial, history.operations, limits);
    if (verdict.verdict != Verdict::kViolation) return verdict;
    ambiguous = upserts.ambiguous;
    if (!ambiguous) break;
  }
  // None does, but what was stored was told from values, and values may be stored twice.
  const KeyVerdict every = CheckEveryChoice(history, unread, limits);
  if (every.verdict == Verdict::kCorrect) return every;
  if (every.verdict == Verdict::kViolation || !ambiguous) return verdict;
  return {Verdict::kUndecided, "several upserts of unknown outcome may explain what was read"};
}

CheckResult HistoryCheck::Run(const KeyLimits& limits) {
  CheckResult result;
  result.operations = operations_.size();
  result.keys = keys_.size();
  for (const Operation& o : operations_) result.unknown_operations += o.unknown() ? 1 : 0;
  result.violations = broken_;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const KeyVerdict verdict = Check(i, limits);
    if (verdict.verdict == Verdict::kUndecided) {
      result.undecided.push_back(absl::StrCat("key ", Printable(names_[i]), ": ",
                                              keys_[i].operations.size(),
                                              " operations: ", verdict.why));
    } else if (verdict.verdict == Verdict::kViolation && ++result.keys_violated <= kExamplesMax) {
      result.violations.push_back(Explain(i, verdict));
    }
  }
  result.verdict = !result.violations.empty()  ? Verdict::kViolation
                   : !result.undecided.empty() ? Verdict::kUndecided
                                               : Verdict::kCorrect;
  return result;
}

}  // namespace

CheckResult CheckHistory(const std::vector<Operation>& operations, const State* initial,
                         const State* final, const KeyLimits& limits, const Untold& untold) {
  return HistoryCheck(operations, initial, final, untold).Run(limits);
}

}  // namespace pando::history

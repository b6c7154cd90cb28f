#include "bench/history/upserts.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"

namespace pando::history {
namespace {

using Kind = KeyOperation::Kind;

// Steps in search of the upserts of unknown outcome that explain what was read of one key.
constexpr int kStepsMax = 100'000;
// Upserts of unknown outcome in a row that nobody has read between.
constexpr int kInARowMax = 8;

std::optional<uint64_t> NumberOf(std::string_view value) {
  std::string bytes(value);
  if (value.size() == 16) bytes = absl::HexStringToBytes(absl::string_view(value.data(), 16));
  uint64_t number;
  if (bytes.size() != sizeof(number)) return std::nullopt;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

// In the form of `like`, which is a number.
std::string TextOf(uint64_t number, std::string_view like) {
  std::string value(sizeof(number), '\0');
  std::memcpy(value.data(), &number, sizeof(number));
  return like.size() == sizeof(number) ? value : ToHex(value);
}

class Reader {
 public:
  Reader(const std::vector<KeyUpsert>& upserts,
         const std::function<std::string_view(int32_t)>& text,
         const std::function<int32_t(const std::string&)>& number, bool erases_too,
         std::vector<KeyOperation>* operations)
      : upserts_(upserts),
        text_(text),
        number_(number),
        erases_too_(erases_too),
        operations_(*operations) {}

  UpsertsRead Run(int32_t initial);

 private:
  bool IsStored(int32_t value) const { return stored_.contains(value); }
  bool ReadKnown(const KeyUpsert& upsert);
  // Whether upserts of unknown outcome, each at most once, can have made the value.
  void Explain(int32_t value);
  void ExplainAllSeen();
  // With so many of them, the last one first.
  bool ExplainBy(int in_a_row, int32_t value);

  const std::vector<KeyUpsert>& upserts_;
  const std::function<std::string_view(int32_t)>& text_;
  const std::function<int32_t(const std::string&)>& number_;
  const bool erases_too_;
  std::vector<KeyOperation>& operations_;
  std::set<int32_t> stored_;
  std::vector<bool> used_;
  UpsertsRead read_;
  int steps_ = 0;
};

bool Reader::ReadKnown(const KeyUpsert& upsert) {
  KeyOperation& o = operations_[upsert.operation];
  const std::optional<std::string> before =
      BeforeUpsert(upsert.kind, upsert.operand, upsert.result);
  const bool from_absent = upsert.result == upsert.operand;
  if (!from_absent && !before.has_value()) return false;
  const int32_t prior = before.has_value() ? number_(*before) : kAbsent;
  const bool from_value = before.has_value() && (!from_absent || IsStored(prior));
  read_.ambiguous = read_.ambiguous || (from_absent && from_value);
  o.kind = from_value ? Kind::kSwap : Kind::kInsert;
  if (from_value) o.prior = prior;
  return true;
}

void Reader::Explain(int32_t value) {
  size_t left = 0;
  for (size_t i = 0; i < upserts_.size(); ++i) {
    left += operations_[upserts_[i].operation].unknown && !used_[i] ? 1 : 0;
  }
  for (size_t in_a_row = 0; in_a_row <= left; ++in_a_row) {
    if (in_a_row > kInARowMax) {
      read_.ambiguous = true;
      return;
    }
    if (ExplainBy(static_cast<int>(in_a_row), value)) return;
  }
}

bool Reader::ExplainBy(int in_a_row, int32_t value) {
  if (in_a_row == 0) return IsStored(value);
  bool explained = false;
  for (size_t i = 0; i < upserts_.size(); ++i) {
    const KeyUpsert& upsert = upserts_[i];
    KeyOperation& o = operations_[upsert.operation];
    if (!o.unknown || used_[i]) continue;
    if (++steps_ > kStepsMax) {
      read_.ambiguous = true;
      return explained;
    }
    const std::optional<std::string> before =
        BeforeUpsert(upsert.kind, upsert.operand, text_(value));
    const bool from_absent = text_(value) == upsert.operand;
    if (!from_absent && !before.has_value()) continue;
    if (explained) {  // another way
      read_.ambiguous = read_.ambiguous || from_absent || IsStored(number_(*before));
      continue;
    }
    used_[i] = true;
    explained = (from_absent && in_a_row == 1) ||
                (before.has_value() && ExplainBy(in_a_row - 1, number_(*before)));
    if (!explained) {
      used_[i] = false;
      continue;
    }
    const bool from_value = before.has_value() && IsStored(number_(*before));
    o.kind = from_value ? Kind::kSwap : Kind::kInsert;
    o.value = value;
    if (from_value) o.prior = number_(*before);
    stored_.insert(value);
  }
  return explained;
}

// Whatever somebody has seen, and what those saw who made that.
void Reader::ExplainAllSeen() {
  std::set<int32_t> seen;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const KeyOperation& o = operations_[i];
      const bool takes = o.kind == Kind::kSwap || o.kind == Kind::kEraseIf;
      if (!takes && (o.unknown || o.kind != Kind::kSee)) continue;
      if (takes && o.unknown && !seen.contains(o.value)) {
        // Whether it happened may hang on an upsert that nothing else tells of.
        if (o.kind != Kind::kEraseIf || IsStored(o.prior)) continue;
        read_.ambiguous = true;
        if (!erases_too_) continue;
      }
      const int32_t value = takes ? o.prior : o.value;
      if (value == kAbsent || !seen.insert(value).second) continue;
      Explain(value);
      changed = true;
    }
  }
}

UpsertsRead Reader::Run(int32_t initial) {
  used_.resize(upserts_.size());
  if (initial != kAbsent) stored_.insert(initial);
  std::set<size_t> unread;
  for (const KeyUpsert& upsert : upserts_) {
    KeyOperation& o = operations_[upsert.operation];
    if (o.unknown) {
      unread.insert(upsert.operation);
    } else {
      o.value = number_(std::string(upsert.result));
      stored_.insert(o.value);
    }
  }
  for (const KeyOperation& o : operations_) {
    const bool stores = o.kind == Kind::kPut || o.kind == Kind::kInsert ||
                        o.kind == Kind::kUpdate || o.kind == Kind::kSwap;
    if (stores && o.value != kAbsent) stored_.insert(o.value);
  }
  for (const KeyUpsert& upsert : upserts_) {
    if (operations_[upsert.operation].unknown || ReadKnown(upsert)) continue;
    return {.impossible = true, .culprit = upsert.operation};
  }
  if (unread.empty()) return read_;
  ExplainAllSeen();
  // What nobody saw made the key present at the most.
  for (size_t i = 0; i < upserts_.size(); ++i) {
    KeyOperation& o = operations_[upserts_[i].operation];
    if (!o.unknown || used_[i]) continue;
    o.kind = Kind::kInsert;
    o.value = number_(absl::StrCat("(what nobody saw, ", o.source, ")"));
  }
  return read_;
}

}  // namespace

std::optional<std::string> BeforeUpsert(UpsertKind kind, std::string_view operand,
                                        std::string_view result) {
  if (kind == UpsertKind::kAppend) {
    if (!result.ends_with(operand)) return std::nullopt;
    return std::string(result.substr(0, result.size() - operand.size()));
  }
  const std::optional<uint64_t> sum = NumberOf(result), added = NumberOf(operand);
  if (!sum.has_value() || !added.has_value() || result.size() != operand.size()) {
    return std::nullopt;
  }
  return TextOf(*sum - *added, result);
}

std::optional<std::string> AfterUpsert(UpsertKind kind, std::string_view operand,
                                       std::string_view present) {
  if (kind == UpsertKind::kAppend) return std::string(present).append(operand);
  const std::optional<uint64_t> before = NumberOf(present), added = NumberOf(operand);
  if (!before.has_value() || !added.has_value() || present.size() != operand.size()) {
    return std::nullopt;
  }
  return TextOf(*before + *added, present);
}

UpsertsRead ReadUpserts(int32_t initial, const std::vector<KeyUpsert>& upserts,
                        const std::function<std::string_view(int32_t)>& text,
                        const std::function<int32_t(const std::string&)>& number, bool erases_too,
                        std::vector<KeyOperation>* operations) {
  return Reader(upserts, text, number, erases_too, operations).Run(initial);
}

}  // namespace pando::history

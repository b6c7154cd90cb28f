#include "compute/value/large_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/index/write_decision.h"
#include "compute/index/write_run.h"

namespace pando {
namespace {

// A cell that the tree refers to, and that is another one each time it is READ.
constexpr int kLooksMax = 8;
// Writes of one leaf whose cells are written together.
constexpr size_t kRunMax = 64;

absl::Status DamagedSlot(std::string_view key) {
  return absl::DataLossError(absl::StrCat("a slot with a key of ", key.size(),
                                          " bytes holds neither a value nor a reference to one"));
}

// Whether it is certain that an operation which ended so has changed nothing.
bool HadNoEffect(const absl::Status& result) {
  return absl::IsNotFound(result) || absl::IsAlreadyExists(result) || IsConditionFailed(result) ||
         absl::IsInvalidArgument(result) || absl::IsDeadlineExceeded(result) ||
         absl::IsResourceExhausted(result);
}

}  // namespace

absl::StatusOr<bool> LargeValues::LookOnce(OperationContext& context, std::string_view key,
                                           const std::optional<CellReference>& place,
                                           std::string* stored, std::string* value,
                                           bool* too_slow) {
  SessionCounters& counters = context.session.counters();
  if (place.has_value()) {
    PANDO_ASSIGN_OR_RETURN(const bool was_there,
                           cells_.ReadWithSlot(context, key, *place, stored, value));
    places_.NoteTried(was_there);
    if (was_there) {
      counters.place_hits.Add();
      return true;
    }
  } else {
    PANDO_RETURN_IF_ERROR(GetSlot(context, key, stored));
  }
  const std::optional<StoredValue> parsed = ParseStored(*stored);
  if (!parsed.has_value()) return DamagedSlot(key);
  if (!parsed->reference.has_value()) {
    value->assign(parsed->inlined);
    if (place.has_value()) Remember(key, std::nullopt);
    return true;
  }
  if (owned_ == nullptr) counters.place_misses.Add();
  const absl::StatusOr<bool> found = cells_.Read(context, key, *parsed->reference, value);
  *too_slow = absl::IsAborted(found.status());
  if (*too_slow) return false;
  if (found.ok() && *found) Remember(key, parsed->reference);
  return found;
}

absl::Status LargeValues::Look(OperationContext& context, std::string_view key, std::string* stored,
                               std::string* value) {
  // An owner has the slot at hand, and says nothing of cells: that is READ afterwards.
  std::optional<CellReference> place;
  if (owned_ == nullptr) place = places_.Try(HashOf(key));
  std::string before;
  for (int looks = 0;;) {
    bool too_slow = false;
    const absl::StatusOr<bool> found = LookOnce(context, key, place, stored, value, &too_slow);
    if (absl::IsNotFound(found.status()) && place.has_value()) Remember(key, std::nullopt);
    if (!found.ok() || *found) return found.status();
    if (context.expired()) return context.DeadlineError("reading a value");
    // Mostly another value has come, and the cell has gone.
    if (*stored != before) looks = 0;
    if (!too_slow && ++looks > kLooksMax) {
      const uint32_t bytes = ParseStored(*stored)->reference->value_bytes;
      return absl::DataLossError(absl::StrCat("the cell of a value of ", bytes,
                                              " bytes holds something else: run pando check"));
    }
    before = *stored;
    place.reset();
  }
}

void LargeValues::Remember(std::string_view key, const std::optional<CellReference>& cell) {
  if (owned_ != nullptr) return;
  if (cell.has_value()) {
    places_.Remember(HashOf(key), *cell);
  } else {
    places_.Forget(HashOf(key));
  }
}

absl::Status LargeValues::Get(OperationContext& context, std::string_view key, std::string* value) {
  std::string stored;
  return Look(context, key, &stored, value);
}

absl::Status LargeValues::Store(OperationContext& context, std::string_view key,
                                std::string_view value, Stored* stored) {
  stored->cell.reset();
  if (value.size() <= tree_.entry.shape.inline_value_bytes_max) {
    StoreInline(value, &stored->bytes);
    return absl::OkStatus();
  }
  PANDO_ASSIGN_OR_RETURN(stored->cell, cells_.Write(context, key, value));
  StoreReference(*stored->cell, &stored->bytes);
  return absl::OkStatus();
}

void LargeValues::FreeReplaced(OperationContext& context, std::string_view key,
                               std::string_view previous) {
  const std::optional<CellReference> old = CellOfStored(previous);
  if (!old.has_value()) return;
  cells_.Free(key, *old);
  cells_.FlushIfMany(context, key, *old);
}

void LargeValues::Settle(OperationContext& context, std::string_view key,
                         const absl::Status& result, const std::optional<CellReference>& linked,
                         std::string_view previous) {
  if (owned_ != nullptr) return;
  const bool took_effect = result.ok() || (IsOutcomeUnknown(result) && !RuleHolds(Rule::kK2));
  if (took_effect) {
    Remember(key, linked);
    if (linked.has_value()) cells_.NoteLinked(key, *linked);
    FreeReplaced(context, key, previous);
    if (linked.has_value()) cells_.FlushIfMany(context, key, *linked);
    return;
  }
  if (!HadNoEffect(result)) {
    cells_.NoteUncertain();  // also of what the slot had before
  } else if (linked.has_value()) {
    cells_.Free(key, *linked);
  }
}

absl::Status LargeValues::WriteBlind(OperationContext& context, const WriteOperation& operation) {
  Stored stored;
  PANDO_RETURN_IF_ERROR(Store(context, operation.key, operation.value, &stored));
  const WriteOperation of_slot{
      .kind = operation.kind, .key = operation.key, .value = stored.bytes, .wants_previous = true};
  std::string previous;
  const absl::Status result = WriteSlot(context, of_slot, &previous);
  // The variant has put the reference there first.
  if (!RuleHolds(Rule::kK1) && stored.cell.has_value()) {
    PANDO_RETURN_IF_ERROR(cells_.WriteLate(context, operation.key, operation.value, *stored.cell));
  }
  Settle(context, operation.key, result, stored.cell, previous);
  return result;
}

absl::Status LargeValues::Erase(OperationContext& context, std::string_view key) {
  const WriteOperation of_slot{.kind = WriteKind::kErase, .key = key, .wants_previous = true};
  std::string previous;
  const absl::Status result = WriteSlot(context, of_slot, &previous);
  Settle(context, key, result, std::nullopt, previous);
  return result;
}

absl::Status LargeValues::WriteIf(OperationContext& context, const WriteOperation& operation,
                                  std::string* answer) {
  while (true) {
    std::string present, value;
    PANDO_RETURN_IF_ERROR(Look(context, operation.key, &present, &value));
    if (value != operation.expected) {
      if (answer != nullptr) *answer = std::move(value);
      return ValueDiffers();
    }
    // A reference is in the tree once (rule K1): as long as it is there, the value is that.
    Stored stored;
    if (operation.kind == WriteKind::kReplace) {
      PANDO_RETURN_IF_ERROR(Store(context, operation.key, operation.value, &stored));
    }
    const WriteOperation of_slot{
        .kind = operation.kind, .key = operation.key, .value = stored.bytes, .expected = present};
    if (!RuleHolds(Rule::kK2Early)) FreeReplaced(context, operation.key, present);
    const absl::Status result = WriteSlot(context, of_slot, nullptr);
    Settle(context, operation.key, result, stored.cell, present);
    if (!IsConditionFailed(result)) return result;
    if (context.expired()) return context.DeadlineError("comparing a value");
  }
}

absl::StatusOr<bool> LargeValues::Exchange(OperationContext& context, std::string_view key,
                                           const std::optional<std::string>& present,
                                           std::string_view value) {
  Stored stored;
  PANDO_RETURN_IF_ERROR(Store(context, key, value, &stored));
  WriteOperation of_slot{.kind = WriteKind::kInsert, .key = key, .value = stored.bytes};
  if (present.has_value()) {
    of_slot.kind = WriteKind::kReplace;
    of_slot.expected = *present;
  }
  const absl::Status result = WriteSlot(context, of_slot, nullptr);
  Settle(context, key, result, stored.cell, present.value_or(""));
  if (result.ok()) return true;
  if (absl::IsAlreadyExists(result) || absl::IsNotFound(result) || IsConditionFailed(result)) {
    return false;
  }
  return result;
}

absl::Status LargeValues::Upsert(OperationContext& context, const WriteOperation& operation,
                                 std::string* answer) {
  const uint32_t value_bytes_max = tree_.entry.shape.value_bytes_max;
  while (true) {
    std::string stored, value;
    const absl::Status there = Look(context, operation.key, &stored, &value);
    if (!there.ok() && !absl::IsNotFound(there)) return there;
    std::optional<std::string_view> present;
    if (there.ok()) present = value;
    std::string computed;
    absl::Status result;
    std::string said;
    const WriteEffect effect =
        DecideUpsert(operation, present, value_bytes_max, &computed, &result, &said);
    if (effect != WriteEffect::kStore) {
      if (answer != nullptr) *answer = std::move(said);
      return result;
    }
    const std::optional<std::string> expected =
        there.ok() ? std::optional<std::string>(std::move(stored)) : std::nullopt;
    PANDO_ASSIGN_OR_RETURN(const bool done, Exchange(context, operation.key, expected, computed));
    if (done) {
      if (answer != nullptr) *answer = std::move(computed);
      return absl::OkStatus();
    }
    if (context.expired()) return context.DeadlineError("an upsert that others overtook");
  }
}

absl::Status LargeValues::Write(OperationContext& context, const WriteOperation& operation,
                                std::string* answer) {
  switch (operation.kind) {
    case WriteKind::kPut:
    case WriteKind::kInsert:
    case WriteKind::kUpdate:
      return WriteBlind(context, operation);
    case WriteKind::kErase:
      return Erase(context, operation.key);
    case WriteKind::kReplace:
    case WriteKind::kEraseIf:
      return WriteIf(context, operation, answer);
    case WriteKind::kUpsert:
      return Upsert(context, operation, answer);
  }
  return absl::InternalError("no such write");
}

size_t LargeValues::RunLength(OperationContext& context, absl::Span<const RunWrite> writes) const {
  const auto is_blind = [](const RunWrite& write) {
    const WriteKind kind = write.operation->kind;
    return kind == WriteKind::kPut || kind == WriteKind::kInsert || kind == WriteKind::kUpdate ||
           kind == WriteKind::kErase;
  };
  const std::string_view first = writes.front().operation->key;
  const std::optional<std::string> border =
      owned_ != nullptr ? owned_->NextBorder(first) : NextBorder(context, tree_, first);
  if (!border.has_value()) return 1;
  size_t length = 0;
  for (; length < std::min(writes.size(), kRunMax); ++length) {
    const RunWrite& write = writes[length];
    if (!is_blind(write) || (!border->empty() && write.operation->key >= *border)) break;
  }
  return length;
}

size_t LargeValues::WriteRun(OperationContext& context, absl::Span<const RunWrite> writes,
                             std::vector<MissingSeparator>* later) {
  const size_t length = RunLength(context, writes);
  const auto write_first = [&] {
    const RunWrite& first = writes.front();
    *first.result = Write(context, *first.operation, first.answer);
    return size_t{1};
  };
  if (length <= 1) return write_first();
  std::vector<CellStore::NewValue> cells;
  std::vector<std::string> stored(length), previous(length);
  std::vector<WriteOperation> operations;
  std::vector<absl::Status> results(length);
  for (const RunWrite& write : writes.first(length)) {
    if (NeedsCell(*write.operation)) {
      cells.push_back(
          {.key = write.operation->key, .value = write.operation->value, .reference = {}});
    }
  }
  // Where there is no memory for all of them the first may still need none.
  if (!cells_.WriteAll(context, absl::MakeSpan(cells)).ok()) return write_first();
  auto cell = cells.begin();
  for (size_t i = 0; i < length; ++i) {
    const WriteOperation& operation = *writes[i].operation;
    if (NeedsCell(operation)) {
      StoreReference((cell++)->reference, &stored[i]);
    } else if (operation.kind != WriteKind::kErase) {
      StoreInline(operation.value, &stored[i]);
    }
    operations.push_back(
        {.kind = operation.kind, .key = operation.key, .value = stored[i], .wants_previous = true});
  }
  std::vector<RunWrite> run;
  for (size_t i = 0; i < length; ++i) run.push_back({&operations[i], &results[i], &previous[i]});
  const size_t done = owned_ != nullptr ? owned_->WriteRun(context, run)
                                        : pando::WriteRun(context, tree_, run, later);
  for (size_t i = 0; i < length; ++i) {
    const std::optional<CellReference> linked = CellOfStored(stored[i]);
    if (i < done) {
      Settle(context, operations[i].key, results[i], linked, previous[i]);
      *writes[i].result = std::move(results[i]);
    } else if (linked.has_value()) {  // another leaf's: it begins anew
      cells_.Free(operations[i].key, *linked);
    }
  }
  return done;
}

absl::Status LargeValues::Resolve(OperationContext& context, absl::Span<LeafEntry> entries,
                                  std::vector<bool>* there) {
  there->assign(entries.size(), true);
  std::vector<CellStore::WantedValue> wanted;
  std::vector<std::string> values(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::optional<StoredValue> parsed = ParseStored(entries[i].value);
    if (!parsed.has_value()) return DamagedSlot(entries[i].key);
    if (parsed->reference.has_value()) {
      wanted.push_back(
          {.key = entries[i].key, .reference = *parsed->reference, .value = &values[i]});
    } else {
      values[i].assign(parsed->inlined);
    }
  }
  const absl::Status read = cells_.ReadAll(context, absl::MakeSpan(wanted));
  if (!read.ok() && !absl::IsAborted(read)) return read;
  for (const CellStore::WantedValue& value : wanted) {
    if (value.found) continue;
    const auto i = static_cast<size_t>(value.value - values.data());
    const absl::Status again = Get(context, entries[i].key, &values[i]);
    if (!again.ok() && !absl::IsNotFound(again)) return again;
    (*there)[i] = again.ok();
  }
  for (size_t i = 0; i < entries.size(); ++i) entries[i].value = std::move(values[i]);
  return absl::OkStatus();
}

}  // namespace pando

#include "bench/sim/exhaustive_script.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/sim_run.h"
#include "bench/sim/workload.h"
#include "common/base/random.h"

namespace pando {

using history::Operation;
using history::OperationKind;

namespace {

constexpr uint64_t kScriptSeed = 0x736372697074;
constexpr size_t kFollowing = 3;  // of the script, beside one

}  // namespace

Operation MakeOperation(OperationKind kind, std::string key, uint64_t value) {
  Operation operation;
  operation.kind = kind;
  operation.key = std::move(key);
  if (kind == OperationKind::kUpsert) {
    operation.upsert = history::UpsertKind::kAppend;
    operation.operand = absl::StrCat(value);
  } else if (kind == OperationKind::kPut || kind == OperationKind::kInsert ||
             kind == OperationKind::kUpdate || kind == OperationKind::kReplace) {
    operation.value = absl::StrCat(value);
  }
  return operation;
}

ExhaustiveScript::ExhaustiveScript(const ExhaustiveOptions& options) {
  SimRunOptions keys;
  keys.sim.seed = options.seed;
  keys.tree = options.tree;
  keys.key_prefix_bytes = options.key_prefix_bytes;
  keys_ = MakeKeys(keys, options.keys);
  Random random(DeriveSeed(options.seed, kScriptSeed));
  uint64_t value = 1;
  const auto shuffled = [&] {
    std::vector<std::string> order = keys_;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Uniform(i)]);
    return order;
  };
  for (const std::string& key : shuffled())
    operations_.push_back(MakeOperation(OperationKind::kInsert, key, value++));
  operations_.push_back(MakeOperation(OperationKind::kUpdate, keys_[0], value++));
  // What is conditional sees what the script has done, where nothing is in between.
  const auto expect_last = [this](Operation operation) {
    const history::State state = StateBefore(operations_.size());
    for (const auto& [key, present] : state) {
      if (key == operation.key) operation.expected = present;
    }
    operations_.push_back(std::move(operation));
  };
  expect_last(MakeOperation(OperationKind::kReplace, keys_[0], value++));
  operations_.push_back(MakeOperation(OperationKind::kUpsert, keys_[1], value++));
  expect_last(MakeOperation(OperationKind::kEraseIf, keys_[2], 0));
  operations_.push_back(MakeOperation(OperationKind::kUpsert, keys_[2], value++));
  for (const std::string& key : shuffled())
    operations_.push_back(MakeOperation(OperationKind::kDelete, key, 0));
}

std::vector<Operation> ExhaustiveScript::Beside(size_t i, uint64_t stamp) const {
  std::vector<std::string> sorted = keys_;
  std::sort(sorted.begin(), sorted.end());
  const auto own = std::find(sorted.begin(), sorted.end(), operations_[i].key) - sorted.begin();
  const auto size = static_cast<ptrdiff_t>(sorted.size());
  const auto near = [&](ptrdiff_t distance) {
    return sorted[static_cast<size_t>((own + distance + size) % size)];
  };
  std::vector<Operation> work;
  for (size_t next = i + 1; next < std::min(i + 1 + kFollowing, operations_.size()); ++next)
    work.push_back(operations_[next]);
  work.push_back(MakeOperation(OperationKind::kPut, near(1), stamp));
  work.push_back(MakeOperation(OperationKind::kPut, near(-1), stamp + 1));
  work.push_back(MakeOperation(OperationKind::kGet, near(2), 0));
  return work;
}

std::vector<size_t> ExhaustiveScript::RunVictims() const {
  const size_t all = keys_.size();
  return {0, 3, all / 20, all / 5, all / 2, all, all + all / 2};
}

std::vector<Operation> ExhaustiveScript::RunAt(size_t i, size_t length, uint64_t stamp) const {
  const history::State before = StateBefore(i);
  const std::map<std::string, std::string> state(before.begin(), before.end());
  std::vector<std::string> sorted = keys_;
  std::sort(sorted.begin(), sorted.end());
  // Into the middle, or to the end.
  const size_t room = sorted.size() - std::min(sorted.size(), length);
  const size_t first = i % 2 == 0 ? room / 2 : room;
  std::vector<Operation> run;
  for (size_t at = first; at < std::min(first + length, sorted.size()); ++at) {
    const auto present = state.find(sorted[at]);
    constexpr OperationKind kKinds[] = {OperationKind::kPut, OperationKind::kUpdate,
                                        OperationKind::kReplace, OperationKind::kUpsert,
                                        OperationKind::kDelete};
    const OperationKind kind =
        present == state.end() ? OperationKind::kInsert : kKinds[at % std::size(kKinds)];
    run.push_back(MakeOperation(kind, sorted[at], stamp + at));
    if (kind == OperationKind::kReplace) run.back().expected = present->second;
  }
  return run;
}

std::vector<size_t> ExhaustiveScript::EraseVictims() const {
  const size_t all = keys_.size();
  return {all / 2, all + 1, all + all / 2};
}

std::vector<Operation> ExhaustiveScript::EraseAt(size_t i, size_t length) const {
  std::vector<std::string> sorted = keys_;
  std::sort(sorted.begin(), sorted.end());
  const size_t room = sorted.size() - std::min(sorted.size(), length);
  const size_t first = i % 2 == 0 ? room / 2 : room;
  std::vector<Operation> erases;
  for (size_t at = first; at < std::min(first + length, sorted.size()); ++at)
    erases.push_back(MakeOperation(OperationKind::kDelete, sorted[at], 0));
  return erases;
}

history::State ExhaustiveScript::StateBefore(size_t end) const {
  std::map<std::string, std::string> state;
  for (size_t i = 0; i < end; ++i) {
    const OperationKind kind = operations_[i].kind;
    if (kind == OperationKind::kDelete || kind == OperationKind::kEraseIf) {
      state.erase(operations_[i].key);
    } else if (kind == OperationKind::kUpsert) {
      state[operations_[i].key] += operations_[i].operand;
    } else {
      state[operations_[i].key] = operations_[i].value;
    }
  }
  return {state.begin(), state.end()};
}

std::vector<Operation> ExhaustiveScript::Readers(uint64_t stamp) const {
  std::vector<Operation> work;
  for (const std::string& key : keys_) work.push_back(MakeOperation(OperationKind::kGet, key, 0));
  Operation scan = MakeOperation(OperationKind::kScan, "", 0);
  scan.limit = 2 * keys_.size();
  work.push_back(scan);
  for (size_t i = 0; i < keys_.size(); i += 5)
    work.push_back(MakeOperation(OperationKind::kPut, keys_[i], stamp + i));
  return work;
}

std::vector<Operation> ExhaustiveScript::Writers(uint64_t stamp) const {
  std::vector<Operation> work;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const OperationKind kind = i % 3 == 0   ? OperationKind::kDelete
                               : i % 3 == 1 ? OperationKind::kUpdate
                                            : OperationKind::kPut;
    work.push_back(MakeOperation(kind, keys_[i], stamp + i));
  }
  return work;
}

}  // namespace pando

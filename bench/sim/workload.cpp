#include "bench/sim/workload.h"

#include <algorithm>
#include <set>

#include "bench/perform/perform.h"
#include "common/base/check.h"

namespace pando {
namespace {

// Streams of random numbers of a run, apart from the simulator's own.
constexpr uint64_t kKeySeed = 0x6b6579, kWorkloadSeed = 0x776f726b, kConditionSeed = 0x636f6e64;
constexpr uint32_t kCounterBytes = 4;
constexpr double kErasedStretchShare = 0.2;

void AppendBigEndian(uint64_t value, uint32_t bytes, std::string* to) {
  for (uint32_t i = bytes; i-- > 0;) to->push_back(static_cast<char>(i < 8 ? value >> (8 * i) : 0));
}

// Counted keys where the space for numbers is small, else bytes from a small alphabet, of any
// length.
std::string RandomKey(const SimRunOptions& options, Random* random) {
  static constexpr char kAlphabet[] = {'\x00', '\xff', 'a', 'b', '\x01', '\xfe', 'm', 'z'};
  const uint32_t room = options.tree.key_bytes_max - options.key_prefix_bytes;
  std::string key(options.key_prefix_bytes, 'p');
  if (random->Chance(0.5)) {
    AppendBigEndian(random->Next(), std::min<uint32_t>(room, 8), &key);
    return key;
  }
  const auto bytes = 1 + random->Uniform(room);
  for (uint64_t i = 0; i < bytes; ++i) key.push_back(kAlphabet[random->Uniform(sizeof(kAlphabet))]);
  return key;
}

}  // namespace

std::vector<std::string> MakeKeys(const SimRunOptions& options, uint64_t count) {
  PANDO_CHECK_LT(options.key_prefix_bytes, options.tree.key_bytes_max);
  Random random(DeriveSeed(options.sim.seed, kKeySeed));
  std::set<std::string> unique;
  std::vector<std::string> keys;
  for (int tries = 0; keys.size() < count; ++tries) {
    PANDO_CHECK_LT(tries, 1'000'000 + static_cast<int>(4 * count)) << "too few different keys";
    std::string key = RandomKey(options, &random);
    if (unique.insert(key).second) keys.push_back(std::move(key));
  }
  if (options.ascending_growth) std::sort(keys.begin(), keys.end());
  return keys;
}

SimWorkload::SimWorkload(const SimRunOptions& options)
    : options_(options),
      random_(DeriveSeed(options.sim.seed, kWorkloadSeed)),
      condition_random_(DeriveSeed(options.sim.seed, kConditionSeed)),
      known_keys_(options.keys),
      left_(options.operations),
      emptied_(static_cast<size_t>(options.trees)),
      learned_(static_cast<size_t>(options.trees)),
      total_share_(options.get + options.put + options.update + options.insert + options.remove +
                   options.scan) {
  PANDO_CHECK_GE(options.tree.value_bytes_max, kCounterBytes) << "values must be unique";
  const auto growth = static_cast<uint64_t>(static_cast<double>(options.operations) *
                                            options.insert / total_share_ * options.grow * 1.2) +
                      8;
  keys_ = MakeKeys(options, options.keys + (options.grow > 0 ? growth : 0));
}

const std::string& SimWorkload::ChooseKey() {
  if (options_.hot_share > 0 && random_.Chance(options_.hot_share)) {
    return keys_[random_.Uniform(std::min(options_.hot_keys, known_keys_))];
  }
  return keys_[random_.Uniform(known_keys_)];
}

std::string SimWorkload::NewValue() {
  std::string value;
  AppendBigEndian(++values_, kCounterBytes, &value);
  const uint64_t more = random_.Uniform(options_.tree.value_bytes_max - kCounterBytes + 1);
  value.append(more, static_cast<char>('A' + values_ % 26));
  return value;
}

std::vector<std::string> SimWorkload::KeysToLoad(size_t count_max) {
  std::vector<std::string> keys(
      keys_.begin(),
      keys_.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(count_max, known_keys_)));
  std::sort(keys.begin(), keys.end());
  return keys;
}

bool SimWorkload::NextOfPhase(history::Operation* operation, size_t slot) {
  if (options_.phase == 0 || random_.Chance(0.15)) return false;
  const bool fills = (left_ / options_.phase) % 2 == 0;
  operation->kind = fills ? history::OperationKind::kPut : history::OperationKind::kDelete;
  operation->key =
      fills ? keys_[random_.Uniform(known_keys_)] : keys_[emptied_[slot]++ % known_keys_];
  if (fills) operation->value = NewValue();
  return true;
}

void SimWorkload::Learn(const history::Operation& o, size_t slot) {
  if (options_.conditional == 0 || o.kind == history::OperationKind::kScan) return;
  if (o.actual.has_value()) {
    learned_[slot][o.key] = *o.actual;
  } else if (!o.value.empty()) {
    learned_[slot][o.key] = o.value;
  }
}

void SimWorkload::Condition(history::Operation* o, size_t slot) {
  using Kind = history::OperationKind;
  if (!condition_random_.Chance(options_.conditional)) return;
  // Right, unless somebody else was quicker; now and then of nobody.
  std::string& expected = learned_[slot][o->key];
  if (expected.empty() || condition_random_.Chance(0.05)) expected = NewValue();
  if (o->kind == Kind::kDelete) {
    o->kind = Kind::kEraseIf;
    o->expected = expected;
  } else if (condition_random_.Chance(0.35)) {
    o->kind = Kind::kReplace;
    o->expected = expected;
  } else {
    o->kind = Kind::kUpsert;
    o->value.clear();
    const bool number = expected.size() == 8 && options_.tree.value_bytes_max >= 8;
    o->upsert = number && condition_random_.Chance(0.8) ? history::UpsertKind::kAdd
                                                        : history::UpsertKind::kAppend;
    if (o->upsert == history::UpsertKind::kAdd) {
      AppendBigEndian(condition_random_.Next(), 8, &o->operand);
    } else {
      AppendBigEndian(++values_, kCounterBytes, &o->operand);
    }
  }
}

bool SimWorkload::Next(history::Operation* operation, size_t slot) {
  using Kind = history::OperationKind;
  *operation = {};
  if (loaded_ < std::min(options_.load, options_.keys)) {
    operation->kind = Kind::kPut;
    operation->key = keys_[loaded_++];
    operation->value = NewValue();
    return true;
  }
  if (left_ == 0) return false;
  --left_;
  if (NextOfPhase(operation, slot)) return true;
  double draw = random_.NextDouble() * total_share_;
  const auto falls = [&draw](double share) { return (draw -= share) < 0; };
  operation->kind = falls(options_.get)      ? Kind::kGet
                    : falls(options_.put)    ? Kind::kPut
                    : falls(options_.update) ? Kind::kUpdate
                    : falls(options_.insert) ? Kind::kInsert
                    : falls(options_.remove) ? Kind::kDelete
                                             : Kind::kScan;
  const bool writes = operation->kind == Kind::kPut || operation->kind == Kind::kUpdate ||
                      operation->kind == Kind::kInsert;
  if (operation->kind == Kind::kInsert && known_keys_ < keys_.size() &&
      random_.Chance(options_.grow)) {
    operation->key = keys_[known_keys_++];
  } else {
    operation->key = ChooseKey();
  }
  if (writes) operation->value = NewValue();
  if (options_.conditional > 0 && (writes || operation->kind == Kind::kDelete)) {
    Condition(operation, slot);
  }
  if (operation->kind == Kind::kScan) {
    operation->limit = 1 + random_.Uniform(options_.scan_limit_max);
    if (random_.Chance(0.2)) operation->key.clear();  // from the start
  }
  return true;
}

std::vector<history::Operation> SimWorkload::NextRun(Random* random, size_t count_max,
                                                     size_t slot) {
  using Kind = history::OperationKind;
  std::vector<std::string> sorted(keys_.begin(),
                                  keys_.begin() + static_cast<std::ptrdiff_t>(known_keys_));
  std::sort(sorted.begin(), sorted.end());
  const bool clustered = random->Chance(0.5);
  uint64_t neighbour = random->Uniform(sorted.size());
  std::set<std::string> taken;
  std::vector<history::Operation> run;
  for (uint64_t count = 2 + random->Uniform(count_max - 1); count > 0; --count) {
    history::Operation operation;
    if (!Next(&operation, slot)) break;
    if (!IsWrite(operation)) {
      operation = {};
      operation.kind = Kind::kPut;
      operation.key = ChooseKey();
      operation.value = NewValue();
    }
    if (clustered && operation.kind != Kind::kInsert && operation.kind != Kind::kReplace &&
        operation.kind != Kind::kEraseIf) {
      operation.key = sorted[neighbour++ % sorted.size()];
    }
    // Two of one key are one after the other, which the history does not say: now and then.
    if (!taken.insert(operation.key).second && !random->Chance(0.1)) continue;
    run.push_back(std::move(operation));
  }
  return run;
}

std::vector<history::Operation> SimWorkload::NextStretch(Random* random, size_t count_max) {
  std::vector<history::Operation> stretch;
  const bool erases = random->Chance(kErasedStretchShare);
  for (std::string& key : Neighbours(random, count_max)) {
    history::Operation& operation = stretch.emplace_back();
    operation.kind = erases ? history::OperationKind::kDelete : history::OperationKind::kPut;
    operation.key = std::move(key);
    if (!erases) operation.value = NewValue();
  }
  left_ -= std::min<uint64_t>(left_, stretch.size());
  return stretch;
}

std::vector<std::string> SimWorkload::Neighbours(Random* random, size_t count_max) const {
  std::vector<std::string> sorted = keys_;
  std::sort(sorted.begin(), sorted.end());
  const size_t first = random->Uniform(sorted.size());
  const size_t count = 1 + random->Uniform(std::min(count_max, sorted.size() - first));
  const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace pando

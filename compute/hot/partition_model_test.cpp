// A partition against a model: thousands of seeds of everything that owners do with one, in any
// order.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compute/hot/partition.h"
#include "compute/hot/test_keys.h"

namespace pando {
namespace {

struct Known {
  RecordState state = RecordState::kAbsent;
  std::string value;
  Lsn lsn = 0;
  bool flushing = false, refused = false;
  Load load;
  std::vector<size_t> waiters;
};

struct Reading {
  std::string key;
  Load load;
};

// A waiter that counts how often it was woken.
struct CountedWaiter : LoadWaiter {
  CountedWaiter() {
    wake = [](LoadWaiter* self) { ++static_cast<CountedWaiter*>(self)->woken; };
  }
  std::string key;
  int woken = 0, expected = 0;
  Outcome expected_outcome = Outcome::kWaiting;
};

class ModelRun {
 public:
  explicit ModelRun(uint64_t seed)
      : random_(seed),
        kind_(static_cast<KeyKind>(seed % kKeyKinds)),
        keys_(1 + random_.Uniform(seed % 7 == 0 ? 400 : 20)) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      Step();
      if (random_.Chance(0.05)) CheckAll();
    }
    CheckAll();
    partition_->Drop();
    for (auto& [key, known] : model_) WakeAll(&known, LoadWaiter::Outcome::kLook);
    model_.clear();
    CheckAll();
  }

 private:
  std::string AnyKey() { return TestKey(kind_, keys_, random_); }
  std::string AnyValue() {
    return std::string(random_.Chance(0.1) ? random_.Uniform(256) : random_.Uniform(12),
                       static_cast<char>('a' + random_.Uniform(26)));
  }
  // A border: sometimes none.
  std::string Border() { return random_.Chance(0.3) ? "" : AnyKey(); }
  static bool In(const std::string& key, const std::string& from, const std::string& to) {
    return key >= from && (to.empty() || key < to);
  }

  void Step() {
    switch (random_.Uniform(18)) {
      case 0:
      case 1:
      case 2:
        return Put(AnyKey());
      case 3:
        return Erase(AnyKey());
      case 4:
      case 5:
        return Begin(AnyKey());
      case 6:
      case 7:
        return End();
      case 8:
        return random_.Chance(0.3) ? Abandon() : Wait();
      case 9:
        return random_.Chance(0.5) ? StopWaiting() : Renew();
      case 10:
        return Collect();
      case 11:
        return random_.Chance(0.9) ? CollectBelow() : Divide();
      case 12:
      case 13:
        return EndFlush();
      case 14:
        return Evict();
      case 15:
        return random_.Chance(0.05) ? MoveAway() : Scan();
      case 16:
      case 17:
        return random_.Chance(0.95) ? Show(AnyKey()) : partition_->StopShowing();
    }
  }

  void WakeAll(Known* known, LoadWaiter::Outcome outcome) {
    for (const size_t waiter : known->waiters) {
      ++waiters_[waiter]->expected;
      waiters_[waiter]->expected_outcome = outcome;
    }
    known->waiters.clear();
  }

  void Put(const std::string& key) { Message(key, RecordState::kDirty, AnyValue()); }
  void Erase(const std::string& key) { Message(key, RecordState::kTombstone, ""); }
  void Message(const std::string& key, RecordState state, const std::string& value) {
    lsn_ += 1 + random_.Uniform(3);
    if (state == RecordState::kDirty) {
      partition_->Put(key, value, lsn_);
    } else {
      partition_->Erase(key, lsn_);
    }
    Known& known = model_[key];
    WakeAll(&known, LoadWaiter::Outcome::kLook);
    known.state = state;
    known.value = value;
    known.lsn = lsn_;
    known.refused = known.refused && state == RecordState::kDirty;
  }
  void Renew() {
    const std::string key = AnyKey();
    const auto at = model_.find(key);
    if (at == model_.end() || !IsDirty(at->second.state)) return;
    partition_->Renew(key, ++lsn_);
    at->second.lsn = lsn_;
  }

  void Begin(const std::string& key) {
    if (model_.contains(key)) return;
    ASSERT_EQ(partition_->Find(key).state, RecordState::kAbsent);
    const Load load = partition_->BeginLoad(key);
    for (const Reading& other : readings_) ASSERT_NE(other.load.number, load.number);
    model_[key] = {.state = RecordState::kLoading, .load = load};
    readings_.push_back({key, load});
  }
  // Any READ may come back, those that count no more, too.
  void End() {
    if (readings_.empty()) return;
    const size_t i = random_.Uniform(readings_.size());
    const Reading reading = readings_[i];
    readings_.erase(readings_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto at = model_.find(reading.key);
    const bool counts = at != model_.end() && at->second.state == RecordState::kLoading &&
                        at->second.load == reading.load;
    const bool found = random_.Chance(0.7), keep = random_.Chance(0.5);
    const std::string value = AnyValue();
    std::optional<std::string_view> answer;
    if (found) answer = value;
    ASSERT_EQ(partition_->EndLoad(reading.key, reading.load, answer, keep), counts);
    if (!counts) return;
    const bool waited = !at->second.waiters.empty();
    WakeAll(&at->second, found ? LoadWaiter::Outcome::kLook : LoadWaiter::Outcome::kNotFound);
    if (found && (keep || waited)) {
      at->second = {.state = RecordState::kClean, .value = value};
    } else {
      model_.erase(at);
    }
  }
  void Abandon() {
    const std::string key = AnyKey();
    const auto at = model_.find(key);
    const bool loading = at != model_.end() && at->second.state == RecordState::kLoading;
    Load load = loading ? at->second.load : Load{};
    const bool other = random_.Chance(0.3);
    if (other) load.number = load.number * 2 + 1;
    ASSERT_EQ(partition_->AbandonLoad(key, load), loading && !other);
    if (!loading || other) return;
    WakeAll(&at->second, LoadWaiter::Outcome::kLook);
    model_.erase(at);
  }
  void Wait() {
    const std::string key = AnyKey();
    const auto at = model_.find(key);
    if (at == model_.end() || at->second.state != RecordState::kLoading) return;
    waiters_.push_back(std::make_unique<CountedWaiter>());
    waiters_.back()->key = key;
    partition_->Wait(partition_->Find(key).record, waiters_.back().get());
    at->second.waiters.push_back(waiters_.size() - 1);
  }
  void StopWaiting() {
    if (waiters_.empty()) return;
    const size_t i = random_.Uniform(waiters_.size());
    CountedWaiter& waiter = *waiters_[i];
    const auto at = model_.find(waiter.key);
    bool waits = false;
    if (at != model_.end()) waits = std::erase(at->second.waiters, i) > 0;
    ASSERT_EQ(partition_->StopWaiting(waiter.key, &waiter), waits);
  }

  void Took(const FlushItem& item) {
    const auto at = model_.find(item.key);
    ASSERT_NE(at, model_.end());
    ASSERT_TRUE(IsDirty(at->second.state) && !at->second.flushing);
    ASSERT_EQ(item.erased, at->second.state == RecordState::kTombstone);
    ASSERT_EQ(item.value, at->second.value);
    ASSERT_EQ(item.lsn, at->second.lsn);
    at->second.flushing = true;
    flushes_.push_back(item);
  }
  void Collect() {
    const std::string from = Border(), to = Border();
    const Lsn durable = random_.Chance(0.5) ? lsn_ : random_.Uniform(lsn_ + 1);
    const bool refused = random_.Chance(0.5);
    const size_t max = random_.Chance(0.3) ? SIZE_MAX : random_.Uniform(5);
    std::vector<std::string> expected;
    size_t dirty = 0;
    for (const auto& [key, known] : model_) {
      if (!In(key, from, to) || !IsDirty(known.state)) continue;
      ++dirty;
      if (known.flushing || known.lsn > durable || (known.refused && !refused)) continue;
      if (expected.size() < max) expected.push_back(key);
    }
    ASSERT_EQ(partition_->CountDirty(from, to), dirty);
    std::vector<FlushItem> items;
    partition_->CollectDirty(from, to, durable, refused, max, &items);
    ASSERT_EQ(items.size(), expected.size());
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_EQ(items[i].key, expected[i]);
      Took(items[i]);
    }
  }
  // What holds the base, a part of the keys at a time.
  void CollectBelow() {
    const Lsn durable = random_.Uniform(lsn_ + 1), below = random_.Uniform(lsn_ + 2);
    std::vector<std::string> expected;
    for (const auto& [key, known] : model_) {
      if (IsDirty(known.state) && !known.flushing && known.lsn <= durable && known.lsn < below) {
        expected.push_back(key);
      }
    }
    std::vector<FlushItem> items;
    std::string from;
    do {
      const size_t max = random_.Uniform(5), looks_max = 1 + random_.Uniform(5),
                   before = items.size();
      std::string next = partition_->CollectDirty(from, "", durable, /*refused=*/true, max, &items,
                                                  below, looks_max);
      ASSERT_LE(items.size() - before, std::min(max, looks_max));
      ASSERT_TRUE(next.empty() || next >= from);
      from = std::move(next);
    } while (!from.empty());
    ASSERT_EQ(items.size(), expected.size());
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_EQ(items[i].key, expected[i]);
      Took(items[i]);
    }
  }
  void EndFlush() {
    if (flushes_.empty()) return;
    const size_t i = random_.Uniform(flushes_.size());
    const FlushItem item = flushes_[i];
    flushes_.erase(flushes_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto result = static_cast<FlushResult>(random_.Uniform(4) % 3);
    partition_->EndFlush(item, result);
    Known& known = model_.at(item.key);
    known.flushing = false;
    if (result != FlushResult::kFailed) {
      known.refused =
          result == FlushResult::kRefused && (known.state == RecordState::kDirty || item.erased);
    }
    if (result != FlushResult::kDone || known.lsn != item.lsn) return;
    if (item.erased) {
      model_.erase(item.key);
    } else {
      known = {.state = RecordState::kClean, .value = known.value};
    }
  }

  void Show(const std::string& key) {
    const Partition::View view = partition_->Find(key);
    if (view.state == RecordState::kClean || view.state == RecordState::kDirty) {
      partition_->Show(view);
    }
  }
  void ExpectShown(const std::string& key, const Known& known) {
    std::string value;
    Lsn lsn = 0;
    if (!partition_->FindShown(key, HashOf(key), &value, &lsn)) return;
    ASSERT_TRUE(known.state == RecordState::kClean || known.state == RecordState::kDirty);
    ASSERT_EQ(value, known.value);
    ASSERT_TRUE(known.state == RecordState::kDirty ? lsn == known.lsn : lsn <= lsn_);
  }

  void Divide() {
    partition_->DivideLsns(lsn_ + 1);
    divided_ = lsn_;
  }

  // Which clean records go is the clock's; others stay.
  void Evict() {
    const std::string used = AnyKey();
    const Partition::View view = partition_->Find(used);
    if (view.record != nullptr) partition_->Touch(view.record);
    const bool all = random_.Chance(0.1);
    const size_t before = partition_->bytes(), wanted = all ? SIZE_MAX : random_.Uniform(200);
    const size_t freed = partition_->Evict(wanted, all ? SIZE_MAX : random_.Uniform(200));
    ASSERT_EQ(before - std::min(before, partition_->bytes()), freed);
    // What was moved behind the hand is seen a round later, and goes the round after.
    for (int round = 0; all && round < 2; ++round) partition_->Evict(SIZE_MAX);
    std::erase_if(model_, [&](const auto& entry) {
      if (entry.second.state != RecordState::kClean) return false;
      const bool gone = partition_->Find(entry.first).state == RecordState::kAbsent;
      EXPECT_TRUE(gone || !all);
      return gone;
    });
  }

  void Scan() {
    const std::string from = Border(), to = Border();
    const bool reverse = random_.Chance(0.5);
    const size_t max = random_.Chance(0.3) ? SIZE_MAX : random_.Uniform(10);
    std::vector<const std::pair<const std::string, Known>*> expected;
    for (const auto& entry : model_) {
      if (In(entry.first, from, to) && IsDirty(entry.second.state)) {
        expected.push_back(&entry);
      }
    }
    if (reverse) std::reverse(expected.begin(), expected.end());
    size_t n = 0;
    partition_->Scan(from, to, reverse, [&](const Partition::Seen& seen) {
      EXPECT_LT(n, expected.size());
      if (n >= expected.size()) return false;
      EXPECT_EQ(seen.key, expected[n]->first);
      EXPECT_EQ(seen.value, expected[n]->second.value);
      EXPECT_EQ(seen.erased, expected[n]->second.state == RecordState::kTombstone);
      EXPECT_EQ(seen.lsn, expected[n]->second.lsn);
      return ++n < max;
    });
    EXPECT_EQ(n, std::min(std::max<size_t>(max, 1), expected.size()));
  }

  // A part goes to another partition; the run goes on with one of them and drops the other.
  void MoveAway() {
    const std::string from = Border(), to = Border();
    auto other = std::make_unique<Partition>();
    partition_->MoveDirtyTo(from, to, other.get());
    Partition::Place at;
    while (partition_->MoveCleanTo(from, to, 1 + random_.Uniform(20), &at, other.get())) {
    }
    std::map<std::string, Known> moved;
    for (auto at = model_.begin(); at != model_.end();) {
      if (!In(at->first, from, to)) {
        ++at;
        continue;
      }
      WakeAll(&at->second, LoadWaiter::Outcome::kLook);
      if (at->second.state != RecordState::kLoading) moved.insert(*at);
      at = model_.erase(at);
    }
    CheckAll();
    if (random_.Chance(0.7)) {
      partition_.swap(other);
      model_.swap(moved);
      divided_ = 0;
      CheckAll();
    }
    other->Drop();
    for (auto& [key, known] : moved) WakeAll(&known, LoadWaiter::Outcome::kLook);
    std::erase_if(flushes_, [&](const FlushItem& item) { return !model_.contains(item.key); });
  }

  void CheckAll() {
    partition_->Check();
    Partition::Amount dirty, refused;
    Lsn lowest = 0;
    const auto lower = [](Lsn* lowest, Lsn lsn) {
      if (*lowest == 0 || lsn < *lowest) *lowest = lsn;
    };
    size_t records = 0;
    for (const auto& [key, known] : model_) {
      const Partition::View view = partition_->Find(key);
      ASSERT_EQ(view.state, known.state);
      ASSERT_EQ(view.value, known.value);
      ASSERT_EQ(view.lsn, known.lsn);
      ASSERT_EQ(view.flushing, known.flushing);
      if (random_.Chance(0.5)) ExpectShown(key, known);
      if (known.state == RecordState::kLoading) {
        ASSERT_EQ(view.load, known.load);
        continue;
      }
      ++records;
      if (!IsDirty(known.state)) continue;
      Partition::Amount& amount = known.refused ? refused : dirty;
      ++amount.records;
      amount.bytes += key.size() + known.value.size();
      lower(&lowest, known.lsn);
    }
    ASSERT_EQ(partition_->Find({}).state, RecordState::kAbsent);
    ASSERT_EQ(partition_->records(), records);
    ASSERT_EQ(partition_->dirty().records, dirty.records);
    ASSERT_EQ(partition_->dirty().bytes, dirty.bytes);
    ASSERT_EQ(partition_->refused().records, refused.records);
    ASSERT_EQ(partition_->refused().bytes, refused.bytes);
    ASSERT_LE(partition_->LowestDirty(), lowest);
    ASSERT_EQ(partition_->LowestDirty() == kNoLsn, lowest == kNoLsn);
    // Runs are too short for numbers of before and behind to be counted together.
    if (lowest > divided_) {
      ASSERT_GT(partition_->LowestDirty(), divided_);
    }
    for (const auto& waiter : waiters_) {
      ASSERT_EQ(waiter->woken, waiter->expected);
      ASSERT_EQ(waiter->outcome, waiter->expected_outcome);
    }
  }

  Random random_;
  const KeyKind kind_;
  const uint64_t keys_;
  std::vector<std::unique_ptr<CountedWaiter>> waiters_;
  std::unique_ptr<Partition> partition_ = std::make_unique<Partition>();
  std::map<std::string, Known> model_;
  std::vector<Reading> readings_;
  std::vector<FlushItem> flushes_;
  Lsn lsn_ = 0, divided_ = 0;
};

TEST(PartitionModelTest, DoesWhatTheModelDoes) {
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(seed);
    ModelRun(seed).Run(seed % 100 == 0 ? 5000 : 250);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace pando

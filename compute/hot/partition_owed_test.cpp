// What a flush waits for (rule B4), against leaves: whatever is written, flushed, refused, appended
// again or divided meanwhile, once nothing is owed any more the leaves have what was dirty when
// Owe() was called, or something newer.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compute/hot/partition.h"
#include "compute/hot/test_keys.h"

namespace pando {
namespace {

class OwedRun {
 public:
  explicit OwedRun(uint64_t seed)
      : random_(seed), kind_(static_cast<KeyKind>(seed % kKeyKinds)), keys_(1 + seed % 30) {
    parts_.push_back(std::make_unique<Part>());
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      Step();
      for (const auto& part : parts_) Look(part.get());
    }
    // In one round, where nothing else is under way.
    while (!flights_.empty()) Land(0, FlushResult::kDone);
    for (const auto& part : parts_) {
      Collect(part.get(), "", UINT64_MAX, SIZE_MAX, /*owed=*/true);
      while (!flights_.empty()) Land(0, FlushResult::kDone);
      EXPECT_EQ(part->partition.owed(), 0u);
      Look(part.get());
      part->partition.Check();
    }
  }

  // Of all runs: how often a flush ended that waited for something.
  static int ends;

 private:
  struct Part {
    std::string from, to;
    Partition partition;
    std::map<std::string, int> required;  // of each key that is waited for: its write then
  };
  void Step() {
    const std::string key = TestKey(kind_, keys_, random_);
    Part* const part = PartOf(key);
    const RecordState state = part->partition.Find(key).state;
    const bool is_dirty = IsDirty(state);
    switch (random_.Uniform(12)) {
      case 0:
      case 1:
      case 2:
        part->partition.Put(key, std::string(random_.Uniform(20), 'v'), ++lsn_);
        return NoteWrite(key);
      case 3:
        part->partition.Erase(key, ++lsn_);
        return NoteWrite(key);
      case 4:
        if (!is_dirty) return;
        part->partition.Renew(key, ++lsn_);
        write_of_[lsn_] = newest_[key];
        return;
      case 5:
        if (state == RecordState::kAbsent) {
          (void)part->partition.EndLoad(key, part->partition.BeginLoad(key), "clean", true);
        }
        return;
      case 6:
      case 7:
        return Collect(part, key,
                       random_.Chance(0.5) ? lsn_ : lsn_ - std::min(lsn_, Lsn{random_.Uniform(10)}),
                       1 + random_.Uniform(3), random_.Chance(0.5));
      case 8:
      case 9:
      case 10:
        if (flights_.empty()) return;
        return Land(random_.Uniform(flights_.size()), random_.Chance(0.6) ? FlushResult::kDone
                                                      : random_.Chance(0.5)
                                                          ? FlushResult::kFailed
                                                          : FlushResult::kRefused);
      case 11:
        if (random_.Chance(0.1)) return Divide(key);
        if (random_.Chance(0.1)) (void)part->partition.Evict(SIZE_MAX);
        return Owe(part);
    }
  }

  void NoteWrite(const std::string& key) {
    newest_[key] = ++writes_;
    write_of_[lsn_] = writes_;
  }

  Part* PartOf(const std::string& key) {
    return std::find_if(parts_.begin(), parts_.end(),
                        [&](const auto& part) {
                          return key >= part->from && (part->to.empty() || key < part->to);
                        })
        ->get();
  }

  void Collect(Part* part, const std::string& from, Lsn durable, size_t max, bool owed) {
    std::vector<FlushItem> items;
    (void)part->partition.CollectDirty(from, "", durable, /*refused=*/true, max, &items, UINT64_MAX,
                                       SIZE_MAX, /*tombstones=*/false, owed);
    std::move(items.begin(), items.end(), std::back_inserter(flights_));
  }

  void Land(size_t i, FlushResult result) {
    const FlushItem item = flights_[i];
    flights_.erase(flights_.begin() + static_cast<ptrdiff_t>(i));
    if (result == FlushResult::kDone) leaves_[item.key] = write_of_.at(item.lsn);
    PartOf(item.key)->partition.EndFlush(item, result);
  }

  void Owe(Part* part) {
    if (part->partition.owed() > 0) return;
    part->required.clear();
    part->partition.Scan("", "", false, [&](const Partition::Seen& seen) {
      part->required[std::string(seen.key)] = newest_.at(std::string(seen.key));
      return true;
    });
    part->partition.Owe();
    EXPECT_EQ(part->partition.owed(), part->required.size());
  }

  void Divide(const std::string& at) {
    if (parts_.size() == 4) return;
    Part* const part = PartOf(at);
    auto other = std::make_unique<Part>();
    other->from = at;
    other->to = part->to;
    part->partition.MoveDirtyTo(at, "", &other->partition);
    part->to = at;
    for (auto it = part->required.lower_bound(at); it != part->required.end();) {
      other->required.insert(*it);
      it = part->required.erase(it);
    }
    parts_.push_back(std::move(other));
  }

  void Look(Part* part) {
    part->partition.Check();
    if (part->partition.owed() > 0 || part->required.empty()) return;
    for (const auto& [key, write] : part->required) EXPECT_GE(leaves_[key], write) << key;
    part->required.clear();
    ++ends;
  }

  Random random_;
  const KeyKind kind_;
  const uint64_t keys_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<FlushItem> flights_;
  std::map<std::string, int> newest_, leaves_;  // of each key: the last write
  std::map<Lsn, int> write_of_;
  int writes_ = 0;
  Lsn lsn_ = 0;
};

int OwedRun::ends = 0;

TEST(PartitionOwedTest, WhatWasDirtyComesToItsLeafWhateverIsWrittenMeanwhile) {
  OwedRun::ends = 0;
  for (uint64_t seed = 1; seed <= 1'000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    OwedRun(seed).Run(300);
  }
  EXPECT_GT(OwedRun::ends, 2'000);
}

}  // namespace
}  // namespace pando

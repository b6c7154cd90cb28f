// Cursors and scans of ranges, compared with a std::map: every bound, both directions, turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/random.h"
#include "common/fabric/recoverable.h"

namespace pando {
namespace {

using Model = std::map<std::string, std::string>;
using Rows = std::vector<KeyValue>;

bool InRange(const CursorOptions& o, const std::string& key) {
  const bool behind = o.from_exclusive ? o.from < key : o.from <= key;
  const bool before = !o.to.has_value() || (o.to_inclusive ? key <= *o.to : key < *o.to);
  return behind && before && key.starts_with(o.prefix);
}

// In the cursor's order, without its limit.
Rows Expected(const Model& model, const CursorOptions& options) {
  Rows rows;
  for (const auto& [key, value] : model) {
    if (InRange(options, key)) rows.push_back({key, value});
  }
  if (options.reverse) std::reverse(rows.begin(), rows.end());
  return rows;
}

Rows Limited(Rows rows, size_t limit) {
  rows.resize(std::min(rows.size(), limit));
  return rows;
}

std::string Describe(const CursorOptions& o) {
  return testing::PrintToString(o.from) + (o.from_exclusive ? " (not)" : "") + " to " +
         (o.to.has_value() ? testing::PrintToString(*o.to) : "the end") +
         (o.to_inclusive ? " (too)" : "") + ", prefix " + testing::PrintToString(o.prefix) +
         (o.reverse ? ", reverse" : "") + ", limit " + std::to_string(o.limit) + ", read ahead " +
         std::to_string(o.read_ahead);
}

struct Shape {
  uint32_t key_bytes, value_bytes, node_bytes;
  const char* name;
};

class CursorTest : public testing::TestWithParam<Shape> {
 protected:
  CursorTest()
      : cluster_({}),
        fabric_(cluster_.world().NewFabric()),
        client_(*ConnectOverFabric({.seed = 1}, fabric_)),
        session_(*client_->NewSession()) {
    tree_ = *client_->CreateTree("t", {.key_bytes_max = GetParam().key_bytes,
                                       .value_bytes_max = GetParam().value_bytes,
                                       .node_bytes = GetParam().node_bytes});
  }

  // Few different bytes, so that keys are prefixes of others; some of full length.
  std::string RandomKey(uint32_t bytes_max) {
    static const std::string kBytes(
        "\0\x01"
        "a"
        "b\xfe\xff",
        6);
    const uint64_t bytes =
        random_.Chance(0.3) ? bytes_max : 1 + random_.Uniform(std::min(bytes_max, 6u));
    std::string key;
    const bool top = random_.Chance(0.1);
    while (key.size() < bytes) {
      key.push_back(top ? '\xff' : kBytes[random_.Uniform(kBytes.size())]);
    }
    return key;
  }
  // Of keys that are there, of others, and of what cannot be a key.
  std::string RandomBound() {
    if (random_.Chance(0.1)) return "";
    std::string bound = RandomKey(GetParam().key_bytes);
    if (!model_.empty() && random_.Chance(0.6)) {
      const auto near = model_.lower_bound(bound);
      bound = near == model_.end() ? model_.rbegin()->first : near->first;
    }
    if (random_.Chance(0.1)) bound.resize(1 + random_.Uniform(bound.size()));
    if (random_.Chance(0.2)) bound.push_back(random_.Chance(0.5) ? '\0' : '\xff');
    if (random_.Chance(0.1)) bound.append(GetParam().key_bytes, random_.Chance(0.5) ? 'a' : '\xff');
    return bound;
  }
  CursorOptions RandomOptions() {
    CursorOptions options;
    if (random_.Chance(0.7)) options.from = RandomBound();
    if (random_.Chance(0.7)) options.to = RandomBound();
    options.from_exclusive = random_.Chance(0.5);
    options.to_inclusive = random_.Chance(0.5);
    if (random_.Chance(0.3)) {
      options.prefix = random_.Chance(0.2) ? std::string(1 + random_.Uniform(3), '\xff')
                                           : RandomBound().substr(0, 1 + random_.Uniform(4));
    }
    options.reverse = random_.Chance(0.5);
    if (random_.Chance(0.3)) options.limit = random_.Uniform(60);
    options.read_ahead = static_cast<int>(random_.Uniform(6));
    return options;
  }

  void Fill(size_t keys) {
    while (model_.size() < keys) {
      const std::string key = RandomKey(GetParam().key_bytes);
      const std::string value = std::to_string(model_.size()).substr(0, GetParam().value_bytes);
      ASSERT_TRUE(session_->Put(*tree_, key, value).ok());
      model_[key] = value;
    }
  }
  // A run of keys goes, so that leaves are emptied and merged.
  void EraseRun() {
    auto at = model_.lower_bound(RandomBound());
    for (int i = 0; i < 150 && at != model_.end(); ++i) {
      ASSERT_TRUE(session_->Erase(*tree_, at->first).ok());
      at = model_.erase(at);
    }
  }

  void CheckWalk(const CursorOptions& options) {
    const Rows all = Expected(model_, options), wanted = Limited(all, options.limit);
    Rows walked, scanned;
    const auto cursor = session_->NewCursor(*tree_, options);
    while (cursor->Next())
      walked.emplace_back(std::string(cursor->key()), std::string(cursor->value()));
    ASSERT_TRUE(cursor->status().ok()) << cursor->status();
    ASSERT_EQ(walked, wanted) << Describe(options);
    ASSERT_TRUE(session_->Scan(*tree_, options, &scanned).ok());
    ASSERT_EQ(scanned, wanted) << Describe(options);
    // Back again, all the way.
    for (size_t i = wanted.size(); i-- > 0;) {
      ASSERT_TRUE(cursor->Prev()) << Describe(options) << ", entry " << i;
      ASSERT_EQ(cursor->key(), wanted[i].key) << Describe(options);
    }
    ASSERT_FALSE(cursor->Prev());
    ASSERT_TRUE(cursor->status().ok());
    ASSERT_EQ(cursor->Next(), !wanted.empty());
  }

  // Random moves, beside a place in the model's rows.
  void CheckMoves(const CursorOptions& options) {
    const Rows rows = Expected(model_, options);
    const auto cursor = session_->NewCursor(*tree_, options);
    const auto size = static_cast<int64_t>(rows.size());
    int64_t sought = 0;  // the row that the limit counts from
    int64_t at = -1;     // of the entry, or between two: of the one that Prev() goes to
    bool on_entry = false;
    const auto limit = static_cast<int64_t>(std::min<uint64_t>(options.limit, 1 << 20));
    for (int i = 0; i < 60; ++i) {
      const uint64_t move = random_.Uniform(12);
      const bool was_on_entry = on_entry;
      const int64_t was_at = at;
      bool moved = false;
      if (move == 0) {
        moved = cursor->SeekToFirst();
        sought = 0;
        on_entry = size > 0 && limit > 0;
        at = on_entry ? 0 : -1;
      } else if (move == 1 && limit > 0) {
        moved = cursor->SeekToLast();
        on_entry = size > 0;
        at = sought = size - 1;
      } else if (move == 2) {
        const std::string key = RandomBound();
        moved = cursor->Seek(key);
        for (sought = 0; sought < size; ++sought) {
          const std::string& row = rows[static_cast<size_t>(sought)].key;
          if (options.reverse ? row <= key : row >= key) break;
        }
        on_entry = sought < size && limit > 0;
        at = on_entry ? sought : sought - 1;
      } else if (move < 8) {
        moved = cursor->Next();
        on_entry = at + 1 < size && at + 1 - sought < limit;
        at += on_entry ? 1 : 0;
      } else {
        moved = cursor->Prev();
        if (on_entry) --at;
        on_entry = at >= 0;
      }
      if (IsRecoverable(cursor->status())) {  // between two entries: where it was, or sought
        ASSERT_FALSE(moved || cursor->Valid());
        ++failed_moves_;
        on_entry = false;
        at = move == 0   ? -1
             : move == 1 ? size - 1
             : move == 2 ? sought - 1
             : move < 8  ? was_at
                         : was_at - (was_on_entry ? 1 : 0);
        continue;
      }
      ASSERT_EQ(moved, on_entry) << Describe(options) << ", step " << i << ", move " << move;
      ASSERT_EQ(cursor->Valid(), on_entry);
      ASSERT_TRUE(cursor->status().ok()) << cursor->status();
      if (!on_entry) continue;
      ASSERT_EQ(cursor->key(), rows[static_cast<size_t>(at)].key) << Describe(options);
      ASSERT_EQ(cursor->value(), rows[static_cast<size_t>(at)].value) << Describe(options);
    }
  }

  SimCluster cluster_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Tree> tree_;
  Random random_{7};
  Model model_;
  int failed_moves_ = 0;
};

TEST_P(CursorTest, AnEmptyTree) {
  for (const bool reverse : {false, true}) {
    const auto cursor = session_->NewCursor(*tree_, {.reverse = reverse});
    EXPECT_FALSE(cursor->Valid());
    EXPECT_FALSE(cursor->SeekToFirst());
    EXPECT_FALSE(cursor->SeekToLast());
    EXPECT_FALSE(cursor->Seek("a"));
    EXPECT_FALSE(cursor->Next());
    EXPECT_FALSE(cursor->Prev());
    EXPECT_TRUE(cursor->status().ok()) << cursor->status();
  }
}

TEST_P(CursorTest, AllBoundsBothWays) {
  for (const size_t keys : {size_t{1}, size_t{20}, size_t{1'000}}) {
    Fill(keys);
    for (int i = 0; i < 300; ++i) {
      CheckWalk(RandomOptions());
      if (HasFatalFailure()) return;
    }
  }
  CheckWalk({.read_ahead = CursorOptions::kReadAheadMax});
  for (int round = 0; round < 4; ++round) {
    EraseRun();
    for (int i = 0; i < 100; ++i) {
      CheckWalk(RandomOptions());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CursorTest, TurnsAnywhere) {
  for (const size_t keys : {size_t{1}, size_t{20}, size_t{1'000}}) {
    Fill(keys);
    for (int i = 0; i < 300; ++i) {
      CheckMoves(RandomOptions());
      if (HasFatalFailure()) return;
    }
  }
}

// A move that fails loses no entry, whichever move comes next.
TEST_P(CursorTest, TurnsAnywhereAfterErrors) {
  Fill(1'000);
  for (int i = 0; i < 300; ++i) {
    cluster_.world().SetBreakProbability(*fabric_, 0.3 * random_.NextDouble());
    CheckMoves(RandomOptions());
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(failed_moves_, 100);
}

// A reader that reads piece by piece goes on after the last key, of any length.
TEST_P(CursorTest, GoesOnBehindAKeyOfFullLength) {
  Fill(300);
  for (const bool reverse : {false, true}) {
    Rows all, rows;
    CursorOptions options{.reverse = reverse, .limit = 7};
    while (true) {
      ASSERT_TRUE(session_->Scan(*tree_, options, &rows).ok());
      if (rows.empty()) break;
      all.insert(all.end(), rows.begin(), rows.end());
      if (reverse) {
        options.to = rows.back().key;
      } else {
        options.from = rows.back().key;
        options.from_exclusive = true;
      }
    }
    ASSERT_EQ(all, Expected(model_, {.reverse = reverse}));
  }
}

TEST_P(CursorTest, WorksInsideATask) {
  Fill(500);
  Rows up, down;
  const auto walk = [&](bool reverse, Rows* rows) {
    const auto cursor = session_->NewCursor(*tree_, {.reverse = reverse, .read_ahead = 3});
    while (cursor->Next())
      rows->emplace_back(std::string(cursor->key()), std::string(cursor->value()));
    EXPECT_TRUE(cursor->status().ok()) << cursor->status();
  };
  session_->Spawn([&] { walk(false, &up); });
  session_->Spawn([&] { walk(true, &down); });
  session_->Run();
  EXPECT_EQ(up, Expected(model_, {}));
  EXPECT_EQ(down, Expected(model_, {.reverse = true}));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CursorTest,
                         testing::Values(Shape{8, 8, 1024, "lines_shared"},
                                         Shape{60, 8, 1024, "two_lines_a_slot"},
                                         Shape{255, 255, 3328, "long_keys"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pando

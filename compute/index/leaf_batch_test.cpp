#include "compute/index/leaf_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/sanitizer.h"
#include "common/base/status.h"
#include "common/wire/node_image.h"

namespace pando {
namespace {

constexpr uint32_t kPacketBytes = 4096;

// An empty leaf of [low, high) in aligned memory.
class Leaf {
 public:
  Leaf(const NodeLayout& layout, std::string low, std::string high)
      : layout_(layout),
        image_(static_cast<std::byte*>(
            ::operator new (layout.node_bytes(), std::align_val_t{kLineBytes}))) {
    std::memset(data(), 0, layout.node_bytes());
    NodeHeader header;
    header.tree_id = 1;
    header.state = NodeState::kLive;
    header.life = 1;
    header.low = std::move(low);
    header.high = std::move(high);
    WriteHeader(data(), layout, header);
    SealNodeLevel(data(), data(), layout, false);
  }

  std::byte* data() { return image_.get(); }
  const NodeLayout& layout() const { return layout_; }
  int SlotOf(std::string_view key) {
    LeafMatch match;
    const NodeExpectation expectation{.tree_id = 1, .life = 1, .key = key};
    EXPECT_EQ(Classify(data(), layout_, expectation, false, &match), NodeVerdict::kAccepted);
    return match.slot;
  }
  std::map<std::string, std::string> Entries() {
    std::vector<LeafEntry> entries;
    EXPECT_TRUE(ReadLeafEntries(data(), layout_, &entries));
    std::map<std::string, std::string> map;
    for (LeafEntry& entry : entries) EXPECT_TRUE(map.emplace(entry.key, entry.value).second);
    return map;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kLineBytes}); }
  };
  const NodeLayout layout_;
  const std::unique_ptr<std::byte[], Free> image_;
};

NodeLayout Layout(uint32_t key_bytes, uint32_t value_bytes) {
  return *NodeLayout::Create(key_bytes, value_bytes);
}

const UpsertCallback kAppend = [](std::string_view, std::optional<std::string_view> present,
                                  std::string_view operand) -> absl::StatusOr<std::string> {
  return std::string(present.value_or("")) + std::string(operand);
};

absl::Status Apply(LeafBatch& batch, WriteKind kind, std::string_view key,
                   std::string_view value = "") {
  absl::Status result;
  EXPECT_TRUE(batch.Apply({kind, key, value}, &result)) << key;
  return result;
}

void Put(Leaf& leaf, std::string_view key, std::string_view value) {
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  ASSERT_TRUE(Apply(batch, WriteKind::kPut, key, value).ok());
  batch.Commit().SealDirty(kPacketBytes);
}

std::string Number(uint64_t n) { return "k" + std::to_string(100 + n); }

TEST(LeafBatch, EachOperationSeesWhatTheOnesBeforeItLeft) {
  Leaf leaf(Layout(8, 8), "", "");
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  EXPECT_TRUE(absl::IsNotFound(Apply(batch, WriteKind::kErase, "a")));
  EXPECT_TRUE(absl::IsNotFound(Apply(batch, WriteKind::kUpdate, "a", "0")));
  EXPECT_TRUE(Apply(batch, WriteKind::kInsert, "a", "1").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Apply(batch, WriteKind::kInsert, "a", "2")));
  EXPECT_TRUE(Apply(batch, WriteKind::kUpdate, "a", "3").ok());
  EXPECT_TRUE(Apply(batch, WriteKind::kErase, "a").ok());
  EXPECT_TRUE(absl::IsNotFound(Apply(batch, WriteKind::kErase, "a")));
  EXPECT_TRUE(Apply(batch, WriteKind::kPut, "a", "4").ok());
  EXPECT_TRUE(Apply(batch, WriteKind::kPut, "a", "5").ok());
  EXPECT_TRUE(leaf.Entries().empty()) << "nothing is written before Commit()";
  batch.Commit().SealDirty(kPacketBytes);
  EXPECT_EQ(leaf.Entries(), (std::map<std::string, std::string>{{"a", "5"}}));
}

TEST(LeafBatch, WhatEndsAsItBeganIsNotWritten) {
  Leaf leaf(Layout(8, 8), "", "");
  Put(leaf, "there", "1");
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  EXPECT_TRUE(absl::IsAlreadyExists(Apply(batch, WriteKind::kInsert, "there", "2")));
  EXPECT_TRUE(absl::IsNotFound(Apply(batch, WriteKind::kUpdate, "new", "2")));
  EXPECT_TRUE(Apply(batch, WriteKind::kInsert, "new", "3").ok());
  EXPECT_TRUE(Apply(batch, WriteKind::kErase, "new").ok());
  EXPECT_FALSE(batch.Commit().dirty());
  EXPECT_EQ(leaf.Entries(), (std::map<std::string, std::string>{{"there", "1"}}));
}

// A waiter that was put back may be gone, with its key, before the batch is written.
TEST(LeafBatch, NothingIsKeptOfAnOperationThatDidNotFit) {
  Leaf leaf(Layout(8, 8), "", "");
  for (uint32_t n = 0; n + 1 < leaf.layout().slot_count(); ++n) Put(leaf, Number(n), "v");
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  EXPECT_TRUE(Apply(batch, WriteKind::kPut, "last", "1").ok());
  std::string refused = "b";
  absl::Status result;
  EXPECT_FALSE(batch.Apply({WriteKind::kPut, refused, "1"}, &result));
  EXPECT_TRUE(Apply(batch, WriteKind::kErase, "last").ok());
  EXPECT_TRUE(Apply(batch, WriteKind::kPut, "b", "2").ok());
  refused = "x";
  batch.Commit().SealDirty(kPacketBytes);
  const std::map<std::string, std::string> entries = leaf.Entries();
  EXPECT_EQ(entries.count("b"), 1u);
  EXPECT_EQ(entries.count("x"), 0u);
}

// One line is written for one key, however often the batch changed it (rule U2).
TEST(LeafBatch, OneFinalStateAKey) {
  Leaf leaf(Layout(8, 8), "", "");
  Put(leaf, "key", "0");
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  const std::vector<std::string> values = {"1", "2", "3", "4", "5", "6", "7", "8"};
  for (const std::string& value : values) {
    EXPECT_TRUE(Apply(batch, WriteKind::kErase, "key").ok());
    EXPECT_TRUE(Apply(batch, WriteKind::kPut, "key", value).ok());
  }
  const LineRuns runs = batch.Commit().SealDirty(kPacketBytes);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].line_count, 1u);
  EXPECT_EQ(leaf.Entries().at("key"), "8");
}

// A reader that saw the old image and the new one line by line must not meet the key twice or not
// at all, so an erased and rewritten key stays where it was, even when others want its slot.
TEST(LeafBatch, AKeyPresentBeforeAndAfterKeepsItsSlot) {
  Leaf leaf(Layout(8, 8), "", "");
  const uint32_t slots = leaf.layout().slot_count();
  std::deque<std::string> keys;
  for (uint32_t i = 0; i < slots; ++i) Put(leaf, keys.emplace_back(Number(i)), "old");
  std::map<std::string, int> before;
  for (const std::string& key : keys) before[key] = leaf.SlotOf(key);

  LeafBatch batch(leaf.data(), leaf.layout(), false);
  for (const std::string& key : keys) ASSERT_TRUE(Apply(batch, WriteKind::kErase, key).ok());
  // All slots are of keys that may come back: there is no room for another one.
  absl::Status result;
  EXPECT_FALSE(batch.Apply({WriteKind::kPut, "another", "x"}, &result));
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    ASSERT_TRUE(Apply(batch, WriteKind::kPut, *key, "new").ok());
  }
  batch.Commit().SealDirty(kPacketBytes);
  for (const std::string& key : keys) EXPECT_EQ(leaf.SlotOf(key), before[key]) << key;
  EXPECT_EQ(leaf.Entries().size(), slots);
}

TEST(LeafBatch, AFullLeafRefusesNewKeysOnly) {
  Leaf leaf(Layout(8, 8), "", "");
  const uint32_t slots = leaf.layout().slot_count();
  for (uint32_t i = 0; i < slots; ++i) Put(leaf, Number(i), "v");
  const std::string first = Number(0), second = Number(1);
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  absl::Status result;
  EXPECT_FALSE(batch.Apply({WriteKind::kPut, "new", "x"}, &result));
  EXPECT_FALSE(batch.Apply({WriteKind::kInsert, "new", "x"}, &result));
  EXPECT_TRUE(absl::IsNotFound(Apply(batch, WriteKind::kUpdate, "new", "x")));
  EXPECT_TRUE(Apply(batch, WriteKind::kUpdate, first, "changed").ok());
  EXPECT_TRUE(Apply(batch, WriteKind::kErase, second).ok());
  batch.Commit().SealDirty(kPacketBytes);
  EXPECT_EQ(leaf.Entries().size(), slots - 1);
  // The next batch may use the slot.
  Put(leaf, "new", "x");
  EXPECT_EQ(leaf.Entries().size(), slots);
}

TEST(LeafBatch, ASlotThatABatchTookAndGaveBackIsFreeAgain) {
  Leaf leaf(Layout(8, 8), "", "");
  const uint32_t slots = leaf.layout().slot_count();
  for (uint32_t i = 0; i + 1 < slots; ++i) Put(leaf, Number(i), "v");
  std::deque<std::string> keys;
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  for (int i = 0; i < 20; ++i) {
    const std::string& key = keys.emplace_back("n" + std::to_string(i));
    ASSERT_TRUE(Apply(batch, WriteKind::kInsert, key, "x").ok());
    absl::Status result;
    ASSERT_FALSE(batch.Apply({WriteKind::kInsert, "one more", "x"}, &result));
    if (i < 19) {
      ASSERT_TRUE(Apply(batch, WriteKind::kErase, key).ok());
    }
  }
  batch.Commit().SealDirty(kPacketBytes);
  EXPECT_EQ(leaf.Entries().size(), slots);
  EXPECT_TRUE(leaf.Entries().contains("n19"));
}

// Rule U4: each finds what the one before has left, and its answer is what was the case then.
TEST(LeafBatch, ConditionsAreDecidedInTurn) {
  Leaf leaf(Layout(8, 8), "", "");
  Put(leaf, "a", "1");
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  const auto apply = [&](const WriteOperation& operation, std::string* answer) {
    absl::Status result;
    EXPECT_TRUE(batch.Apply(operation, &result, answer));
    return result;
  };
  std::string answer;
  EXPECT_TRUE(IsConditionFailed(apply({WriteKind::kReplace, "a", "3", "2"}, &answer)));
  EXPECT_EQ(answer, "1");
  EXPECT_TRUE(apply({WriteKind::kReplace, "a", "2", "1"}, &answer).ok());
  EXPECT_TRUE(IsConditionFailed(apply({WriteKind::kReplace, "a", "4", "1"}, &answer)));
  EXPECT_EQ(answer, "2");
  EXPECT_TRUE(apply({WriteKind::kUpsert, "a", "34", "", &kAppend}, &answer).ok());
  EXPECT_EQ(answer, "234");
  EXPECT_TRUE(IsConditionFailed(apply({WriteKind::kUpsert, "a", "567890", "", &kAppend}, &answer)));
  EXPECT_EQ(answer, "234") << "nine bytes do not fit";
  EXPECT_TRUE(IsConditionFailed(apply({WriteKind::kEraseIf, "a", "", "2"}, &answer)));
  EXPECT_TRUE(apply({WriteKind::kEraseIf, "a", "", "234"}, &answer).ok());
  EXPECT_TRUE(batch.erased());
  EXPECT_TRUE(absl::IsNotFound(apply({WriteKind::kEraseIf, "a", "", "234"}, &answer)));
  EXPECT_TRUE(absl::IsNotFound(apply({WriteKind::kReplace, "a", "1", "234"}, &answer)));
  EXPECT_TRUE(apply({WriteKind::kUpsert, "a", "x", "", &kAppend}, &answer).ok());
  EXPECT_EQ(answer, "x") << "the key was absent";
  batch.Commit().SealDirty(kPacketBytes);
  EXPECT_EQ(leaf.Entries(), (std::map<std::string, std::string>{{"a", "x"}}));
}

TEST(LeafBatch, AnUpsertThatChangesNothingWritesNothing) {
  Leaf leaf(Layout(8, 8), "", "");
  Put(leaf, "a", "1");
  LeafBatch batch(leaf.data(), leaf.layout(), false);
  absl::Status result;
  std::string answer;
  ASSERT_TRUE(batch.Apply({WriteKind::kUpsert, "a", "", "", &kAppend}, &result, &answer));
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(answer, "1");
  EXPECT_FALSE(batch.Commit().dirty());
}

// What the operations mean, on a map.
absl::StatusCode ApplyToModel(std::map<std::string, std::string>& model, size_t value_bytes_max,
                              const WriteOperation& operation, std::string* answer) {
  const std::string key(operation.key);
  const bool present = model.contains(key);
  if (operation.kind == WriteKind::kUpsert) {
    const std::string value = model[key] + std::string(operation.value);
    if (value.size() > value_bytes_max) {
      *answer = model[key];
      return absl::StatusCode::kFailedPrecondition;
    }
    *answer = model[key] = value;
    return absl::StatusCode::kOk;
  }
  if (operation.kind == WriteKind::kReplace || operation.kind == WriteKind::kEraseIf) {
    if (!present) return absl::StatusCode::kNotFound;
    if (model[key] != operation.expected) {
      *answer = model[key];
      return absl::StatusCode::kFailedPrecondition;
    }
  }
  switch (operation.kind) {
    case WriteKind::kInsert:
      if (present) return absl::StatusCode::kAlreadyExists;
      break;
    case WriteKind::kUpdate:
      if (!present) return absl::StatusCode::kNotFound;
      break;
    case WriteKind::kErase:
    case WriteKind::kEraseIf:
      return model.erase(key) > 0 ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
    case WriteKind::kPut:
    case WriteKind::kReplace:
    case WriteKind::kUpsert:
      break;
  }
  model[key] = operation.value;
  return absl::StatusCode::kOk;
}

// A run of writes to a full leaf: what stays keeps its slot (rule S5), what goes is in the sorted
// list.
TEST(LeafBatch, ASplitLosesNothing) {
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    Leaf leaf(Layout(8, 8), "", "");
    const uint32_t slots = leaf.layout().slot_count();
    std::map<std::string, std::string> model;
    std::map<std::string, int> slot_before;
    for (uint32_t i = 0; i < slots; ++i) Put(leaf, Number(10 * i), model[Number(10 * i)] = "old");
    for (const auto& [key, value] : model) slot_before[key] = leaf.SlotOf(key);
    std::deque<std::string> texts;
    LeafBatch batch(leaf.data(), leaf.layout(), false);
    const bool above = round % 5 == 0;
    std::vector<std::string> keys;
    for (int i = 0; i < 100; ++i) {
      keys.push_back(Number((above ? 10 * slots : 0) + random.Uniform(10 * slots)));
    }
    std::sort(keys.begin(), keys.end() - (above ? 0 : 20));  // then those of waiters
    bool full = false;
    for (const std::string& key : keys) {
      const WriteOperation operation{random.Chance(0.2) ? WriteKind::kErase : WriteKind::kUpsert,
                                     texts.emplace_back(key), "n", "", &kAppend};
      absl::Status result;
      std::string answer, expected;
      while (!batch.Apply(operation, &result, &answer)) {
        EXPECT_EQ(answer, "");
        full = true;
        batch.AddRoom(7);
      }
      ASSERT_EQ(result.code(), ApplyToModel(model, 8, operation, &expected));
      ASSERT_EQ(answer, expected);
    }
    std::vector<LeafEntry> sorted;
    bool ascending = false;
    ASSERT_TRUE(batch.ReadFinal(&sorted, &ascending));
    ASSERT_TRUE(full);
    ASSERT_EQ(ascending, above);
    std::map<std::string, std::string> read;
    for (const LeafEntry& entry : sorted) {
      ASSERT_TRUE(read.empty() || read.rbegin()->first < entry.key);
      read[entry.key] = entry.value;
    }
    ASSERT_EQ(read, model);
    const std::string high = sorted[slots / 2].key;
    batch.CommitBelow(high, {RemoteAddress(1, 4096), 1});
    EXPECT_EQ(leaf.Entries(), (std::map<std::string, std::string>(
                                  model.begin(), std::next(model.begin(), slots / 2))));
    SealNodeLevel(leaf.data(), leaf.data(), leaf.layout(), false);
    for (const auto& [key, slot] : slot_before) {
      if (key < high && model.contains(key)) {
        ASSERT_EQ(leaf.SlotOf(key), slot) << key;
      }
    }
    SetHigh(leaf.data(), leaf.layout(), "");
    EXPECT_EQ(leaf.Entries().size(), slots / 2) << "rule F5";
  }
}

struct Shape {
  uint32_t key_bytes, value_bytes;
};

class LeafBatchRandomTest : public testing::TestWithParam<Shape> {
 protected:
  std::string RandomKey(Random* random) {
    std::string key = Number(random->Uniform(90));
    if (GetParam().key_bytes > 200) key = std::string(200, 'p') + key;
    return key;
  }
  std::string RandomValue(Random* random) {
    std::string value(random->Uniform(GetParam().value_bytes + 1), '\0');
    for (char& c : value) c = static_cast<char>(random->Next());
    return value;
  }
};

TEST_P(LeafBatchRandomTest, BatchesAreLikeAMap) {
  Random random(GetParam().key_bytes);
  const NodeLayout layout = Layout(GetParam().key_bytes, GetParam().value_bytes);
  for (int round = 0; round < (kSanitized ? 2 : 10); ++round) {
    Leaf leaf(layout, "", "");
    std::map<std::string, std::string> model;
    for (int i = 0; i < 60; ++i) {
      std::map<std::string, int> slots_before;
      for (const auto& [key, value] : model) slots_before[key] = leaf.SlotOf(key);
      std::deque<std::string> texts;  // what the batch's views point to
      LeafBatch batch(leaf.data(), layout, false);
      for (uint64_t n = 1 + random.Uniform(30); n > 0; --n) {
        const std::string& key = texts.emplace_back(RandomKey(&random));
        // What is expected is the case, mostly.
        const bool right = model.contains(key) && random.Chance(0.7);
        const WriteOperation operation{
            static_cast<WriteKind>(random.Uniform(7)), key,
            texts.emplace_back(RandomValue(&random)),
            texts.emplace_back(right ? model[key] : RandomValue(&random)), &kAppend};
        absl::Status result;
        std::string answer, expected_answer;
        if (batch.Apply(operation, &result, &answer)) {
          ASSERT_EQ(result.code(),
                    ApplyToModel(model, GetParam().value_bytes, operation, &expected_answer));
          ASSERT_EQ(answer, expected_answer);
        } else {
          // Refused: only for want of slots, which those that the batch empties do not count as.
          ASSERT_FALSE(model.contains(std::string(operation.key)));
          ASSERT_GE(model.size() + slots_before.size() + texts.size() / 3, layout.slot_count());
        }
      }
      batch.Commit().SealDirty(kPacketBytes);
      ASSERT_EQ(leaf.Entries(), model);
      for (const auto& [key, slot] : slots_before) {
        if (model.contains(key)) {
          ASSERT_EQ(leaf.SlotOf(key), slot) << key;
        }
      }
    }
    ASSERT_GT(model.size(), layout.slot_count() / 2) << "full leaves were tried";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LeafBatchRandomTest,
                         testing::Values(Shape{8, 8}, Shape{60, 8}, Shape{255, 255}),
                         [](const testing::TestParamInfo<Shape>& info) {
                           return std::to_string(info.param.key_bytes) + "_" +
                                  std::to_string(info.param.value_bytes);
                         });

}  // namespace
}  // namespace pando

#include "compute/index/leaf_batch.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/sanitizer.h"
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

// What the operations mean, on a map.
absl::StatusCode ApplyToModel(std::map<std::string, std::string>& model,
                              const WriteOperation& operation) {
  const std::string key(operation.key);
  const bool present = model.contains(key);
  switch (operation.kind) {
    case WriteKind::kInsert:
      if (present) return absl::StatusCode::kAlreadyExists;
      break;
    case WriteKind::kUpdate:
      if (!present) return absl::StatusCode::kNotFound;
      break;
    case WriteKind::kErase:
      return model.erase(key) > 0 ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
    case WriteKind::kPut:
      break;
  }
  model[key] = operation.value;
  return absl::StatusCode::kOk;
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
        const WriteOperation operation{static_cast<WriteKind>(random.Uniform(4)),
                                       texts.emplace_back(RandomKey(&random)),
                                       texts.emplace_back(RandomValue(&random))};
        absl::Status result;
        if (batch.Apply(operation, &result)) {
          ASSERT_EQ(result.code(), ApplyToModel(model, operation));
        } else {
          // Refused: only for want of slots, which those that the batch empties do not count as.
          ASSERT_FALSE(model.contains(std::string(operation.key)));
          ASSERT_GE(model.size() + slots_before.size() + texts.size() / 2, layout.slot_count());
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

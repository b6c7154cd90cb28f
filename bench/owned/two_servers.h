// Two ranges of an owner, each with messages that are not in its leaves, whose leaves are on two
// memory servers. On that of the lower range, `far`, are neither the catalog nor the log.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "common/wire/lock_word.h"

namespace pando {

// From now on somebody who is stopped holds all locks of nodes there that nobody has; or not any
// more.
inline void StopAt(OwnedStage& stage, ServerId server, bool stops) {
  constexpr LockWord kStopped = {.owner = 777, .incarnation = 5};
  const uint32_t words = stage.world().Memory(server).locks.size() / sizeof(uint64_t);
  for (uint32_t i = kRootLockWords; i < words; ++i) {
    const LockTarget word = {.server = server, .word = i};
    const uint64_t before = stops ? LockWord::kFree : kStopped.Encode();
    if (stage.cluster().LockWordAt(word) != before) continue;
    stage.cluster().SetLockWord(word, stops ? kStopped.Encode() : LockWord::kFree);
  }
}

struct TwoServers {
  static OwnedStageOptions Options() {
    OwnedStageOptions options = {.trees = 2, .circumstances = {.breaks = true, .owners_end = true}};
    options.cluster.memory_servers = 3;
    return options;
  }
  static ClientOptions Client() {
    ClientOptions client = OwnedStage::SmallOwner();
    client.hot_bytes = client.log_bytes = 1 << 20;
    client.spread_ranges = false;
    return client;
  }

  // `lows`: so many of the lower range's keys have messages.
  explicit TwoServers(uint64_t lows) : stage(Options()), owner(stage.Join(Client(), 2)) {
    EXPECT_TRUE(stage.Open(owner, 0));
    std::vector<KeyValue> entries;
    for (uint64_t key = 1; key <= 5000; ++key) {
      entries.push_back({KeyOf(key), "@" + std::to_string(key) + "@"});
    }
    EXPECT_TRUE(stage.BulkLoad(owner, 0, entries));
    far = stage.LogServer(owner) == 2 ? 3 : 2;
    const std::vector<uint64_t> at_far = KeysAt(far);
    low = at_far.empty() ? 0 : at_far.front();
    for (const ServerId near : {ServerId{1}, static_cast<ServerId>(5 - far)}) {
      for (const uint64_t key : KeysAt(near)) {
        if (key > low + lows && (high == 0 || key < high)) high = key;
      }
    }
    EXPECT_GT(high, low) << "leaves are elsewhere";
    // How to come there is known from then on.
    for (const uint64_t key : {low, high}) {
      EXPECT_TRUE(
          stage.Do(owner, 0, 0, OwnedStage::Make(history::OperationKind::kGet, KeyOf(key))));
    }
    for (uint64_t key = low; key < low + lows; ++key) EXPECT_TRUE(Put(key));
    EXPECT_TRUE(Put(high));
    EXPECT_TRUE(stage.Split(owner, 0, 0, KeyOf(high)).ok());
  }

  // Of the values that were loaded, as some of them lie there in one piece.
  std::vector<uint64_t> KeysAt(ServerId server) {
    const std::span<const std::byte> main = stage.world().Memory(server).main;
    const std::string_view text(reinterpret_cast<const char*>(main.data()), main.size());
    std::vector<uint64_t> keys;
    for (size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@', at + 1)) {
      uint64_t key = 0;
      size_t end = at + 1;
      for (; end < text.size() && text[end] >= '0' && text[end] <= '9' && key <= 5000; ++end) {
        key = 10 * key + static_cast<uint64_t>(text[end] - '0');
      }
      if (key > 0 && key <= 5000 && text[end] == '@') keys.push_back(key);
    }
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  void StopAtFar(bool stops) { StopAt(stage, far, stops); }

  LogMoves stage;
  OwnedActor* const owner;
  ServerId far = 0;
  uint64_t low = 0, high = 0;

 private:
  bool Put(uint64_t key) {
    const std::string value = stage.NewValue() + std::string(50, '.');
    return stage.Do(owner, 0, 0, OwnedStage::Make(history::OperationKind::kPut, KeyOf(key), value));
  }
};

}  // namespace pando

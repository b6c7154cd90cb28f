// A ChainQueue on a queue pair that is none (fake_queue_pair.h), for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fabric/verb_check.h"
#include "common/fabric/verbs/chain_queue.h"
#include "common/fabric/verbs/completion_error.h"
#include "common/fabric/verbs/fake_queue_pair.h"

namespace pando {

inline constexpr uint16_t kIndex = 5;
inline constexpr uint32_t kPlaces = 64;
inline const ServerLocation kServer = {.id = 1, .address = "nowhere:1"};
inline const VerbsMemory kMemory = {.main_bytes = 1 << 20,
                                    .main_address = 1 << 30,
                                    .lock_bytes = 1 << 16,
                                    .lock_address = 1 << 29,
                                    .main_key = 8,
                                    .lock_key = 9};

// Verbs of each chain.
using Shape = std::vector<uint32_t>;

inline uint32_t VerbsOf(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 0u);
}

// A queue and the chains that were given to it, and what the endpoint does with both
// (verbs_endpoint.cpp: Handle(), Break()).
class Bench {
 public:
  explicit Bench(uint32_t places = kPlaces) : places_(places) {
    queue = std::make_unique<ChainQueue>(kIndex, kMemory, places, &list_, &counters);
    results_.resize(places);
    Attach();
  }
  ~Bench() { queue->TakeAll(); }

  void Attach() {
    nic_ = std::make_unique<FakeQueuePair>(places_);
    auto* const results = reinterpret_cast<std::byte*>(results_.data());
    queue->Attach(nic().Take(), {results, places_ * 8, 1});
    accepted_before_ = VerbsOf(shape);
  }
  FakeQueuePair& nic() { return *nic_; }

  void Push(uint32_t verbs) {
    Chain& chain = *chains.emplace_back(std::make_unique<Chain>(kServer.id));
    const LocalBuffer small = {buffer_.data(), 64, 2}, large = {buffer_.data(), 128, 2};
    for (uint32_t i = 0; i < verbs; ++i) {
      switch ((chains.size() + i) % 5) {
        case 0:
          chain.FetchAdd(MemorySpace::kMain, 8 * i, 1);
          break;
        case 1:
          chain.Write(MemorySpace::kMain, 512 + 64 * i, small);
          break;
        case 2:
          chain.CompareSwap(MemorySpace::kLocks, 8 * i, 0, 1);
          break;
        case 3:
          chain.Write(MemorySpace::kMain, 1024 + 128 * i, large);
          break;
        case 4:
          chain.Read(MemorySpace::kMain, 4096 + 64 * i, small);
          break;
      }
    }
    chain.set_on_done(
        [](Chain* done, void* self) { static_cast<Bench*>(self)->ended.push_back(done); }, this);
    shape.push_back(verbs);
    queue->Push(&chain, verbs, absl::OkStatus());
  }
  // Rings the doorbell behind the chains with a bit in `rings`.
  void PushAll(const Shape& all, uint32_t rings) {
    for (size_t i = 0; i < all.size(); ++i) {
      Push(all[i]);
      if ((rings >> i & 1) != 0) {
        ASSERT_TRUE(queue->Pump(1).ok());
      }
    }
  }

  void Handle(const ibv_wc& completion) {
    ASSERT_EQ(ChainQueue::IndexOf(completion), kIndex);
    std::optional<ChainQueue::Failure> failure;
    std::optional<ChainQueue::Entry> done = queue->OnCompletion(completion, &failure);
    ASSERT_FALSE(failure.has_value() && done.has_value());
    if (failure.has_value()) Break(failure->verb, DescribeCompletionStatus(failure->status));
    if (done.has_value()) done->chain->Complete(std::move(done->refused), 2);
  }
  void Execute(uint32_t requests) {
    for (; requests > 0; --requests) {
      const std::optional<ibv_wc> completion = nic().Execute();
      if (completion.has_value()) Handle(*completion);
    }
  }
  void Break(size_t verb, const std::string& reason) {
    for (ChainQueue::Entry& entry : queue->TakeAll()) {
      entry.chain->Complete(BrokenChainError(kServer, *entry.chain, verb, reason), 2);
      verb = 0;
    }
    EXPECT_TRUE(nic().was_broken() && nic().is_destroyed());
    EXPECT_FALSE(queue->connected());
    EXPECT_EQ(queue->size(), 0u);
    EXPECT_EQ(queue->oldest_ns(), 0);
  }

  // How many chains are done when so many of their work requests are executed.
  size_t ChainsIn(uint32_t requests) const {
    size_t whole = 0;
    for (; whole < shape.size() && shape[whole] <= requests; ++whole) requests -= shape[whole];
    return whole;
  }
  // Each chain has ended once, in order: those before `failed` well, the others Unavailable.
  void ExpectEnds(size_t failed) {
    ASSERT_EQ(ended.size(), chains.size());
    for (size_t i = 0; i < chains.size(); ++i) {
      ASSERT_EQ(ended[i], chains[i].get()) << i;
      ASSERT_EQ(chains[i]->ok(), i < failed) << i << ": " << chains[i]->status();
      ASSERT_EQ(absl::IsUnavailable(chains[i]->status()), i >= failed) << i;
    }
    EXPECT_EQ(queue->size(), 0u);
  }
  // What the atomics of chains [first, end) found: as many as came before on this queue pair.
  void ExpectResults(size_t first, size_t end) {
    const auto before = shape.begin() + static_cast<ptrdiff_t>(first);
    uint64_t found = FakeQueuePair::kFirstFound + VerbsOf({shape.begin(), before});
    found -= accepted_before_;
    for (size_t i = first; i < end; ++i) {
      for (const Verb& verb : chains[i]->verbs()) {
        if (verb.is_atomic()) {
          ASSERT_EQ(verb.old_value, found) << "chain " << i;
        }
        ++found;
      }
    }
  }
  uint64_t SmallWrites(size_t chains_end) const {
    uint64_t count = 0;
    for (size_t i = 0; i < chains_end; ++i) {
      for (const Verb& verb : chains[i]->verbs()) {
        count += verb.kind == VerbKind::kWrite && verb.bytes <= FakeQueuePair::kInlineBytes;
      }
    }
    return count;
  }
  // A new queue pair works, whatever the old one has left in the completion queue.
  void ExpectWorksAgain(const std::vector<ibv_wc>& late) {
    const size_t first = chains.size();
    const Shape again = {2, 1, 3};
    Attach();
    ended.clear();
    PushAll(again, 0b110);
    for (const ibv_wc& completion : late) Handle(completion);
    ASSERT_TRUE(ended.empty()) << "the end of what was before";
    for (uint32_t i = 0; i < VerbsOf(again); ++i) {
      for (const ibv_wc& completion : late) Handle(completion);
      Execute(1);
    }
    ASSERT_EQ(ended.size(), again.size());
    for (size_t i = 0; i < again.size(); ++i) {
      ASSERT_EQ(ended[i], chains[first + i].get());
      ASSERT_TRUE(ended[i]->ok()) << ended[i]->status();
    }
    ExpectResults(first, chains.size());
  }

  std::unique_ptr<ChainQueue> queue;
  VerbsCounters counters;
  std::vector<std::unique_ptr<Chain>> chains;
  Shape shape;                // of all chains
  std::vector<Chain*> ended;  // in this order

 private:
  const uint32_t places_;
  ChainQueue::List list_;
  std::vector<uint64_t> results_;
  std::array<std::byte, 128> buffer_ = {};
  std::unique_ptr<FakeQueuePair> nic_;
  uint64_t accepted_before_ = 0;
};

}  // namespace pando

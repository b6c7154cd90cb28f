// The suite's tests of what concurrent endpoints may see of each other.
#include <cstring>
#include <utility>

#include "common/fabric/conformance.h"
#include "gmock/gmock.h"

namespace pando {
namespace {

constexpr ServerId kAt = 1;
constexpr int kRounds = 300;

uint64_t FirstWord(LocalBuffer buffer, size_t index = 0) {
  uint64_t word;
  std::memcpy(&word, buffer.data + 8 * index, 8);
  return word;
}

void SetWords(LocalBuffer buffer, uint64_t value) {
  for (uint32_t i = 0; i < buffer.bytes; i += 8) std::memcpy(buffer.data + i, &value, 8);
}

// The endpoint is there from the first Step() on.
class BufferedActor : public Actor {
 protected:
  explicit BufferedActor(uint32_t bytes) : bytes_(bytes) {}
  void Init() {
    if (buffer_.data == nullptr) buffer_ = *endpoint->AllocateBuffer(bytes_);
  }
  LocalBuffer buffer_;

 private:
  const uint32_t bytes_;
};

class Adder : public Actor {
 public:
  Adder(MemorySpace space, std::vector<uint64_t>* seen) : space_(space), seen_(seen) {}
  bool Step() override {
    if (round_++ > 0) {
      EXPECT_TRUE(chain.ok()) << chain.status();
      seen_->push_back(chain.verb(0).old_value);
    }
    if (round_ > kRounds) return false;
    chain.Reset(kAt);
    chain.FetchAdd(space_, 64, 1);
    return true;
  }

 private:
  const MemorySpace space_;
  std::vector<uint64_t>* const seen_;
  int round_ = 0;
};

// Increments a counter over several lines under a lock, as the tree does: [CAS, READ], [WRITE,
// release].
class LockedCounter : public BufferedActor {
 public:
  static constexpr uint64_t kLock = 8;
  static constexpr uint64_t kNode = 4096;
  static constexpr uint32_t kBytes = 256;

  explicit LockedCounter(uint64_t self, bool write_unlock)
      : BufferedActor(kBytes + 8), self_(self), write_unlock_(write_unlock) {}

  bool Step() override {
    Init();
    switch (std::exchange(state_, kLocking)) {
      case kStart:
        break;
      case kLocking:
        EXPECT_TRUE(chain.ok()) << chain.status();
        if (chain.verb(0).swapped()) {
          Update();
          state_ = kUnlocking;
          return true;
        }
        break;
      case kUnlocking:
        EXPECT_TRUE(chain.ok()) << chain.status();
        EXPECT_TRUE(write_unlock_ || chain.verb(1).old_value == self_);
        if (++rounds_ == kRounds) return false;
        break;
    }
    chain.Reset(kAt);
    chain.CompareSwap(MemorySpace::kLocks, kLock, 0, self_);
    chain.Read(MemorySpace::kMain, kNode, buffer_.Slice(0, kBytes));
    return true;
  }

 private:
  enum State { kStart, kLocking, kUnlocking };

  void Update() {
    const uint64_t count = FirstWord(buffer_);
    for (size_t i = 0; i < kBytes / 8; ++i) EXPECT_EQ(FirstWord(buffer_, i), count) << i;
    SetWords(buffer_.Slice(0, kBytes), count + 1);
    SetWords(buffer_.Slice(kBytes, 8), 0);
    chain.Reset(kAt);
    chain.Write(MemorySpace::kMain, kNode, buffer_.Slice(0, kBytes));
    if (write_unlock_) {
      chain.Write(MemorySpace::kLocks, kLock, buffer_.Slice(kBytes, 8));
    } else {
      chain.CompareSwap(MemorySpace::kLocks, kLock, self_, 0);
    }
  }

  const uint64_t self_;
  const bool write_unlock_;
  State state_ = kStart;
  int rounds_ = 0;
};

// Writes `bytes` at an offset over and over, all words equal.
class PatternWriter : public BufferedActor {
 public:
  PatternWriter(MemorySpace space, uint64_t offset, uint32_t bytes, std::vector<uint64_t> patterns)
      : BufferedActor(bytes), space_(space), offset_(offset), patterns_(std::move(patterns)) {}
  bool Step() override {
    Init();
    EXPECT_TRUE(round_ == 0 || chain.ok()) << chain.status();
    if (round_ == 4 * kRounds) return false;
    SetWords(buffer_, patterns_[round_++ % patterns_.size()]);
    chain.Reset(kAt);
    chain.Write(space_, offset_, buffer_);
    return true;
  }

 private:
  const MemorySpace space_;
  const uint64_t offset_;
  const std::vector<uint64_t> patterns_;
  int round_ = 0;
};

class PatternReader : public BufferedActor {
 public:
  PatternReader(MemorySpace space, uint64_t offset, uint32_t bytes,
                std::function<void(LocalBuffer)> look)
      : BufferedActor(bytes), space_(space), offset_(offset), look_(std::move(look)) {}
  bool Step() override {
    Init();
    if (round_ > 0) {
      EXPECT_TRUE(chain.ok()) << chain.status();
      look_(buffer_);
    }
    if (round_++ == 4 * kRounds) return false;
    chain.Reset(kAt);
    chain.Read(space_, offset_, buffer_);
    return true;
  }

 private:
  const MemorySpace space_;
  const uint64_t offset_;
  const std::function<void(LocalBuffer)> look_;
  int round_ = 0;
};

// One side of the store-buffering litmus: WRITE my word, READ the other's, in one chain or in two.
class LitmusSide : public BufferedActor {
 public:
  LitmusSide(uint64_t mine, uint64_t others, bool one_chain)
      : BufferedActor(16), mine_(mine), others_(others), one_chain_(one_chain) {}
  bool Step() override {
    Init();
    if (done_ || (one_chain_ && step_ == 1) || step_ == 2) {
      EXPECT_TRUE(chain.ok()) << chain.status();
      seen = FirstWord(buffer_, 1);
      return false;
    }
    chain.Reset(kAt);
    if (step_ == 0) {
      SetWords(buffer_.Slice(0, 8), 1);
      chain.Write(MemorySpace::kMain, mine_, buffer_.Slice(0, 8));
    }
    if (step_ == 1 || one_chain_) chain.Read(MemorySpace::kMain, others_, buffer_.Slice(8, 8));
    ++step_;
    return true;
  }
  uint64_t seen = 0;

 private:
  const uint64_t mine_, others_;
  const bool one_chain_;
  const bool done_ = false;
  int step_ = 0;
};

}  // namespace

TEST_P(FabricConformance, FetchAddsAreCountedOnceEach) {
  for (const MemorySpace space : {MemorySpace::kMain, MemorySpace::kLocks}) {
    std::vector<uint64_t> seen[4];
    std::vector<std::unique_ptr<Actor>> adders;
    std::vector<Actor*> actors;
    for (auto& mine : seen) {
      adders.push_back(std::make_unique<Adder>(space, &mine));
      actors.push_back(adders.back().get());
    }
    RunActors(actors);
    std::set<uint64_t> all;
    for (const auto& mine : seen) {
      EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
      all.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(all.size(), 4u * kRounds);
    EXPECT_EQ(Word(space, 64), 4u * kRounds);
  }
}

TEST_P(FabricConformance, LocksProtectWhatIsReadAndWrittenInTheSameChains) {
  const bool write_unlock = cluster_->fabric(0).capabilities().write_unlock;
  std::vector<std::unique_ptr<Actor>> counters;
  std::vector<Actor*> actors;
  for (uint64_t self = 1; self <= 3; ++self) {
    counters.push_back(std::make_unique<LockedCounter>(self, write_unlock));
    actors.push_back(counters.back().get());
  }
  RunActors(actors);
  for (uint64_t i = 0; i < LockedCounter::kBytes; i += 8) {
    EXPECT_EQ(Word(MemorySpace::kMain, LockedCounter::kNode + i), 3u * kRounds);
  }
  EXPECT_EQ(Word(MemorySpace::kLocks, LockedCounter::kLock), 0u);
}

TEST_P(FabricConformance, EightByteReadsAndWritesAreWhole) {
  for (const MemorySpace space : {MemorySpace::kMain, MemorySpace::kLocks}) {
    SetWord(space, 56, 0);
    PatternWriter writer(space, 56, 8, {0, UINT64_MAX, 0x0123456789abcdef});
    PatternReader reader(space, 56, 8, [](LocalBuffer found) {
      EXPECT_THAT(FirstWord(found), testing::AnyOf(0u, UINT64_MAX, 0x0123456789abcdefu));
    });
    Actor* const actors[] = {&writer, &reader};
    RunActors(actors);
  }
}

TEST_P(FabricConformance, LinesAreWholeOrShowIt) {
  const Capabilities capabilities = cluster_->fabric(0).capabilities();
  if (capabilities.needs_crc) GTEST_SKIP() << "lines carry checksums on this fabric";
  std::vector<uint64_t> patterns;
  for (uint64_t i = 0; i < 100; ++i) patterns.push_back(i * 0x0101010101010101u);
  PatternWriter writer(MemorySpace::kMain, 512, 256, patterns);
  PatternReader reader(MemorySpace::kMain, 512, 256, [&capabilities](LocalBuffer found) {
    for (size_t line = 0; line < 4; ++line) {
      const uint64_t front = FirstWord(found, 8 * line);
      const bool claimed = capabilities.lines_atomic || front == FirstWord(found, 8 * line + 7);
      for (size_t i = 0; claimed && i < 8; ++i) {
        EXPECT_EQ(FirstWord(found, 8 * line + i), front) << "word " << i << " of line " << line;
      }
    }
  });
  Actor* const actors[] = {&writer, &reader};
  RunActors(actors);
}

// A READ in the chain of a WRITE, or posted after the WRITE completed, is not overtaken by it: of
// two that write and then look, at least one sees the other.
TEST_P(FabricConformance, ReadsDoNotOvertakeEarlierWrites) {
  for (const bool one_chain : {true, false}) {
    for (int round = 0; round < 100; ++round) {
      SetWord(MemorySpace::kMain, 0, 0);
      SetWord(MemorySpace::kMain, 4096, 0);
      LitmusSide left(0, 4096, one_chain), right(4096, 0, one_chain);
      Actor* const actors[] = {&left, &right};
      RunActors(actors);
      EXPECT_TRUE(left.seen == 1 || right.seen == 1) << "round " << round;
    }
  }
}

}  // namespace pando

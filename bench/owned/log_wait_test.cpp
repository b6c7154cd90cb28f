// Waiting at the redo log, its ends and its reader: room, deadlines, dead servers, base lines, what
// lies where a log should be (rules W2 to W6, D3).
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/owned/log_world.h"
#include "common/base/random.h"
#include "compute/log/read_log.h"
#include "gmock/gmock.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LogWaitTest : public testing::Test {
 protected:
  SessionContext& session(int i = 0) { return *members_[static_cast<size_t>(i)].sessions[0]; }
  void SetUp() override {
    for (int i = 0; i < 3; ++i) members_.push_back(world_.Join(1, 8));
    log_ = world_.Create(session(), options_);
  }
  static Lsn Append(RedoLog& log, OperationContext& context, const std::string& key) {
    auto room = log.Reserve(context, key.size(), 5);
    EXPECT_TRUE(room.ok()) << room.status();
    return log.Append(*std::move(room), {.tree_id = 1, .key = key, .value = "value"});
  }
  // Until so many bytes more have no room.
  void Fill(OperationContext& context, uint64_t bytes) {
    while (log_->used_bytes() + bytes <= log_->capacity_bytes() / 16 * 15) {
      ASSERT_TRUE(log_->AwaitDurable(context, Append(*log_, context, "key")).ok());
    }
  }
  absl::Status Put(const std::string& key, int i = 0) {
    absl::Status status;
    LogWorld::Run(session(i), [&](OperationContext& context) {
      status = log_->AwaitDurable(context, Append(*log_, context, key));
    });
    return status;
  }
  absl::Status AdvanceBase(Lsn base) {
    absl::Status status;
    LogWorld::Run(session(),
                  [&](OperationContext& context) { status = log_->AdvanceBase(context, base); });
    return status;
  }
  // "1:key" of all there is.
  std::vector<std::string> Read(const RedoLog::Options& options) {
    std::vector<std::string> found;
    LogWorld::Run(session(1), [&](OperationContext& context) {
      read_ = ReadLog(context, options.extent, options.log_id, options.epoch,
                      [&](Lsn lsn, const LogMessage& message) {
                        found.push_back(std::to_string(lsn) + ":" + std::string(message.key));
                        return absl::OkStatus();
                      });
    });
    return found;
  }
  std::vector<std::string> Read() { return Read(options_); }

  LogWorld world_{{.seed = 9}};
  std::vector<LogWorld::Member> members_;
  RedoLog::Options options_ = LogWorld::OptionsOf(8 << 10, 1 << 10);
  std::unique_ptr<RedoLog> log_;
  absl::StatusOr<LogSpan> read_;
};

TEST_F(LogWaitTest, WhatIsDurableIsRead) {
  EXPECT_THAT(Read(), IsEmpty());
  ASSERT_TRUE(read_.ok()) << read_.status();
  EXPECT_EQ(read_->end, 1u);
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Put(key).ok());
  EXPECT_EQ(log_->durable(), 3u);
  EXPECT_THAT(Read(), ElementsAre("1:a", "2:b", "3:c"));
  ASSERT_TRUE(AdvanceBase(3).ok());
  EXPECT_THAT(Read(), ElementsAre("3:c"));
  ASSERT_TRUE(AdvanceBase(4).ok());
  EXPECT_THAT(Read(), IsEmpty());
  EXPECT_EQ(read_->base, 4u);
  ASSERT_TRUE(Put("d").ok());
  EXPECT_THAT(Read(), ElementsAre("4:d"));
  ASSERT_TRUE(AdvanceBase(2).ok());
  EXPECT_EQ(log_->base(), 4u) << "it never goes back";
}

TEST_F(LogWaitTest, AFullRingWaitsForItsBaseOrTheDeadline) {
  LogWorld::Run(session(), [&](OperationContext& context) {
    int appended = 0;
    while (log_->used_bytes() + 64 <= log_->capacity_bytes() / 16 * 15) {
      const Lsn lsn = Append(*log_, context, std::to_string(++appended));
      ASSERT_TRUE(log_->AwaitDurable(context, lsn).ok());
    }
    const int64_t start_ns = world_.NowNs();
    OperationContext soon(context, start_ns + 100 * kMicrosecondNs);
    EXPECT_TRUE(absl::IsDeadlineExceeded(log_->Reserve(soon, 1, 1).status()));
    EXPECT_GE(world_.NowNs(), start_ns + 100 * kMicrosecondNs);
    const auto try_append = [this] {
      return log_->TryAppend({.tree_id = 1, .key = "key", .value = "value"});
    };
    EXPECT_FALSE(try_append().has_value());
    EXPECT_EQ(log_->next_lsn(), static_cast<Lsn>(appended) + 1) << "no effect";
    // A client that has to go on goes on.
    for (int i = 0; i < 4; ++i) {
      auto room = log_->Reserve(soon, 1, 1, RedoLog::Purpose::kReserve);
      EXPECT_TRUE(room.ok()) << room.status();
    }
    LogWorld::Spawn(session(1), kSecondNs, [&](OperationContext& other) {
      other.session.scheduler().SleepUntil(world_.NowNs() + 50 * kMicrosecondNs);
      EXPECT_TRUE(log_->AdvanceBase(other, log_->next_lsn()).ok());
    });
    auto room = log_->Reserve(context, 1, 1);
    EXPECT_TRUE(room.ok()) << room.status();
    EXPECT_LT(log_->used_bytes(), 1024u);
  });
}

TEST_F(LogWaitTest, WhoAppendsAtOnceDoesNotOvertakeWhoWaitsForRoom) {
  const LogMessage message = {.tree_id = 1, .key = "key", .value = "value"};
  LogWorld::Run(session(), [&](OperationContext& context) {
    while (log_->used_bytes() + 256 <= log_->capacity_bytes() / 16 * 15) {
      const std::optional<Lsn> lsn = log_->TryAppend(message);
      ASSERT_TRUE(lsn.has_value());
      ASSERT_TRUE(log_->AwaitDurable(context, *lsn).ok());
    }
    const Lsn next = log_->next_lsn();
    LogWorld::Spawn(session(1), 100 * kMicrosecondNs, [&](OperationContext& other) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(log_->Reserve(other, 200, 50).status()));
    });
    context.session.scheduler().SleepUntil(world_.NowNs() + 50 * kMicrosecondNs);
    EXPECT_FALSE(log_->TryAppend(message).has_value());
    EXPECT_EQ(log_->next_lsn(), next) << "no effect";
    context.session.scheduler().SleepUntil(world_.NowNs() + 100 * kMicrosecondNs);
    EXPECT_EQ(log_->TryAppend(message), next);
    EXPECT_TRUE(log_->AwaitDurable(context, next).ok());
  });
}

// The log fails and moves while a session that waits for room does not poll: when it does, the room
// of the new extent has been there for long, and nobody else comes by.
TEST_F(LogWaitTest, WhoWaitsForRoomGetsThatOfTheNextExtent) {
  options_.moves = true;
  log_ = world_.Create(session(), options_);
  LogWorld::Run(session(), [&](OperationContext& context) { Fill(context, 64); });
  int64_t waited_ns = 0;
  LogWorld::Spawn(session(2), kSecondNs, [&](OperationContext& context) {
    const int64_t start_ns = world_.NowNs();
    EXPECT_TRUE(log_->Reserve(context, 3, 5).ok());
    waited_ns = world_.NowNs() - start_ns;
  });
  world_.world().RunUntil(world_.NowNs() + 50 * kMicrosecondNs);
  world_.world().PauseFabric(*members_[2].fabric);
  LogWorld::Run(session(1), [&](OperationContext& context) {
    log_->NoteServerGone(absl::UnavailableError("it is gone"));
    LogExtent next = options_.extent;
    next.server = LogWorld::kOther;
    const auto nothing = [] { return absl::OkStatus(); };
    EXPECT_TRUE(log_->Move(context, next, options_.epoch + 1, nothing, nothing).ok());
  });
  world_.world().ResumeFabric(*members_[2].fabric);
  session(2).scheduler().Drain();
  EXPECT_LT(waited_ns, kMillisecondNs);
}

// The next extent may be full of that: who else wants a part of it waits until it is there.
TEST_F(LogWaitTest, WhileItMovesOnlyWhatIsAppendedAgainGetsRoom) {
  options_.moves = true;
  log_ = world_.Create(session(), options_);
  LogWorld::Run(session(), [&](OperationContext& context) {
    using Purpose = RedoLog::Purpose;
    const LogMessage message = {.tree_id = 1, .key = "key", .value = "value"};
    log_->NoteServerGone(absl::UnavailableError("it is gone"));
    LogExtent next = options_.extent;
    next.server = LogWorld::kOther;
    const auto again = [&] {
      EXPECT_FALSE(log_->TryAppend(message, Purpose::kReserve).has_value());
      OperationContext soon(context, world_.NowNs() + 10 * kMicrosecondNs);
      EXPECT_TRUE(absl::IsDeadlineExceeded(log_->Reserve(soon, 3, 5, Purpose::kReserve).status()));
      EXPECT_TRUE(log_->TryAppend(message, Purpose::kMove).has_value());
      EXPECT_TRUE(log_->Reserve(soon, 3, 5, Purpose::kMove).ok());
      return absl::OkStatus();
    };
    const auto nothing = [] { return absl::OkStatus(); };
    EXPECT_TRUE(log_->Move(context, next, options_.epoch + 1, again, nothing).ok());
    EXPECT_EQ(log_->next_lsn(), 2u);
    EXPECT_TRUE(log_->Reserve(context, 3, 5, Purpose::kReserve).ok());
  });
}

TEST_F(LogWaitTest, WhoNeedsLessIsNotKeptByOneWhoseTimeIsOver) {
  LogWorld::Run(session(), [&](OperationContext& context) { Fill(context, 256); });
  int64_t waited_ns = 0;
  LogWorld::Spawn(session(1), 100 * kMicrosecondNs, [&](OperationContext& context) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(log_->Reserve(context, 200, 50).status()));
  });
  LogWorld::Spawn(session(2), kSecondNs, [&](OperationContext& context) {
    context.session.scheduler().SleepUntil(world_.NowNs() + 50 * kMicrosecondNs);
    const int64_t start_ns = world_.NowNs();
    EXPECT_TRUE(log_->Reserve(context, 3, 5).ok());
    waited_ns = world_.NowNs() - start_ns;
  });
  for (const int i : {1, 2}) session(i).scheduler().Drain();
  EXPECT_GT(waited_ns, 0);
  EXPECT_LT(waited_ns, kMillisecondNs);
}

TEST_F(LogWaitTest, ADeadlineAfterTheAppendLeavesTheMessageWhereItIs) {
  world_.world().PauseFabric(*members_[2].fabric);
  // It has a batch in flight and does not hear of its end.
  LogWorld::Spawn(session(2), kSecondNs, [&](OperationContext& context) {
    EXPECT_TRUE(log_->AwaitDurable(context, Append(*log_, context, "stopped")).ok());
  });
  world_.world().ResumeFabric(*members_[2].fabric);
  while (log_->next_lsn() == 1) ASSERT_TRUE(world_.world().Step());
  world_.world().RunUntil(world_.NowNs() + 200);
  world_.world().PauseFabric(*members_[2].fabric);
  LogWorld::Run(
      session(),
      [&](OperationContext& context) {
        const Lsn lsn = Append(*log_, context, "mine");
        EXPECT_TRUE(absl::IsDeadlineExceeded(log_->AwaitDurable(context, lsn)));
      },
      100 * kMicrosecondNs);
  EXPECT_EQ(log_->durable(), 0u);
  // The service gets on with it.
  LogWorld::Run(session(1), [&](OperationContext& context) {
    EXPECT_TRUE(log_->Tend(context).ok());
    EXPECT_GE(log_->durable(), 1u);
    EXPECT_TRUE(log_->AwaitDurable(context, 2).ok());
  });
  EXPECT_THAT(Read(), ElementsAre("1:stopped", "2:mine"));
  EXPECT_GE(log_->counters().written_again + log_->counters().turns_taken, 1u);
  world_.world().ResumeFabric(*members_[2].fabric);
  session(2).scheduler().Drain();
}

// The service has written for it, and not all that it waits for; nobody else writes.
TEST_F(LogWaitTest, AHolderOfATurnThatWasTakenTakesAnother) {
  constexpr Lsn kMessages = 150;
  bool took_turn = false;
  LogWorld::Spawn(session(2), kSecondNs, [&](OperationContext& context) {
    Lsn last = kNoLsn;
    for (Lsn i = 0; i < kMessages; ++i) last = Append(*log_, context, std::to_string(i));
    EXPECT_TRUE(log_->AwaitDurable(context, last).ok());
  });
  // Runs when that one has the turn, and before it writes.
  LogWorld::Spawn(session(2), kSecondNs, [&](OperationContext&) {
    took_turn = true;
    world_.world().PauseFabric(*members_[2].fabric);
  });
  while (!took_turn) ASSERT_TRUE(world_.world().Step());
  LogWorld::Run(session(1), [&](OperationContext& context) {
    context.session.scheduler().SleepUntil(world_.NowNs() + kMillisecondNs);
    EXPECT_TRUE(log_->Tend(context).ok());
  });
  EXPECT_EQ(log_->counters().turns_taken, 1u);
  EXPECT_GE(log_->durable(), 1u);
  EXPECT_LT(log_->durable(), kMessages);
  world_.world().ResumeFabric(*members_[2].fabric);
  session(2).scheduler().Drain();
  EXPECT_EQ(log_->durable(), kMessages);
}

// The service has written its batch. Only its own session can say that its chain will not land.
TEST_F(LogWaitTest, WhoseQueuePairBreaksWaitsUntilNothingOfItIsInFlight) {
  constexpr int64_t kCutNs = 50 * kMillisecondNs;
  world_.world().CutLink(*members_[2].fabric, LogWorld::kServer, true);
  int64_t waited_ns = 0;
  LogWorld::Spawn(session(2), 100 * kMicrosecondNs, [&](OperationContext& context) {
    const int64_t start_ns = world_.NowNs();
    EXPECT_TRUE(log_->AwaitDurable(context, Append(*log_, context, "a")).ok());
    waited_ns = world_.NowNs() - start_ns;
  });
  world_.world().RunUntil(world_.NowNs() + kMillisecondNs);
  LogWorld::Run(session(1),
                [&](OperationContext& context) { EXPECT_TRUE(log_->Tend(context).ok()); });
  EXPECT_EQ(log_->durable(), 1u);
  world_.world().RunUntil(world_.NowNs() + kCutNs);
  EXPECT_FALSE(log_->idle());
  world_.world().CutLink(*members_[2].fabric, LogWorld::kServer, false);
  session(2).scheduler().Drain();
  EXPECT_TRUE(log_->idle());
  EXPECT_GE(waited_ns, kCutNs);
  EXPECT_LT(waited_ns, options_.times.lock_recovery_ns);
}

// Its writer waits no more, and nobody else comes.
TEST_F(LogWaitTest, WhatNobodyWaitsForIsWrittenByTheService) {
  LogWorld::Run(session(), [&](OperationContext& context) { Append(*log_, context, "a"); });
  EXPECT_EQ(log_->durable(), 0u);
  LogWorld::Run(session(1),
                [&](OperationContext& context) { EXPECT_TRUE(log_->Tend(context).ok()); });
  EXPECT_EQ(log_->durable(), 1u);
  EXPECT_THAT(Read(), ElementsAre("1:a"));
}

TEST_F(LogWaitTest, TheLogsServerDies) {
  ASSERT_TRUE(Put("a").ok());
  world_.world().KillServer(LogWorld::kServer);
  EXPECT_TRUE(absl::IsUnavailable(Put("b"))) << log_->failure();
  EXPECT_TRUE(absl::IsUnavailable(log_->failure()));
  EXPECT_EQ(log_->durable(), 1u);
  LogWorld::Run(session(1), [&](OperationContext& context) {
    EXPECT_TRUE(absl::IsUnavailable(log_->Reserve(context, 1, 1).status()));
    EXPECT_TRUE(absl::IsUnavailable(log_->AdvanceBase(context, 2)));
    EXPECT_TRUE(log_->AwaitDurable(context, 1).ok()) << "what was durable stays so";
  });
}

TEST_F(LogWaitTest, AServerThatCannotBeReachedForTooLongIsGone) {
  options_.times.lock_recovery_ns = 5 * kMillisecondNs;
  log_ = world_.Create(session(), options_);
  world_.world().CutLink(*members_[0].fabric, LogWorld::kServer, true);
  const absl::Status status = Put("a");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("may still be in flight"));
  EXPECT_EQ(log_->counters().chains_failed, 1u);
}

TEST_F(LogWaitTest, AnotherLifeOfTheServerIsAnotherServer) {
  RedoLog::Options other = options_;
  other.extent.server_life = 2;
  LogWorld::Run(session(), [&](OperationContext& context) {
    const auto log = RedoLog::Create(context, other);
    EXPECT_TRUE(absl::IsUnavailable(log.status())) << log.status();
  });
  Read(other);
  EXPECT_TRUE(absl::IsUnavailable(read_.status())) << read_.status();
}

TEST_F(LogWaitTest, OptionsThatDoNotFitAreRefused) {
  std::vector<RedoLog::Options> wrong(5, options_);
  wrong[0].log_id = 0;
  wrong[1].extent.bytes += 8;
  wrong[2].extent.offset += 8;
  wrong[3].extent.bytes = 1 << 10;
  wrong[4].batch_bytes_max = 512;
  LogWorld::Run(session(), [&](OperationContext& context) {
    for (const RedoLog::Options& options : wrong) {
      EXPECT_TRUE(absl::IsInvalidArgument(RedoLog::Create(context, options).status()));
    }
  });
}

// --- What a reader meets.

TEST_F(LogWaitTest, ABaseLineThatIsDamagedLeavesTheOneBefore) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Put(key).ok());
  ASSERT_TRUE(AdvanceBase(2).ok());
  ASSERT_TRUE(AdvanceBase(3).ok());
  EXPECT_THAT(Read(), ElementsAre("3:c"));
  world_.Log()[64 + 20] ^= std::byte{1};  // the third
  EXPECT_THAT(Read(), ElementsAre("2:b", "3:c"));
  world_.Log()[20] ^= std::byte{1};
  EXPECT_THAT(Read(), IsEmpty());
  EXPECT_TRUE(absl::IsDataLoss(read_.status())) << read_.status();
}

TEST_F(LogWaitTest, WhatAnEarlierEpochHasLeftIsNotTaken) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Put(key).ok());
  RedoLog::Options next = options_;
  next.epoch += 1;
  log_ = world_.Create(session(), next);
  EXPECT_THAT(Read(next), IsEmpty());
  ASSERT_TRUE(Put("new").ok());
  EXPECT_THAT(Read(next), ElementsAre("1:new"));
  RedoLog::Options other = next;
  other.log_id += 1;
  Read(other);
  EXPECT_TRUE(absl::IsDataLoss(read_.status())) << read_.status();
}

TEST_F(LogWaitTest, ATornBatchEndsTheLog) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Put(key).ok());
  world_.Log()[kLogRingOffset + 64 + 50] ^= std::byte{1};
  EXPECT_THAT(Read(), ElementsAre("1:a"));
  EXPECT_EQ(read_->end, 2u);
}

TEST_F(LogWaitTest, LsnsGoOnWhereTheOptionsSay) {
  options_.first_lsn = 1000;
  options_.epoch += 1;
  log_ = world_.Create(session(), options_);
  EXPECT_EQ(log_->durable(), 999u);
  ASSERT_TRUE(Put("a").ok());
  EXPECT_THAT(Read(), ElementsAre("1000:a"));
}

// Any bytes: no crash, no end that never comes.
TEST_F(LogWaitTest, AnythingMayLieThere) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(std::to_string(i)).ok());
  Random random(4);
  const std::vector<std::byte> good(world_.Log(), world_.Log() + options_.extent.bytes);
  for (int round = 0; round < 300; ++round) {
    std::memcpy(world_.Log(), good.data(), good.size());
    for (uint64_t n = random.Uniform(20); n-- > 0;) {
      world_.Log()[random.Uniform(good.size())] ^= static_cast<std::byte>(1 + random.Uniform(255));
    }
    const std::vector<std::string> found = Read();
    EXPECT_LE(found.size(), 100u);
    EXPECT_TRUE(read_.ok() || absl::IsDataLoss(read_.status())) << read_.status();
  }
  std::memcpy(world_.Log(), good.data(), good.size());
}

TEST_F(LogWaitTest, WhatTheTakerSaysEndsTheReading) {
  for (const char* key : {"a", "b"}) ASSERT_TRUE(Put(key).ok());
  LogWorld::Run(session(), [&](OperationContext& context) {
    EXPECT_EQ(ReadLog(context, options_.extent, options_.log_id, options_.epoch,
                      [](Lsn, const LogMessage&) { return absl::AbortedError("enough"); })
                  .status(),
              absl::AbortedError("enough"));
  });
}

}  // namespace
}  // namespace pando

// A log that moves, and the entry that says where it is (rules W6, O3): no room anywhere, a change
// of unknown outcome, somebody else's entry; each by itself, over a table of entries.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/owned/log_world.h"
#include "common/base/status.h"
#include "compute/log/read_log.h"
#include "compute/owner/log_move.h"
#include "gmock/gmock.h"

namespace pando {
namespace {

using testing::ElementsAre;

// A map whose changes may end without saying how. Each takes the session's others their turn.
class EntryTable final : public MapStore {
 public:
  // kHeld: somebody holds the lock of the entry's leaf.
  enum class Answers : uint8_t { kWell, kDoneUnsaid, kLostUnsaid, kHeld };

  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* actual) override {
    ++writes;
    context.session.scheduler().Yield();
    if (answers == Answers::kHeld) return absl::DeadlineExceededError("its lock is held");
    if (answers == Answers::kLostUnsaid) return OutcomeUnknownError("it was not heard of");
    const absl::Status status = Apply(operation, actual);
    return answers == Answers::kWell ? status : OutcomeUnknownError("it was not heard of");
  }
  absl::Status Scan(OperationContext& context, const KeyRange& range, bool, size_t,
                    std::vector<KeyValue>* rows) override {
    context.session.scheduler().Yield();
    if (is_gone) return absl::UnavailableError("its memory server is gone");
    for (const auto& [key, value] : entries) {
      if (!range.low.IsAbove(key) && range.high.IsAbove(key)) rows->push_back({key, value});
    }
    return absl::OkStatus();
  }

  std::map<std::string, std::string> entries;
  Answers answers = Answers::kWell;
  bool is_gone = false;
  int writes = 0;

 private:
  absl::Status Apply(const WriteOperation& operation, std::string* actual) {
    EXPECT_EQ(operation.kind, WriteKind::kReplace);
    const auto entry = entries.find(std::string(operation.key));
    if (entry == entries.end()) return KeyNotFound();
    if (entry->second != operation.expected) {
      *actual = entry->second;
      return ConditionFailedError("it has another value");
    }
    entry->second = operation.value;
    return absl::OkStatus();
  }
};

class LogEntryTest : public testing::Test {
 protected:
  static constexpr MemberId kSelf = {7, 77};

  void SetUp() override {
    for (int i = 0; i < 2; ++i) members_.push_back(world_.Join(1, 8));
    options_.moves = true;
    options_.log_id = kSelf.incarnation;
    log_ = world_.Create(session(), options_);
    entry_ = {.stamp = stamps_.Next(), .extent = options_.extent, .epoch = options_.epoch};
    table_.entries[Key()] = Encode(entry_);
    records_ = std::make_shared<Partition>();
    move_ = std::make_unique<LogMove>(
        LogMove::Parts{.self = kSelf,
                       .map = &table_,
                       .stamps = &stamps_,
                       .sources =
                           [this] {
                             return std::vector<LogMove::Source>{{1, records_}};
                           },
                       .kept_lsn = [] { return LogMove::kNoneKept; },
                       .find_extent = [this](OperationContext&, uint64_t bytes, ServerId without,
                                             ServerId) -> absl::StatusOr<LogExtent> {
                         without_ = without;
                         if (!has_room_) return absl::ResourceExhaustedError("it is full");
                         // Each one behind the last.
                         const uint64_t at = LogWorld::kLogAt + found_++ * (256 << 10);
                         asked_bytes_ = bytes;
                         return LogExtent{LogWorld::kOther, LogWorld::kLife, at, times_ * bytes};
                       }},
        &session().scheduler());
  }

  SessionContext& session(int i = 0) { return *members_[static_cast<size_t>(i)].sessions[0]; }
  static std::string Key() { return MemberKey(LogEntry::kKind, kSelf); }
  // Where the map says that the log is.
  LogEntry Named() {
    LogEntry entry;
    EXPECT_TRUE(Parse(table_.entries[Key()], &entry).ok());
    return entry;
  }
  // A record that is dirty, and its message.
  Lsn Append(RedoLog::Reservation room, const std::string& key) {
    std::lock_guard lock(records_->mutex());
    const Lsn lsn = log_->Append(std::move(room), {.tree_id = 1, .key = key, .value = "value"});
    records_->Put(key, "value", lsn);
    return lsn;
  }
  absl::Status Put(const std::string& key, int64_t timeout_ns = kSecondNs) {
    absl::Status status;
    LogWorld::Run(
        session(1),
        [&](OperationContext& context) {
          auto room = log_->Reserve(context, key.size(), 5);
          status = room.status();
          if (room.ok()) status = log_->AwaitDurable(context, Append(*std::move(room), key));
        },
        timeout_ns);
    return status;
  }
  absl::Status Move() {
    absl::Status status;
    LogWorld::Run(session(), [&](OperationContext& context) {
      status = move_->Run(context, log_.get(), &entry_);
    });
    return status;
  }
  void LoseServer() { log_->NoteServerGone(absl::UnavailableError("it is gone")); }
  // The keys that are found where the map says that the log is.
  std::vector<std::string> Read() {
    std::vector<std::string> keys;
    LogWorld::Run(session(1), [&](OperationContext& context) {
      const LogEntry named = Named();
      EXPECT_TRUE(ReadLog(context, named.extent, kSelf.incarnation, named.epoch,
                          [&](Lsn, const LogMessage& message) {
                            keys.emplace_back(message.key);
                            return absl::OkStatus();
                          })
                      .ok());
    });
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  LogWorld world_{{.seed = 5}};
  std::vector<LogWorld::Member> members_;
  RedoLog::Options options_ = LogWorld::OptionsOf(32 << 10, 1 << 10);
  StampSource stamps_{kSelf.incarnation};
  EntryTable table_;
  std::shared_ptr<Partition> records_;
  bool has_room_ = true;
  uint64_t found_ = 1;
  ServerId without_ = 0;  // as the last extent was looked for
  uint64_t asked_bytes_ = 0;
  uint64_t times_ = 1;  // as much as was asked for is given
  LogEntry entry_;
  std::unique_ptr<RedoLog> log_;
  std::unique_ptr<LogMove> move_;
};

TEST_F(LogEntryTest, NoRoomAnywhereEndsWhoWaitsUntilThereIsSome) {
  ASSERT_TRUE(Put("a").ok());
  absl::Status waits;
  LogWorld::Spawn(session(1), kSecondNs, [&](OperationContext& context) {
    auto room = log_->Reserve(context, 1, 5);
    ASSERT_TRUE(room.ok());
    const Lsn lsn = Append(*std::move(room), "b");
    LoseServer();
    waits = log_->AwaitDurable(context, lsn);
  });
  world_.Quiet();
  has_room_ = false;
  const absl::Status full = Move();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_TRUE(waits.ok()) << "it waits for a move";
  EXPECT_EQ(log_->durable(), 1u);
  log_->NoteStays(full);
  session(1).scheduler().Drain();
  EXPECT_TRUE(absl::IsUnavailable(waits)) << waits;
  EXPECT_TRUE(absl::IsUnavailable(Put("c"))) << "nobody waits for it now";
  EXPECT_EQ(Named(), entry_);
  EXPECT_EQ(table_.writes, 0);

  has_room_ = true;
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(without_, LogWorld::kServer);
  EXPECT_EQ(Named().extent.server, LogWorld::kOther);
  EXPECT_EQ(Named(), entry_);
  ASSERT_TRUE(Put("d").ok());
  // What was said to be unknown is there as well.
  EXPECT_THAT(Read(), ElementsAre("a", "b", "d"));
}

// Each attempt would take an extent that is nobody's until this member has ended.
TEST_F(LogEntryTest, AnEntryOutOfReachTakesNone) {
  ASSERT_TRUE(Put("a").ok());
  LoseServer();
  table_.is_gone = true;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const absl::Status status = Move();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
  EXPECT_EQ(found_, 1u);
  EXPECT_EQ(table_.writes, 0);
  table_.is_gone = false;
  ASSERT_TRUE(Move().ok());
  ASSERT_TRUE(Put("b").ok());
  EXPECT_THAT(Read(), ElementsAre("a", "b"));
}

TEST_F(LogEntryTest, AnEntryThatIsGoneOrAnothersTakesNone) {
  ASSERT_TRUE(Put("a").ok());
  LoseServer();
  LogEntry other = entry_;
  other.stamp = {99, 1};
  table_.entries[Key()] = Encode(other);
  const absl::Status taken = Move();
  EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
  table_.entries.erase(Key());
  const absl::Status gone = Move();
  EXPECT_TRUE(absl::IsFailedPrecondition(gone)) << gone;
  EXPECT_EQ(found_, 1u);
  EXPECT_EQ(table_.writes, 0);
}

// The entry names an extent that was given up: nothing was acknowledged since, and the next attempt
// begins with what the entry says.
TEST_F(LogEntryTest, AChangeOfUnknownOutcomeThatWasDone) {
  ASSERT_TRUE(Put("a").ok());
  const LogEntry first = entry_;
  LoseServer();
  table_.answers = EntryTable::Answers::kDoneUnsaid;
  const absl::Status unknown = Move();
  EXPECT_TRUE(IsOutcomeUnknown(unknown)) << unknown;
  EXPECT_EQ(entry_, first) << "as far as it knows";
  EXPECT_NE(Named(), first);
  EXPECT_TRUE(absl::IsUnavailable(log_->failure()));
  EXPECT_TRUE(log_->will_move());
  // Whoever recovers it now finds all that was acknowledged.
  EXPECT_THAT(Read(), ElementsAre("a"));
  EXPECT_FALSE(Put("b", kMillisecondNs).ok()) << "nothing is acknowledged before it is settled";
  EXPECT_EQ(log_->durable(), 1u);

  table_.answers = EntryTable::Answers::kWell;
  // It does not go back to the extent whose change it has settled: its chains may be in flight.
  const LogEntry second = Named();
  LogWorld::Run(session(), [&](OperationContext& context) {
    EXPECT_TRUE(move_->SettleEntry(context, &entry_).ok());
  });
  EXPECT_EQ(entry_, second);
  has_room_ = false;
  EXPECT_TRUE(absl::IsResourceExhausted(Move()));
  has_room_ = true;
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(without_, 0) << "the server of that extent is as good as any, also for later attempts";
  EXPECT_EQ(Named(), entry_);
  EXPECT_GT(entry_.epoch, second.epoch);
  ASSERT_TRUE(Put("c").ok());
  EXPECT_THAT(Read(), ElementsAre("a", "c"));
  LoseServer();
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(without_, LogWorld::kOther) << "that is where it has failed this time";
}

// Whoever holds the lock may be stopped for long: the first attempt has taken an extent, no other
// one does before the entry can be changed.
TEST_F(LogEntryTest, AnEntryThatCannotBeChangedTakesOne) {
  ASSERT_TRUE(Put("a").ok());
  const LogEntry first = entry_;
  LoseServer();
  table_.answers = EntryTable::Answers::kHeld;
  for (int attempt = 0; attempt < 4; ++attempt) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(Move()));
    EXPECT_EQ(found_, 2u);
  }
  EXPECT_EQ(Named(), first);
  EXPECT_TRUE(log_->will_move());
  EXPECT_EQ(log_->durable(), 1u);
  table_.answers = EntryTable::Answers::kWell;
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(found_, 3u);
  EXPECT_EQ(without_, LogWorld::kServer);
  EXPECT_EQ(Named(), entry_);
  ASSERT_TRUE(Put("b").ok());
  EXPECT_THAT(Read(), ElementsAre("a", "b"));
}

// A server may give more than was asked for, a piece that it has kept: no later one may be smaller,
// though the entry's is.
TEST_F(LogEntryTest, TheNextExtentIsAsLongAsTheLastThatFailed) {
  ASSERT_TRUE(Put("a").ok());
  LoseServer();
  times_ = 3;
  table_.answers = EntryTable::Answers::kHeld;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Move()));
  times_ = 1;
  table_.answers = EntryTable::Answers::kWell;
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(asked_bytes_, 3 * options_.extent.bytes);
  EXPECT_EQ(found_, 3u);
  ASSERT_TRUE(Put("b").ok());
  EXPECT_THAT(Read(), ElementsAre("a", "b"));
}

// A session writes a batch to the new extent and does not hear of its end; the service writes it
// again, and then the entry cannot be changed. What is complete is in no extent that a recovery
// reads.
TEST_F(LogEntryTest, AChainThatEndsAfterAFailedMoveMakesNothingDurable) {
  ASSERT_TRUE(Put("a").ok());
  // Two batches: the first one is the move's, the second the session's.
  constexpr std::array<Lsn, 2> kLastOfBatch = {4, 7};
  const std::string value(250, 'v');
  for (Lsn lsn = log_->next_lsn(); lsn <= kLastOfBatch.back(); ++lsn) {
    ASSERT_EQ(log_->TryAppend({.tree_id = 1, .key = "key", .value = value}), lsn);
  }
  LoseServer();
  std::array<absl::Status, 2> waits;
  for (size_t i = 0; i < waits.size(); ++i) {
    LogWorld::Spawn(session(1), 10 * kMillisecondNs, [&, i](OperationContext& context) {
      waits[i] = log_->AwaitDurable(context, kLastOfBatch[i]);
    });
  }
  world_.world().RunUntil(world_.NowNs() + kMillisecondNs);
  const Lsn last = kLastOfBatch.back();
  bool moves = true;
  LogWorld::Spawn(session(), kSecondNs, [&](OperationContext& context) {
    for (; moves; context.session.scheduler().SleepUntil(world_.NowNs() + 20 * kMicrosecondNs)) {
      (void)log_->Tend(context);
    }
  });
  Lsn complete_at_commit = 0;
  LogWorld::Run(session(), [&](OperationContext& context) {
    const LogExtent extent = {LogWorld::kOther, LogWorld::kLife, LogWorld::kLogAt,
                              options_.extent.bytes};
    const auto again = [&] {
      const absl::Status first = log_->AwaitComplete(context, 2);
      context.session.scheduler().SleepUntil(world_.NowNs() + 200);
      world_.world().PauseFabric(*members_[1].fabric);
      return first;
    };
    const auto commit = [&]() -> absl::Status {
      complete_at_commit = last;
      return absl::UnavailableError("the cluster tree cannot be reached");
    };
    EXPECT_TRUE(
        absl::IsUnavailable(log_->Move(context, extent, options_.epoch + 1, again, commit)));
    moves = false;
  });
  ASSERT_EQ(complete_at_commit, last) << "all was complete in the new extent";
  EXPECT_GE(log_->counters().written_again, 1u) << "by the service";
  EXPECT_EQ(log_->durable(), 1u);
  world_.world().ResumeFabric(*members_[1].fabric);
  session(1).scheduler().Drain();
  EXPECT_EQ(log_->durable(), 1u);
  for (const absl::Status& status : waits) EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_F(LogEntryTest, AChangeOfUnknownOutcomeThatWasNotDone) {
  ASSERT_TRUE(Put("a").ok());
  const LogEntry first = entry_;
  LoseServer();
  table_.answers = EntryTable::Answers::kLostUnsaid;
  EXPECT_TRUE(IsOutcomeUnknown(Move()));
  EXPECT_TRUE(IsOutcomeUnknown(Move())) << "it is settled before anything else is tried";
  EXPECT_EQ(found_, 2u) << "so there is no other extent yet";
  EXPECT_EQ(Named(), first);
  EXPECT_EQ(log_->durable(), 1u);
  table_.answers = EntryTable::Answers::kWell;
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(Named(), entry_);
  ASSERT_TRUE(Put("b").ok());
  EXPECT_THAT(Read(), ElementsAre("a", "b"));
}

// This member was taken for dead meanwhile, and who recovers it has the entry.
TEST_F(LogEntryTest, AnEntryThatSomebodyElseHasTaken) {
  for (const bool erased : {true, false}) {
    ASSERT_TRUE(Put("a").ok());
    const Lsn durable = log_->durable();
    LoseServer();
    table_.answers = EntryTable::Answers::kLostUnsaid;
    EXPECT_TRUE(IsOutcomeUnknown(Move()));
    table_.answers = EntryTable::Answers::kWell;
    LogEntry other = entry_;
    other.stamp = {99, 1};
    if (erased) {
      table_.entries.erase(Key());
    } else {
      table_.entries[Key()] = Encode(other);
    }
    const absl::Status taken = Move();
    EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
    EXPECT_EQ(log_->durable(), durable) << "nothing more is acknowledged";
    log_->NoteStays(taken);
    EXPECT_TRUE(absl::IsUnavailable(Put("b")));
    if (!erased) break;
    // The same once more, with another entry.
    table_.entries[Key()] = Encode(entry_);
    ASSERT_TRUE(Move().ok());
  }
}

}  // namespace
}  // namespace pando

#include "compute/log/redo_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/log/log_waiter.h"

namespace pando {
namespace {

// Messages that make a second batch worth it (rule W3).
constexpr uint32_t kSecondBatchMessages = 8;
constexpr int kInFlightMax = 2;
// Chain times after which a session does not poll (rule W3).
constexpr int64_t kPatienceChains = 8;
// A batch takes no more of the ring than that, so that what it has fits, appended again, into what
// the ring keeps for that (rule W5); but any message fits a batch.
constexpr uint32_t kBatchesInRing = 32;
constexpr uint32_t kBatchesInRingMin = 8;

LogPlace FirstPlace(const RedoLog::Options& options) {
  return {.log_id = options.log_id, .epoch = options.epoch, .lsn = options.first_lsn};
}

// InvalidArgument: why they do not fit together.
absl::StatusOr<LogRing::Shape> ShapeOf(const RedoLog::Options& options) {
  const LogExtent& extent = options.extent;
  if (options.log_id == 0 || options.first_lsn == kNoLsn) {
    return absl::InvalidArgumentError("a redo log needs an id and a first LSN, neither of them 0");
  }
  if ((extent.offset | extent.bytes) % kLogLineBytes != 0 || extent.bytes < 2 * kLogRingOffset) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a redo log of ", extent.bytes, " bytes at ", extent.offset,
        ": neither may be anything but lines of ", kLogLineBytes, " bytes, and 4 are too few"));
  }
  const uint64_t ring_bytes = extent.bytes - kLogRingOffset;
  // A filler takes one of a chain's verbs.
  const uint64_t chain_bytes = uint64_t{options.packet_bytes} * (Chain::kMaxVerbs - 1);
  const uint64_t message_bytes = LogRing::CostOf(LogMessageBytes(255, 255));
  const uint64_t of_ring = std::min(std::max(ring_bytes / kBatchesInRing, message_bytes),
                                    ring_bytes / kBatchesInRingMin);
  const uint64_t most =
      std::min<uint64_t>({options.batch_bytes_max, of_ring, chain_bytes, kLogBatchBytesMax});
  const auto batch_bytes = static_cast<uint32_t>(most / kLogLineBytes * kLogLineBytes);
  if (batch_bytes < message_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a redo log of ", extent.bytes, " bytes with batches of up to ", batch_bytes,
                     " has no room for a message: take a larger extent"));
  }
  return LogRing::Shape{ring_bytes, batch_bytes};
}

}  // namespace

RedoLog::RedoLog(const Options& options, const LogRing::Shape& shape)
    : options_(options),
      extent_(options.extent),
      epoch_(options.epoch),
      ring_(shape, FirstPlace(options)),
      capacity_(ring_.capacity_bytes()),
      durable_(options.first_lsn - 1),
      base_(options.first_lsn) {}

RedoLog::~RedoLog() {
  PANDO_CHECK(durable_waiters_.empty() && room_waiters_.empty() && base_waiters_.empty() &&
              writers_ == 0)
      << "a session still uses the redo log";
  PANDO_CHECK_EQ(reservations_, 0u) << "a reservation outlives its redo log";
}

bool RedoLog::will_move() const {
  Lock lock(mutex_);
  return WillMove();
}

bool RedoLog::is_in_place() const {
  Lock lock(mutex_);
  return failure_.ok() && !moving_;
}

bool RedoLog::idle() const {
  Lock lock(mutex_);
  return durable_waiters_.empty() && room_waiters_.empty() && base_waiters_.empty() &&
         writers_ == 0 && reservations_ == 0 && ring_.durable() + 1 == ring_.next_lsn();
}

absl::StatusOr<std::unique_ptr<RedoLog>> RedoLog::Create(OperationContext& context,
                                                         const Options& options) {
  PANDO_ASSIGN_OR_RETURN(const LogRing::Shape shape, ShapeOf(options));
  std::unique_ptr<RedoLog> log(new RedoLog(options, shape));
  Lock lock(log->mutex_);
  const LogBaseLine first = {.sequence = 1, .lsn = options.first_lsn, .place = FirstPlace(options)};
  if (absl::Status status = log->WriteBaseLine(lock, context, first); !status.ok()) {
    lock.unlock();  // it goes before the log does
    return Annotate(status, "creating a redo log");
  }
  lock.unlock();
  return log;
}

// --- Room.

absl::StatusOr<RedoLog::Reservation> RedoLog::Reserve(OperationContext& context, size_t key_bytes,
                                                      size_t value_bytes, Purpose purpose) {
  const uint64_t cost = LogRing::CostOf(LogMessageBytes(key_bytes, value_bytes));
  const bool last = purpose != Purpose::kWrite;
  Lock lock(mutex_);
  if (!failure_.ok() && !WillMove()) return failure_;
  // A waiter is not overtaken, except by a message that may use the last of the room.
  if (GivesRoom(purpose) && (last || room_waiters_.empty()) && ring_.TryPromise(cost, last)) {
    ++reservations_;
    return Reservation(this, cost);
  }
  const auto waiter = std::make_shared<Waiter>(&context.session.scheduler());
  waiter->cost = cost;
  waiter->purpose = purpose;
  while (true) {
    room_waiters_.push_back(waiter);
    // After a failure it was in no queue for a while: the log may have moved, and given room.
    GiveRoomNow(lock);
    if (waiter->granted) break;
    const bool woken = Park(lock, &room_waiters_, waiter, context.deadline_ns());
    if (waiter->granted) break;
    if (!failure_.ok() && !WillMove()) return failure_;
    if (woken) continue;
    GiveRoomNow(lock);  // who comes next may need less
    return context.DeadlineError(
        "waiting for room in the redo log: its records are flushed too slowly");
  }
  return Reservation(this, cost);
}

void RedoLog::Return(uint64_t cost) {
  Lock lock(mutex_);
  ring_.TakeBack(cost);
  --reservations_;
  GiveRoomNow(lock);
}

void RedoLog::GiveRoomNow(Lock& lock) {
  Wakes wakes;
  GiveRoom(&wakes);
  Wake(lock, wakes);
}

void RedoLog::GiveRoom(Wakes* wakes) {
  bool writers_wait = false;
  for (auto at = room_waiters_.begin(); at != room_waiters_.end();) {
    Waiter& waiter = **at;
    const bool last = waiter.purpose != Purpose::kWrite;
    const bool may = GivesRoom(waiter.purpose) && (last || !writers_wait);
    if (!may || !ring_.TryPromise(waiter.cost, last)) {
      writers_wait = writers_wait || !last;
      ++at;
      continue;
    }
    ++reservations_;
    waiter.granted = true;
    wakes->push_back(std::move(*at));
    at = room_waiters_.erase(at);
  }
}

Lsn RedoLog::Append(Reservation reservation, const LogMessage& message) {
  PANDO_CHECK(reservation.log_ == this) << "appended without a reservation";
  const uint64_t cost = std::exchange(reservation.cost_, 0);
  reservation.log_ = nullptr;
  PANDO_CHECK_LE(LogRing::CostOf(LogMessageBytes(message.key.size(), message.value.size())), cost);
  Lock lock(mutex_);
  --reservations_;
  return ring_.Append(message, cost);
}

std::optional<Lsn> RedoLog::TryAppend(const LogMessage& message, Purpose purpose) {
  const uint64_t cost = LogRing::CostOf(LogMessageBytes(message.key.size(), message.value.size()));
  const bool last = purpose != Purpose::kWrite;
  Lock lock(mutex_);
  if (!GivesRoom(purpose) || (!last && !room_waiters_.empty()) || !ring_.TryPromise(cost, last)) {
    return std::nullopt;
  }
  return ring_.Append(message, cost);
}

// --- Turns and waiting.

bool RedoLog::MayWrite() const {
  if (!failure_.ok() || suspects_ > 0 || ring_.in_flight() >= kInFlightMax) return false;
  if (ring_.FirstClosed() != nullptr) return true;
  return ring_.open_messages() >= (ring_.in_flight() == 0 ? 1 : kSecondBatchMessages);
}

RedoLog::Turn RedoLog::TakeTurn(OperationContext& context) {
  turn_ns_ = context.session.NowNs();
  return turn_ = ++last_turn_;
}

absl::Status RedoLog::AwaitBatch(OperationContext& context, Lsn lsn, bool moving) {
  Scheduler& scheduler = context.session.scheduler();
  // One of this session is about to write, and runs before this one does again. Where a chain is
  // done at once that is all: no place in a queue, no timer, no wake-up.
  if (!moving && yielding_.load(std::memory_order_relaxed) == &scheduler) {
    scheduler.Yield();
    if (durable() >= lsn) return absl::OkStatus();
  }
  std::shared_ptr<Waiter> waiter;
  Turn turn = 0;
  absl::Status status;
  Lock lock(mutex_);
  PANDO_CHECK_LT(lsn, ring_.next_lsn()) << "this LSN was never appended";
  while (status.ok() && Complete(moving) < lsn) {
    // The service has taken it, and may be done with its batch.
    if (turn != turn_ && RuleHolds(Rule::kW3Turn)) turn = 0;
    if (!failure_.ok() && (moving || !WillMove())) {
      status = failure_;
    } else if (turn != 0 && turn == turn_ && MayWrite()) {
      turn = turn_ = 0;
      status = WriteNext(lock, context);
      if (!moving && WillMove()) status = absl::OkStatus();
    } else if (turn == 0 && turn_ == 0 && MayWrite() && ring_.FirstUnposted() <= lsn) {
      turn = TakeTurn(context);
      yielding_.store(&scheduler, std::memory_order_relaxed);
      lock.unlock();
      scheduler.Yield();  // what others append now goes along
      lock.lock();
      yielding_.store(nullptr, std::memory_order_relaxed);
    } else {
      if (turn == turn_) turn_ = 0;  // rule W4: not now
      if (waiter == nullptr) waiter = std::make_shared<Waiter>(&scheduler);
      ++counters_.parked;
      waiter->lsn = lsn;
      waiter->moving = moving;
      waiter->turn = 0;
      const auto after =
          std::upper_bound(durable_waiters_.begin(), durable_waiters_.end(), lsn,
                           [](Lsn of, const auto& other) { return of < other->lsn; });
      durable_waiters_.insert(after, waiter);
      const bool woken = Park(lock, &durable_waiters_, waiter, context.deadline_ns());
      turn = waiter->turn;
      if (!woken && Complete(moving) < lsn)
        status = context.DeadlineError("waiting for the redo log");
    }
  }
  if (turn != 0 && turn == turn_) {
    turn_ = 0;
    Wakes wakes;
    GiveTurn(context, &wakes);
    Wake(lock, wakes);
  }
  return Complete(moving) >= lsn ? absl::OkStatus() : status;
}

bool RedoLog::Park(Lock& lock, Waiters* queue, const std::shared_ptr<Waiter>& waiter,
                   int64_t deadline_ns) {
  lock.unlock();
  const bool woken = waiter->parking.ParkUntil(deadline_ns);
  lock.lock();
  // A waker takes the waiter out of the queue; a deadline does not.
  if (!woken) std::erase(*queue, waiter);
  return woken;
}

void RedoLog::GiveTurn(OperationContext& context, Wakes* wakes) {
  if (turn_ != 0 || !MayWrite() || !RuleHolds(Rule::kW3Turn)) return;
  const Lsn first = ring_.FirstUnposted();
  const auto next = std::find_if(durable_waiters_.begin(), durable_waiters_.end(),
                                 [first](const auto& waiter) { return waiter->lsn >= first; });
  if (next == durable_waiters_.end()) return;
  (*next)->turn = TakeTurn(context);
  wakes->push_back(std::move(*next));
  durable_waiters_.erase(next);
}

void RedoLog::WakeDurable(Wakes* wakes) {
  if (moving_) {
    std::erase_if(durable_waiters_, [&](std::shared_ptr<Waiter>& waiter) {
      const bool done = waiter->moving && waiter->lsn <= ring_.durable();
      if (done) wakes->push_back(waiter);
      return done;
    });
    return;
  }
  durable_.store(ring_.durable(), std::memory_order_release);
  while (!durable_waiters_.empty() && durable_waiters_.front()->lsn <= durable()) {
    wakes->push_back(std::move(durable_waiters_.front()));
    durable_waiters_.pop_front();
  }
}

void RedoLog::Fail(const absl::Status& why, Wakes* wakes) {
  if (!failure_.ok()) return;
  const bool is_over = absl::IsFailedPrecondition(why);  // this client is cut off
  failure_ =
      Annotate(is_over ? why : absl::UnavailableError(why.message()), "the redo log has failed");
  PANDO_LOG(ERROR) << failure_;
  TakeAll(wakes);
}

void RedoLog::TakeAll(Wakes* wakes) {
  for (Waiters* queue : {&durable_waiters_, &room_waiters_, &base_waiters_}) {
    for (auto& waiter : *queue) wakes->push_back(std::move(waiter));
    queue->clear();
  }
}

void RedoLog::NoteServerGone(const absl::Status& why) {
  Lock lock(mutex_);
  Wakes wakes;
  Fail(absl::UnavailableError(why.message()), &wakes);
  Wake(lock, wakes);
}

void RedoLog::NoteStays(const absl::Status& why) {
  Lock lock(mutex_);
  if (!absl::IsUnavailable(failure_)) return;
  stays_ = true;
  failure_ = absl::UnavailableError(absl::StrCat(
      "the redo log's memory server is gone, and the log cannot go on at another one: ",
      why.message()));
  Wakes wakes;
  TakeAll(&wakes);
  Wake(lock, wakes);
}

void RedoLog::Wake(Lock& lock, const Wakes& wakes) {
  if (wakes.empty()) return;
  lock.unlock();
  for (const std::shared_ptr<Waiter>& waiter : wakes) waiter->parking.Unpark();
  lock.lock();
}

absl::Status RedoLog::Tend(OperationContext& context) {
  Lock lock(mutex_);
  if (failure_.ok() && context.session.fenced()) {
    // Nothing is written any more, so waiting for room would be in vain.
    Wakes wakes;
    Fail(FencedError(), &wakes);
    Wake(lock, wakes);
  }
  if (!failure_.ok()) return failure_;
  const int64_t late_ns = context.session.NowNs() - kPatienceChains * context.session.chain_ns();
  if (turn_ != 0 && turn_ns_ <= late_ns && MayWrite()) {
    ++counters_.turns_taken;
    turn_ = 0;
    return WriteNext(lock, context);
  }
  // Whoever has appended it waits no more: it would not be durable, nor its record flushed (rule
  // B5), until somebody comes by.
  const bool nobody_waits =
      durable_waiters_.empty() || durable_waiters_.back()->lsn < ring_.FirstUnposted();
  if (turn_ == 0 && nobody_waits && MayWrite()) return WriteNext(lock, context);
  const std::shared_ptr<LogBatch> batch = ring_.OldestInFlight();
  if (batch == nullptr || batch->posted_ns > late_ns) return absl::OkStatus();
  ++counters_.written_again;
  return WriteBatch(lock, context, batch);
}

// --- What others ask.

Lsn RedoLog::next_lsn() const {
  std::lock_guard lock(mutex_);
  return ring_.next_lsn();
}

Lsn RedoLog::base() const {
  std::lock_guard lock(mutex_);
  return base_;
}

absl::Status RedoLog::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

uint64_t RedoLog::extent_bytes() const {
  std::lock_guard lock(mutex_);
  return extent_.bytes;
}

uint64_t RedoLog::used_bytes() const {
  std::lock_guard lock(mutex_);
  return ring_.used_bytes() + ring_.promised_bytes();
}

LogCounters RedoLog::counters() const {
  std::lock_guard lock(mutex_);
  LogCounters counters = counters_;
  counters.padding_bytes = ring_.padding_bytes();
  return counters;
}

}  // namespace pando

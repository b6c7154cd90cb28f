#include "compute/owner/flush_ends.h"

#include <memory>
#include <mutex>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "compute/owner/member.h"

namespace pando {

FlushEnds::~FlushEnds() { PANDO_CHECK_EQ(count_, 0u) << "what was collected comes back"; }

void FlushEnds::Add(size_t item, FlushResult result) {
  const uint64_t hash = HashOf(items_[item].key);
  range_.partition.Prefetch(hash);
  ends_[count_++] = {item, result, hash};
  if (count_ == kAHold) EndAll();
}

void FlushEnds::EndAll() {
  if (count_ == 0) return;
  Partition& partition = range_.partition;
  std::unique_lock lock(partition.mutex());
  // Before the records may go from where they are: until then nothing of their keys follows.
  if (range_.behind != nullptr && RuleHolds(Rule::kO10Behind)) [[unlikely]] {
    const std::shared_ptr<Partition> behind = range_.behind;
    lock.unlock();
    ForgetIn(behind.get());
    lock.lock();
  }
  for (size_t i = 0; i < count_; ++i) partition.PrefetchRecord(ends_[i].hash);
  const Member::Sizes before = Member::SizesOf(partition);
  range_.Charge(session_, /*records=*/count_);
  for (size_t i = 0; i < count_; ++i) {
    partition.EndFlush(items_[ends_[i].item], ends_[i].result, ends_[i].hash);
  }
  member_.NoteChange(before, partition);
  count_ = 0;
}

void FlushEnds::GiveBack() {
  for (size_t i = 0; i < items_.size(); ++i) Add(i, FlushResult::kFailed);
  EndAll();
}

void FlushEnds::ForgetIn(Partition* behind) {
  const std::lock_guard lock(behind->mutex());
  const Member::Sizes before = Member::SizesOf(*behind);
  for (size_t i = 0; i < count_; ++i) behind->Forget(items_[ends_[i].item].key);
  member_.NoteChange(before, *behind);
}

}  // namespace pando

// The ranges of other owners that this client may read from their leaves (rule O15), and those that
// it was not lent.
//
// Thread safety: thread-safe; a look takes no lock. Invariants:
//   1. A lease counts from before the request was sent, by the serving lease's clock, which goes on
//      while a machine is suspended. So it ends before the owner takes it for over.
//   2. Look first, READ then: what was READ before may be older than what the lease says.
//   3. Leases stay as long as the tree is open: a look may hold one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "compute/owner/until.h"

namespace pando {

// Reads of a range, as far as they say whether it is worth while to ask its owner for it: that
// costs as much as one read does there.
class ReadCount {
 public:
  static constexpr uint32_t kWorthIt = 8;

  // One more. Contends with nobody once there are enough.
  void Note() {
    if (!IsWorthIt()) reads_.fetch_add(1, std::memory_order_relaxed);
  }
  bool IsWorthIt() const { return reads_.load(std::memory_order_relaxed) >= kWorthIt; }
  // True: the caller asks, and nobody else does, until there are so many anew.
  bool Take() {
    uint32_t reads = reads_.load(std::memory_order_relaxed);
    return reads >= kWorthIt && reads_.compare_exchange_strong(reads, 0);
  }

 private:
  std::atomic<uint32_t> reads_{0};
};

// Of one range, as its owner has said what belongs to it.
struct ReadLease {
  ReadLease(std::string_view low, std::string_view high) : low(low), high(high) {}

  bool Covers(std::string_view key) const { return key >= low && (high.empty() || key < high); }

  const std::string low, high;
  Until held, fresh;  // fresh: nobody need ask again yet
  Until refused;      // nor, where it is not lent, before then
  ReadCount reads;    // since the owner was asked last
};

class ReadLeases {
 public:
  explicit ReadLeases(const Clock* clock) : clock_(*clock) {}
  ReadLeases(const ReadLeases&) = delete;
  ReadLeases& operator=(const ReadLeases&) = delete;

  // nullptr: nothing is known of the key's range.
  ReadLease* Find(std::string_view key) const;
  // Its owner was asked first at `sent_ns`, and has lent it for so long, or not. An answer that
  // comes late counts as a refusal: who lends so slowly should not be asked all the time.
  ReadLease* Learn(std::string_view low, std::string_view high, bool lent, int64_t sent_ns,
                   int64_t lease_ns);
  // Its owner has not lent it, or did not answer.
  void NoteRefused(ReadLease* lease, int64_t lease_ns);
  // Its leaves cannot be READ.
  void NoteUnreadable(ReadLease* lease, int64_t lease_ns);
  // Of ranges of which nothing is known.
  ReadCount& reads() { return reads_; }
  int64_t NowNs() const { return clock_.NowNs(); }
  const Clock& clock() const { return clock_; }

 private:
  using List = std::vector<ReadLease*>;  // ascending; of no key are there two

  ReadLease* Add(std::string_view low, std::string_view high);

  const Clock& clock_;
  std::atomic<const List*> list_{nullptr};
  ReadCount reads_;
  std::mutex mutex_;
  // Whatever a session may still look at: one more for each range that changes.
  std::vector<std::unique_ptr<const List>> all_lists_;
  std::vector<std::unique_ptr<ReadLease>> all_leases_;
};

}  // namespace pando

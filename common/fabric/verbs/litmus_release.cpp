#include "common/fabric/verbs/litmus_release.h"

#include <sched.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/verbs/litmus_requester.h"

namespace pando {
namespace {

constexpr uint64_t kDataBytes = 4096;
constexpr uint32_t kWords = kLitmusImageBytesMax / sizeof(uint64_t);

// One of those who take the lock, look at the data, write the next number all over them, and
// release.
class Taker {
 public:
  // `written`: the last number that anybody wrote, or is about to.
  Taker(LitmusRequester* requester, const RemoteSpace& lock, const RemoteSpace& data,
        uint64_t token, std::atomic<uint64_t>* written, ReleaseLitmus* counts)
      : requester_(*requester),
        lock_(lock),
        data_(data),
        token_(token),
        written_(*written),
        counts_(*counts) {}

  absl::Status Run() {
    requester_.Clear();
    requester_.SetTarget(lock_);
    requester_.CompareSwap(0, token_);
    requester_.SetTarget(data_);
    requester_.Read(kLitmusImageBytesMax);
    PANDO_RETURN_IF_ERROR(requester_.Execute());
    if (requester_.word(0) != 0) {
      sched_yield();
      return absl::OkStatus();
    }
    // Nobody else writes while the lock is ours.
    const uint64_t number = written_.load();
    ++counts_.taken;
    counts_.stale += Shows(number) ? 0 : 1;
    written_.store(number + 1);
    return WriteAndRelease(number + 1);
  }

 private:
  bool Shows(uint64_t number) const {
    for (uint32_t i = 0; i < kWords; ++i) {
      uint64_t word;
      std::memcpy(&word, requester_.slot(1) + i * sizeof(word), sizeof(word));
      if (word != number) return false;
    }
    return true;
  }
  absl::Status WriteAndRelease(uint64_t number) {
    for (uint32_t i = 0; i < kWords; ++i) {
      std::memcpy(requester_.slot(0) + i * sizeof(number), &number, sizeof(number));
    }
    requester_.Clear();
    requester_.SetTarget(data_);
    requester_.Write(kLitmusImageBytesMax);
    requester_.SetTarget(lock_);
    if (counts_.release == ReleaseVerb::kWrite) {
      std::memset(requester_.slot(1), 0, sizeof(uint64_t));
      requester_.Write(sizeof(uint64_t));
    } else {
      requester_.CompareSwap(token_, 0);
    }
    return requester_.Execute();
  }

  LitmusRequester& requester_;
  const RemoteSpace lock_, data_;
  const uint64_t token_;
  std::atomic<uint64_t>& written_;
  ReleaseLitmus& counts_;
};

}  // namespace

absl::StatusOr<ReleaseLitmus> TestRelease(const std::shared_ptr<VerbsDevice>& device,
                                          const LockSpace& lock, ReleaseVerb release,
                                          const LitmusOptions& options) {
  PANDO_ASSIGN_OR_RETURN(const RegisteredMemory memory,
                         RegisteredMemory::Create(*device, kDataBytes, {.remote = true}));
  const RemoteSpace data = {reinterpret_cast<uintptr_t>(memory.data()), kDataBytes,
                            memory.remote_key()};
  // The other test may have left its lock taken where a release was undone.
  PANDO_ASSIGN_OR_RETURN(LitmusRequesters requesters,
                         MakeLitmusRequesters(device, lock.space(), options.rivals + 1));
  PANDO_ASSIGN_OR_RETURN(const uint64_t left, requesters[0]->ExecuteCompareSwap(0, 0));
  if (left != 0) PANDO_RETURN_IF_ERROR(requesters[0]->ExecuteCompareSwap(left, 0).status());
  std::atomic<uint64_t> written = 0;
  std::vector<ReleaseLitmus> counts(requesters.size(),
                                    {.on_chip = lock.on_chip(), .release = release});
  std::vector<Taker> takers;
  for (size_t i = 0; i < requesters.size(); ++i) {
    takers.emplace_back(requesters[i].get(), lock.space(), data, i + 1, &written, &counts[i]);
  }
  const auto others = [&](size_t index) { return takers[index + 1].Run(); };
  const auto main = [&] {
    const int64_t end_ns = RealClock().NowNs() + options.test_ms * kMillisecondNs;
    absl::Status status;
    while (status.ok() && RealClock().NowNs() < end_ns) status = takers[0].Run();
    return status;
  };
  PANDO_RETURN_IF_ERROR(RunBeside(requesters.size() - 1, others, main));
  ReleaseLitmus all = counts[0];
  for (size_t i = 1; i < counts.size(); ++i) {
    all.taken += counts[i].taken;
    all.stale += counts[i].stale;
  }
  return all;
}

}  // namespace pando

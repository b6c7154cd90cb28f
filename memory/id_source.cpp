#include "memory/id_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace pando::memory {
namespace {

constexpr int64_t kStartOf2024 = 1'704'067'200;
constexpr uint64_t kRandomRange = uint64_t{1} << 28;
// Keeping a mark may take a while, and joins wait for it.
constexpr uint32_t kTryEvery = IdSource::kBlock / 16;

}  // namespace

IdSource::IdSource(uint32_t first, KeepIdMark keep)
    : first_(std::max(first, 1u)),
      keep_(std::move(keep)),
      next_(first_),
      mark_(keep_ == nullptr ? UINT32_MAX : first_),
      try_again_(first_) {}

absl::StatusOr<uint32_t> IdSource::Peek() {
  if (next_ == UINT32_MAX)
    return absl::ResourceExhaustedError("all ids of this catalog are used up");
  // In good time, so that a registry that is away for a while is not noticed.
  const bool is_due = mark_ - std::min(mark_, next_) < IdSource::kBlock / 2;
  if (mark_ != UINT32_MAX && (next_ >= mark_ || (is_due && next_ >= try_again_))) {
    const absl::Status kept = KeepMark();
    if (!kept.ok() && next_ >= mark_) {
      return absl::UnavailableError(
          absl::StrCat("no identities and tree ids are given out, since the registry cannot keep "
                       "how far they have come: ",
                       kept.message()));
    }
  }
  return next_;
}

absl::Status IdSource::KeepMark() {
  const uint32_t mark = UINT32_MAX - next_ > kBlock ? next_ + kBlock : UINT32_MAX;
  const absl::Status kept = keep_(mark);
  if (kept.ok()) {
    mark_ = mark;
  } else {
    PANDO_LOG(WARNING) << "the registry does not keep which ids were given out: " << kept;
  }
  try_again_ = UINT32_MAX - next_ > kTryEvery ? next_ + kTryEvery : UINT32_MAX;
  return kept;
}

void IdSource::RaiseAbove(uint32_t floor, bool proved) {
  if (floor == UINT32_MAX || !(proved || IsBelievable(floor))) return;
  next_ = std::max(next_, floor + 1);
}

uint32_t FirstIdWithoutMark(int64_t unix_seconds, uint64_t random) {
  // A number a second is more than clients and trees take in the long run.
  const int64_t seconds = std::clamp<int64_t>(unix_seconds - kStartOf2024, 0, int64_t{1} << 30);
  return static_cast<uint32_t>(seconds) + static_cast<uint32_t>(random % kRandomRange) + 1;
}

}  // namespace pando::memory

#include "compute/client/cursor_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

constexpr size_t kAheadFirst = 2, kAheadMost = 16;

}  // namespace

absl::Status CheckCursorOptions(const CursorOptions& options) {
  if (options.read_ahead < 0 || options.read_ahead > CursorOptions::kReadAheadMax) {
    return absl::InvalidArgumentError(absl::StrCat("a read_ahead of ", options.read_ahead,
                                                   " leaves; it is 0..",
                                                   CursorOptions::kReadAheadMax));
  }
  return absl::OkStatus();
}

CursorImpl::CursorImpl(SessionImpl* session, const Tree& tree, const CursorOptions& options)
    : session_(*session),
      tree_(tree),
      options_(options),
      range_(RangeOf(options, ImplOf(tree).context().layout.key_bytes_max())),
      refusal_(CheckCursorOptions(options)),
      status_(refusal_),
      reader_(ImplOf(tree).routed().NewReader()),
      leaves_ahead_(kAheadFirst) {
  session_.AddCursor();
  (void)StandAt(options_.reverse ? range_.high : range_.low);
}

CursorImpl::~CursorImpl() { session_.RemoveCursor(); }

bool CursorImpl::StandAt(const KeyCut& place) {
  low_ = high_ = std::clamp(place, range_.low, std::max(range_.low, range_.high));
  count_ = at_ = 0;
  valid_ = false;
  rank_ = 0;
  leaves_ahead_ = kAheadFirst;
  status_ = refusal_;
  return refusal_.ok();
}

bool CursorImpl::SeekToLast() {
  if (!StandAt(options_.reverse ? range_.low : range_.high) || options_.limit == 0) return false;
  rank_ = 1;  // what Prev() finds is the first of those that the limit counts
  return Prev();
}

bool CursorImpl::Seek(std::string_view key) {
  const uint32_t bytes_max = ImplOf(tree_).context().layout.key_bytes_max();
  return StandAt(KeyCut::At(key, /*after=*/options_.reverse, bytes_max)) && Next();
}

bool CursorImpl::Next() {
  if (valid_) ++rank_;
  if (rank_ < 0 || static_cast<uint64_t>(rank_) < options_.limit) return Move(!options_.reverse);
  // The limit is reached: the place is behind the entry.
  if (valid_ && !options_.reverse) ++at_;
  valid_ = false;
  status_ = refusal_;
  return false;
}

bool CursorImpl::Prev() {
  if (Move(options_.reverse)) --rank_;
  return valid_;
}

const LeafEntry& CursorImpl::entry() const {
  PANDO_CHECK(valid_) << "the cursor is not on an entry: look at Valid() first";
  return entries_[at_];
}

bool CursorImpl::Move(bool up) {
  if (valid_ && up) ++at_;
  valid_ = false;
  status_ = refusal_;
  if (!status_.ok()) return false;
  const auto none_left = [&] { return up ? at_ == count_ : at_ == 0; };
  const auto at_border = [&] { return up ? high_ >= range_.high : low_ <= range_.low; };
  if (none_left() && !at_border()) {
    status_ = session_.Perform(tree_, options_.operation, [&](OperationContext& context) {
      for (bool first = true; none_left() && !at_border(); first = false) {
        if (!first && context.expired()) return context.DeadlineError("looking for the next entry");
        PANDO_RETURN_IF_ERROR(Fetch(context, up));
      }
      return absl::OkStatus();
    });
    if (!status_.ok()) return false;
  }
  if (none_left()) return false;
  if (!up) --at_;
  return valid_ = true;
}

size_t CursorImpl::LeavesToRead(bool up) {
  if (up != last_up_) leaves_ahead_ = kAheadFirst;
  last_up_ = up;
  size_t leaves = leaves_ahead_;
  leaves_ahead_ = std::min(kAheadMost, leaves_ahead_ * 2);
  if (options_.read_ahead > 0) leaves = static_cast<size_t>(options_.read_ahead);
  if (up == options_.reverse) return leaves;  // Prev() has no limit
  const size_t left = options_.limit - static_cast<size_t>(std::max<int64_t>(rank_, 0));
  return std::min(leaves, ImplOf(tree_).routed().LeavesFor(left));
}

absl::Status CursorImpl::Fetch(OperationContext& context, bool up) {
  const KeyCut from = up ? high_ : low_;
  reader_.Start(from, up ? range_.high : range_.low, /*down=*/!up);
  size_t fetched = 0;
  PANDO_RETURN_IF_ERROR(reader_.Read(context, LeavesToRead(up), [&](LeafEntry& entry) {
    if (fetched == entries_.size()) entries_.emplace_back();
    std::swap(entries_[fetched++], entry);
    return true;
  }));
  count_ = fetched;
  (up ? low_ : high_) = from;
  (up ? high_ : low_) = reader_.at();
  if (!up) std::reverse(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count_));
  at_ = up ? 0 : count_;
  return absl::OkStatus();
}

// --- The public class

Cursor::Cursor(std::unique_ptr<CursorImpl> impl) : impl_(std::move(impl)) {}
Cursor::~Cursor() = default;
bool Cursor::SeekToFirst() { return impl_->SeekToFirst(); }
bool Cursor::SeekToLast() { return impl_->SeekToLast(); }
bool Cursor::Seek(std::string_view key) { return impl_->Seek(key); }
bool Cursor::Next() { return impl_->Next(); }
bool Cursor::Prev() { return impl_->Prev(); }
bool Cursor::Valid() const { return impl_->valid(); }
std::string_view Cursor::key() const { return impl_->entry().key; }
std::string_view Cursor::value() const { return impl_->entry().value; }
const absl::Status& Cursor::status() const { return impl_->status(); }

}  // namespace pando

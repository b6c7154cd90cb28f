#include "compute/log/read_log.h"

#include <algorithm>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {

// The largest batch fits, wherever it begins.
constexpr uint32_t kLogWindowBytes = kLogBatchBytesMax;
constexpr uint32_t kLogReadBytes = 8 << 10;
static_assert(kLogWindowBytes / kLogReadBytes <= Chain::kMaxVerbs);

class LogReader {
 public:
  LogReader(OperationContext& context, const LogExtent& extent, BufferLease window)
      : context_(context), extent_(extent), window_(std::move(window)) {}

  // The newer one of those that are complete.
  absl::StatusOr<LogBaseLine> ReadBase(uint64_t log_id, uint32_t epoch) {
    PANDO_RETURN_IF_ERROR(Read(extent_.offset, kLogRingOffset));
    std::optional<LogBaseLine> newest;
    for (uint32_t i = 0; i < 2; ++i) {
      const std::span<const std::byte, kLogLineBytes> line(window_.data() + i * kLogLineBytes,
                                                           kLogLineBytes);
      const std::optional<LogBaseLine> base = ParseLogBaseLine(line, log_id, epoch);
      const bool counts =
          base.has_value() && base->sequence % 2 == i && base->offset < ring_bytes();
      if (counts && (!newest.has_value() || base->sequence > newest->sequence)) newest = base;
    }
    if (newest.has_value()) return *newest;
    return absl::DataLossError(absl::StrCat("the redo log ", log_id, " at memory server ",
                                            extent_.server, " offset ", extent_.offset,
                                            " has no base line of epoch ", epoch));
  }

  absl::StatusOr<LogSpan> ReadFrom(const LogBaseLine& base,
                                   absl::FunctionRef<absl::Status(Lsn, const LogMessage&)> take) {
    LogPlace next = base.place;
    at_ = base.offset;
    // A forged log may go round in a circle.
    for (uint64_t bytes = 0; bytes < ring_bytes();) {
      PANDO_ASSIGN_OR_RETURN(const LogBatchView batch, LookAt(next));
      if (batch.kind == LogBatchView::Kind::kFiller) {
        bytes += ring_bytes() - at_;
        at_ = 0;
      } else if (batch.kind == LogBatchView::Kind::kBatch) {
        bytes += batch.bytes;
        at_ = (at_ + batch.bytes) % ring_bytes();
        PANDO_RETURN_IF_ERROR(ParseLogMessages(batch.messages, [&](const LogMessage& message) {
          const Lsn lsn = next.lsn++;
          return lsn < base.lsn ? absl::OkStatus() : take(lsn, message);
        }));
      } else {
        break;
      }
      next.seed = batch.seed;
      ++next.counter;
    }
    return LogSpan{base.lsn, std::max(base.lsn, next.lsn)};
  }

 private:
  uint64_t ring_bytes() const { return extent_.bytes - kLogRingOffset; }

  // What is at at_; in the window, which begins there where it does not hold all of it.
  absl::StatusOr<LogBatchView> LookAt(const LogPlace& next) {
    LogBatchView view = LookAtLogBatch(Window(), next);
    const auto left =
        static_cast<uint32_t>(std::min<uint64_t>(kLogWindowBytes, ring_bytes() - at_));
    const bool cut_off = Window().empty() || view.kind == LogBatchView::Kind::kShort;
    if (!cut_off || Window().size() == left) return view;
    window_at_ = at_;
    window_bytes_ = 0;
    PANDO_RETURN_IF_ERROR(Read(extent_.offset + kLogRingOffset + at_, left));
    window_bytes_ = left;
    return LookAtLogBatch(Window(), next);
  }
  // What of the window is at at_ and behind it.
  std::span<const std::byte> Window() const {
    if (at_ < window_at_ || at_ - window_at_ >= window_bytes_) return {};
    return {window_.data() + (at_ - window_at_),
            window_bytes_ - static_cast<size_t>(at_ - window_at_)};
  }

  absl::Status Read(uint64_t offset, uint32_t bytes) {
    const ChainLease chain(&context_.session.buffers());
    chain->Reset(extent_.server);
    for (uint32_t at = 0; at < bytes; at += kLogReadBytes) {
      chain->Read(MemorySpace::kMain, offset + at,
                  window_.Slice(at, std::min(kLogReadBytes, bytes - at)));
    }
    return context_.AwaitOnLife(chain.get(), extent_.server_life);
  }

  OperationContext& context_;
  const LogExtent extent_;
  const BufferLease window_;
  uint64_t at_ = 0, window_at_ = 0;  // in the ring
  uint32_t window_bytes_ = 0;
};

}  // namespace

absl::StatusOr<LogSpan> ReadLog(OperationContext& context, const LogExtent& extent, uint64_t log_id,
                                uint32_t epoch,
                                absl::FunctionRef<absl::Status(Lsn, const LogMessage&)> take) {
  if ((extent.offset | extent.bytes) % kLogLineBytes != 0 || extent.bytes <= kLogRingOffset) {
    return absl::InvalidArgumentError(absl::StrCat("no redo log can be at offset ", extent.offset,
                                                   " in ", extent.bytes, " bytes"));
  }
  PANDO_ASSIGN_OR_RETURN(BufferLease window, context.session.buffers().Lease(kLogWindowBytes));
  LogReader reader(context, extent, std::move(window));
  PANDO_ASSIGN_OR_RETURN(const LogBaseLine base, reader.ReadBase(log_id, epoch));
  return reader.ReadFrom(base, take);
}

}  // namespace pando

#include "common/fabric/verbs/litmus.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/verbs/device_memory.h"
#include "common/fabric/verbs/litmus_release.h"
#include "common/fabric/verbs/litmus_requester.h"
#include "common/fabric/verbs/lock_space.h"
#include "common/fabric/verbs/loopback.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {
namespace {

constexpr uint32_t kLineBytes = 64;
constexpr uint64_t kSpaceBytes = 4096;
constexpr int kRivalsMax = 64;
constexpr uint64_t kNever = ~uint64_t{0};  // a lock word never has this value

// The holder of the lock: takes it with a token that nobody ever used, releases it, looks; several
// times in one chain, so that releases are many.
class Holder {
 public:
  Holder(LitmusRequester* requester, LockLitmus* counts)
      : requester_(*requester), counts_(*counts) {}

  absl::Status RunChain() {
    requester_.Clear();
    for (uint32_t i = 0; i < kRounds; ++i) {
      requester_.CompareSwap(0, token_ + i);
      if (counts_.release == ReleaseVerb::kWrite) {
        std::memset(requester_.slot(3 * i + 1), 0, sizeof(uint64_t));
        requester_.WriteFenced(sizeof(uint64_t));
      } else {
        requester_.CompareSwap(token_ + i, 0);
      }
      requester_.Read(sizeof(uint64_t));
    }
    PANDO_RETURN_IF_ERROR(requester_.Execute());
    for (uint32_t i = 0; i < kRounds; ++i, ++token_) Count(3 * i);
    const uint64_t left = requester_.word(3 * kRounds - 1);
    return left == 0 ? absl::OkStatus() : requester_.ExecuteCompareSwap(left, 0).status();
  }

 private:
  static constexpr uint32_t kRounds = kLitmusChainMax / 3;

  // The round whose first verb is `first`, with token_.
  void Count(uint32_t first) {
    const uint64_t found = requester_.word(first), seen = requester_.word(first + 2);
    if (found != 0) {
      // The lock was not taken: a release was undone after the READ behind it.
      NotReleased(found);
      return;
    }
    held_ = token_;
    ++counts_.releases;
    if (counts_.release == ReleaseVerb::kCompareSwap && requester_.word(first + 1) != token_) {
      ++counts_.wrong_cas;
    }
    if (seen != 0) NotReleased(seen);
  }

  // The word has value `seen` where it should be 0.
  void NotReleased(uint64_t seen) {
    if (seen != held_) {
      ++counts_.wrong_cas;
    } else if (seen != last_undone_) {
      ++counts_.undone;
      last_undone_ = seen;
    }
  }

  LitmusRequester& requester_;
  LockLitmus& counts_;
  uint64_t token_ = 1;                   // the next one
  uint64_t held_ = 0, last_undone_ = 0;  // the last one with which the lock was taken
};

absl::StatusOr<LockLitmus> TestLock(const std::shared_ptr<VerbsDevice>& device,
                                    const LockSpace& space, ReleaseVerb release,
                                    const LitmusOptions& options) {
  LockLitmus counts = {.on_chip = space.on_chip(), .release = release};
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<LitmusRequester> requester,
                         LitmusRequester::Create(device, space.space()));
  PANDO_ASSIGN_OR_RETURN(LitmusRequesters rivals,
                         MakeLitmusRequesters(device, space.space(), options.rivals));
  for (const auto& rival : rivals) {
    for (uint32_t i = 0; i < kLitmusChainMax; ++i) rival->CompareSwap(kNever, kNever);
  }
  std::vector<LockLitmus> of_rivals(rivals.size());
  const auto fail_to_take = [&](size_t index) {
    PANDO_RETURN_IF_ERROR(rivals[index]->Execute());
    for (uint32_t i = 0; i < kLitmusChainMax; ++i) {
      ++(rivals[index]->word(i) == kNever ? of_rivals[index].wrong_cas
                                          : of_rivals[index].failed_cas);
    }
    return absl::OkStatus();
  };
  const auto hold = [&] {
    Holder holder(requester.get(), &counts);
    const int64_t end_ns = RealClock().NowNs() + options.test_ms * kMillisecondNs;
    absl::Status status;
    while (status.ok() && RealClock().NowNs() < end_ns) status = holder.RunChain();
    return status;
  };
  PANDO_RETURN_IF_ERROR(RunBeside(rivals.size(), fail_to_take, hold));
  for (const LockLitmus& of_rival : of_rivals) {
    counts.failed_cas += of_rival.failed_cas;
    counts.wrong_cas += of_rival.wrong_cas;
  }
  return counts;
}

void CountImage(std::span<const std::byte> image, LinesLitmus* counts) {
  bool mixed = false;
  for (size_t first = 0; first < image.size(); first += kLineBytes) {
    const std::span<const std::byte> line = image.subspan(first, kLineBytes);
    const bool torn =
        std::any_of(line.begin(), line.end(), [&](std::byte b) { return b != line[0]; });
    ++counts->lines;
    counts->torn += torn ? 1 : 0;
    mixed = mixed || torn || line[0] != image[0];
  }
  ++counts->reads;
  counts->mixed += mixed ? 1 : 0;
}

absl::StatusOr<LinesLitmus> TestLines(const std::shared_ptr<VerbsDevice>& device, uint32_t bytes,
                                      const LitmusOptions& options) {
  LinesLitmus counts = {.bytes = bytes};
  PANDO_ASSIGN_OR_RETURN(const RegisteredMemory memory,
                         RegisteredMemory::Create(*device, kSpaceBytes, {.remote = true}));
  const RemoteSpace space = {reinterpret_cast<uintptr_t>(memory.data()), kSpaceBytes,
                             memory.remote_key()};
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<LitmusRequester> writer,
                         LitmusRequester::Create(device, space));
  PANDO_ASSIGN_OR_RETURN(LitmusRequesters readers,
                         MakeLitmusRequesters(device, space, options.rivals));
  for (uint32_t i = 0; i < kLitmusChainMax; ++i) {
    // Never changed while a WRITE may be reading it.
    std::memset(writer->slot(i), static_cast<int>(i + 1), bytes);
    writer->Write(bytes);
    for (const auto& reader : readers) reader->Read(bytes);
  }
  std::vector<LinesLitmus> of_readers(readers.size());
  const auto read = [&](size_t index) {
    PANDO_RETURN_IF_ERROR(readers[index]->Execute());
    for (uint32_t i = 0; i < kLitmusChainMax; ++i) {
      CountImage({readers[index]->slot(i), bytes}, &of_readers[index]);
    }
    return absl::OkStatus();
  };
  const auto write = [&] {
    const int64_t end_ns = RealClock().NowNs() + options.test_ms * kMillisecondNs;
    absl::Status status;
    for (; status.ok() && RealClock().NowNs() < end_ns; counts.writes += kLitmusChainMax) {
      status = writer->Execute();
    }
    return status;
  };
  PANDO_RETURN_IF_ERROR(RunBeside(readers.size(), read, write));
  for (const LinesLitmus& of_reader : of_readers) {
    counts.reads += of_reader.reads;
    counts.mixed += of_reader.mixed;
    counts.lines += of_reader.lines;
    counts.torn += of_reader.torn;
  }
  return counts;
}

}  // namespace

absl::StatusOr<LitmusResult> RunLitmus(const LitmusOptions& options) {
  PANDO_CHECK(options.rivals >= 1 && options.rivals <= kRivalsMax && options.test_ms >= 1);
  PANDO_ASSIGN_OR_RETURN(const std::shared_ptr<VerbsDevice> device,
                         VerbsDevice::Open(options.device));
  const DeviceChoice& path = device->path();
  LitmusResult result;
  result.device = absl::StrCat(device->name(), " port ", path.port.number, ", GID ",
                               FormatGid(path.gid), ", MTU ", path.mtu_bytes);
  result.is_software = device->is_software();
  DeviceMemoryCalls* const calls = options.device_memory_calls != nullptr
                                       ? options.device_memory_calls
                                       : RealDeviceMemoryCalls();
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Loopback> loopback, Loopback::Create(device));
  for (const bool device_memory : {false, true}) {
    if (device_memory && calls->MaxBytes(*device) == 0) continue;
    for (const ReleaseVerb release : {ReleaseVerb::kWrite, ReleaseVerb::kCompareSwap}) {
      PANDO_ASSIGN_OR_RETURN(
          const std::unique_ptr<LockSpace> space,
          LockSpace::Create(device, {kSpaceBytes, device_memory}, calls, loopback.get()));
      // The NIC's memory may be taken by others.
      if (device_memory && !space->on_chip()) {
        result.on_chip_refused = true;
        continue;
      }
      PANDO_ASSIGN_OR_RETURN(result.locks.emplace_back(),
                             TestLock(device, *space, release, options));
      // Releases as Pando would make them there (rule L4).
      const bool by_write = device_memory && !device->is_software();
      if (by_write != (release == ReleaseVerb::kWrite)) continue;
      PANDO_ASSIGN_OR_RETURN(result.releases.emplace_back(),
                             TestRelease(device, *space, release, options));
    }
  }
  for (const uint32_t bytes : {kLineBytes, kLitmusImageBytesMax}) {
    PANDO_ASSIGN_OR_RETURN(result.lines.emplace_back(), TestLines(device, bytes, options));
  }
  return result;
}

}  // namespace pando

#include "common/fabric/verbs/lock_space.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/units.h"

namespace pando {

absl::StatusOr<std::unique_ptr<LockSpace>> LockSpace::Create(std::shared_ptr<VerbsDevice> device,
                                                             const LockSpaceOptions& options,
                                                             DeviceMemoryCalls* calls,
                                                             Loopback* loopback) {
  std::unique_ptr<LockSpace> space(new LockSpace(std::move(device), calls, loopback));
  const VerbsDevice& nic = *space->device_;
  const uint64_t available = options.device_memory ? calls->MaxBytes(nic) : 0;
  if (available > 0) {
    const absl::Status taken =
        available >= options.bytes
            ? space->TakeDeviceMemory(options.bytes)
            : absl::ResourceExhaustedError(absl::StrCat("it has ", FormatBytes(available)));
    if (taken.ok()) return space;
    PANDO_LOG(WARNING) << "the lock table of " << FormatBytes(options.bytes)
                       << " lies in host memory, not on " << nic.name() << ": " << taken.message();
  }
  PANDO_ASSIGN_OR_RETURN(space->host_,
                         RegisteredMemory::Create(nic, options.bytes, {.remote = true}));
  space->space_ = {reinterpret_cast<uintptr_t>(space->host_.data()), options.bytes,
                   space->host_.remote_key()};
  return space;
}

absl::Status LockSpace::TakeDeviceMemory(uint64_t bytes) {
  on_chip_ = calls_->Allocate(*device_, bytes);
  absl::Status status;
  if (on_chip_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("it gives none: ", std::strerror(errno)));
  }
  status = ZeroDeviceMemory(bytes);
  if (status.ok()) {
    region_.reset(calls_->Register(*device_, on_chip_, bytes, kRemoteAccess));
    if (region_ == nullptr) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("it cannot be registered: ", std::strerror(errno)));
    }
  }
  if (!status.ok()) {
    calls_->Free(std::exchange(on_chip_, nullptr));
    return status;
  }
  space_ = {0, bytes, region_->rkey};
  return absl::OkStatus();
}

absl::Status LockSpace::ZeroDeviceMemory(uint64_t bytes) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  for (uint64_t offset = 0; offset < bytes; offset += kZeros.size()) {
    const int error = calls_->CopyTo(on_chip_, offset, kZeros.data(),
                                     std::min<uint64_t>(kZeros.size(), bytes - offset));
    if (error != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("it cannot be zeroed: ", std::strerror(error)));
    }
  }
  return absl::OkStatus();
}

LockSpace::~LockSpace() {
  region_.reset();
  if (on_chip_ != nullptr) calls_->Free(on_chip_);
}

absl::Status LockSpace::Read(uint64_t first, std::span<uint64_t> into) {
  constexpr size_t kWordsMax = Loopback::kReadBytesMax / sizeof(uint64_t);
  while (!into.empty()) {
    const std::span<uint64_t> part = into.first(std::min(into.size(), kWordsMax));
    PANDO_RETURN_IF_ERROR(
        loopback_->Read(space_, first * sizeof(uint64_t), std::as_writable_bytes(part)));
    first += part.size();
    into = into.subspan(part.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LockSpace::CompareSwap(uint64_t word, uint64_t compare, uint64_t swap) {
  return loopback_->CompareSwap(space_, word * sizeof(uint64_t), compare, swap);
}

}  // namespace pando

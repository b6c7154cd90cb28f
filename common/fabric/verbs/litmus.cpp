#include "common/fabric/verbs/litmus.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/verbs/device_memory.h"
#include "common/fabric/verbs/lock_space.h"
#include "common/fabric/verbs/loopback.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {
namespace {

constexpr uint32_t kLineBytes = 64;
// Under way at once on one queue pair: the next verb arrives while the one before is executed.
constexpr uint32_t kChainMax = 16;
constexpr uint32_t kImageBytesMax = 1024;
constexpr uint64_t kSpaceBytes = 4096;
constexpr int kRivalsMax = 64;
// A queue pair gives up by itself within seconds.
constexpr int64_t kGiveUpNs = 20 * kSecondNs;
constexpr uint64_t kNever = ~uint64_t{0};  // a lock word never has this value

// A queue pair, its peer in the same process, and chains of verbs from the one to the other. Used
// by one thread.
class Requester {
 public:
  static absl::StatusOr<std::unique_ptr<Requester>> Create(std::shared_ptr<VerbsDevice> device,
                                                           const RemoteSpace& target) {
    std::unique_ptr<Requester> requester(new Requester(std::move(device), target));
    PANDO_RETURN_IF_ERROR(requester->Init());
    return requester;
  }

  // Where slot `slot` of the chain reads from or writes to.
  std::byte* slot(size_t slot) const { return buffer_.data() + slot * kImageBytesMax; }
  uint64_t word(size_t slot_index) const {
    uint64_t value;
    std::memcpy(&value, slot(slot_index), sizeof(value));
    return value;
  }

  // The n-th verb of a chain has slot n and begins at the target's first byte.
  void Clear() { length_ = 0; }
  void Write(uint32_t bytes) { AddTransfer(IBV_WR_RDMA_WRITE, bytes); }
  // Not before the chain's earlier atomics are done: only a fence makes WRITEs wait for those.
  void WriteFenced(uint32_t bytes) {
    Write(bytes);
    requests_[length_ - 1].send_flags = IBV_SEND_FENCE;
  }
  void Read(uint32_t bytes) { AddTransfer(IBV_WR_RDMA_READ, bytes); }
  void CompareSwap(uint64_t compare, uint64_t swap) {
    ibv_send_wr& request = Add(IBV_WR_ATOMIC_CMP_AND_SWP, sizeof(uint64_t));
    request.wr.atomic.remote_addr = target_.address;
    request.wr.atomic.rkey = target_.key;
    request.wr.atomic.compare_add = compare;
    request.wr.atomic.swap = swap;
  }

  // Posts the chain and waits until it is done. May be repeated.
  absl::Status Execute();

  // A chain of one; the value found.
  absl::StatusOr<uint64_t> ExecuteCompareSwap(uint64_t compare, uint64_t swap) {
    Clear();
    CompareSwap(compare, swap);
    PANDO_RETURN_IF_ERROR(Execute());
    return word(0);
  }

 private:
  Requester(std::shared_ptr<VerbsDevice> device, const RemoteSpace& target)
      : device_(std::move(device)), target_(target) {}
  absl::Status Init();
  ibv_send_wr& Add(ibv_wr_opcode opcode, uint32_t bytes);
  void AddTransfer(ibv_wr_opcode opcode, uint32_t bytes) {
    ibv_send_wr& request = Add(opcode, bytes);
    request.wr.rdma.remote_addr = target_.address;
    request.wr.rdma.rkey = target_.key;
  }

  const std::shared_ptr<VerbsDevice> device_;
  const RemoteSpace target_;
  RegisteredMemory buffer_;
  CompletionQueueHandle completions_;
  QueuePair from_, to_;
  size_t length_ = 0;
  std::array<ibv_send_wr, kChainMax> requests_ = {};
  std::array<ibv_sge, kChainMax> pieces_ = {};
};

absl::Status Requester::Init() {
  PANDO_ASSIGN_OR_RETURN(buffer_, RegisteredMemory::Create(*device_, kChainMax * kImageBytesMax));
  completions_.reset(ibv_create_cq(device_->context(), 2 * kChainMax, nullptr, nullptr, 0));
  if (completions_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "RDMA device ", device_->name(), ": no completion queue: ", std::strerror(errno)));
  }
  PANDO_ASSIGN_OR_RETURN(
      from_, QueuePair::Create(*device_, completions_.get(), {.work_requests = kChainMax}));
  PANDO_ASSIGN_OR_RETURN(to_, QueuePair::Create(*device_, completions_.get(), {}));
  PANDO_RETURN_IF_ERROR(to_.Connect(*device_, from_.address()));
  return from_.Connect(*device_, to_.address());
}

ibv_send_wr& Requester::Add(ibv_wr_opcode opcode, uint32_t bytes) {
  PANDO_CHECK(length_ < kChainMax && bytes <= kImageBytesMax);
  ibv_send_wr& request = requests_[length_];
  ibv_sge& piece = pieces_[length_];
  piece = {reinterpret_cast<uintptr_t>(slot(length_)), bytes, buffer_.local_key()};
  request = {};
  request.opcode = opcode;
  request.sg_list = &piece;
  request.num_sge = 1;
  ++length_;
  return request;
}

absl::Status Requester::Execute() {
  for (size_t i = 0; i < length_; ++i) {
    const bool last = i + 1 == length_;
    requests_[i].next = last ? nullptr : &requests_[i + 1];
    if (last) requests_[i].send_flags |= IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(from_.get(), requests_.data(), &bad);
  ibv_wc completion = {};
  int count = 0;
  const int64_t give_up_ns = RealClock().NowNs() + kGiveUpNs;
  while (error == 0 && (count = ibv_poll_cq(completions_.get(), 1, &completion)) == 0 &&
         RealClock().NowNs() < give_up_ns) {
    sched_yield();
  }
  if (error == 0 && count == 1 && completion.status == IBV_WC_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "RDMA device ", device_->name(), ": a verb to this host itself failed: ",
      error != 0 ? std::strerror(error)
                 : (count == 1 ? ibv_wc_status_str(completion.status) : "no completion")));
}

using Requesters = std::vector<std::unique_ptr<Requester>>;

absl::StatusOr<Requesters> MakeRequesters(const std::shared_ptr<VerbsDevice>& device,
                                          const RemoteSpace& target, int count) {
  Requesters requesters;
  for (int i = 0; i < count; ++i) {
    PANDO_ASSIGN_OR_RETURN(requesters.emplace_back(), Requester::Create(device, target));
  }
  return requesters;
}

// Runs `round` of each of `others` again and again in threads of their own, until `main`, which
// runs here, has returned. The first error.
absl::Status RunBeside(Requesters& others,
                       const std::function<absl::Status(size_t index)>& round_of_other,
                       const std::function<absl::Status()>& main) {
  std::atomic<bool> stop = false;
  std::vector<absl::Status> statuses(others.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < others.size(); ++i) {
    threads.emplace_back([&, i] {
      while (!stop && statuses[i].ok()) statuses[i] = round_of_other(i);
    });
  }
  absl::Status status = main();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& other : statuses) status.Update(other);
  return status;
}

// The holder of the lock: takes it with a token that nobody ever used, releases it, looks; several
// times in one chain, so that releases are many.
class Holder {
 public:
  Holder(Requester* requester, LockLitmus* counts) : requester_(*requester), counts_(*counts) {}

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
  static constexpr uint32_t kRounds = kChainMax / 3;

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

  Requester& requester_;
  LockLitmus& counts_;
  uint64_t token_ = 1;                   // the next one
  uint64_t held_ = 0, last_undone_ = 0;  // the last one with which the lock was taken
};

absl::StatusOr<LockLitmus> TestLock(const std::shared_ptr<VerbsDevice>& device,
                                    const LockSpace& space, ReleaseVerb release,
                                    const LitmusOptions& options) {
  LockLitmus counts = {.on_chip = space.on_chip(), .release = release};
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Requester> requester,
                         Requester::Create(device, space.space()));
  PANDO_ASSIGN_OR_RETURN(Requesters rivals, MakeRequesters(device, space.space(), options.rivals));
  for (const auto& rival : rivals) {
    for (uint32_t i = 0; i < kChainMax; ++i) rival->CompareSwap(kNever, kNever);
  }
  std::vector<LockLitmus> of_rivals(rivals.size());
  const auto fail_to_take = [&](size_t index) {
    PANDO_RETURN_IF_ERROR(rivals[index]->Execute());
    for (uint32_t i = 0; i < kChainMax; ++i) {
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
  PANDO_RETURN_IF_ERROR(RunBeside(rivals, fail_to_take, hold));
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
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Requester> writer, Requester::Create(device, space));
  PANDO_ASSIGN_OR_RETURN(Requesters readers, MakeRequesters(device, space, options.rivals));
  for (uint32_t i = 0; i < kChainMax; ++i) {
    // Never changed while a WRITE may be reading it.
    std::memset(writer->slot(i), static_cast<int>(i + 1), bytes);
    writer->Write(bytes);
    for (const auto& reader : readers) reader->Read(bytes);
  }
  std::vector<LinesLitmus> of_readers(readers.size());
  const auto read = [&](size_t index) {
    PANDO_RETURN_IF_ERROR(readers[index]->Execute());
    for (uint32_t i = 0; i < kChainMax; ++i) {
      CountImage({readers[index]->slot(i), bytes}, &of_readers[index]);
    }
    return absl::OkStatus();
  };
  const auto write = [&] {
    const int64_t end_ns = RealClock().NowNs() + options.test_ms * kMillisecondNs;
    absl::Status status;
    for (; status.ok() && RealClock().NowNs() < end_ns; counts.writes += kChainMax) {
      status = writer->Execute();
    }
    return status;
  };
  PANDO_RETURN_IF_ERROR(RunBeside(readers, read, write));
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
    }
  }
  for (const uint32_t bytes : {kLineBytes, kImageBytesMax}) {
    PANDO_ASSIGN_OR_RETURN(result.lines.emplace_back(), TestLines(device, bytes, options));
  }
  return result;
}

}  // namespace pando

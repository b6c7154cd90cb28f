// What the litmus tests (litmus.h) are made of: queue pairs of this process that are connected to
// each other, and threads that use them at the same moment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/fabric/verbs/loopback.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {

// Under way at once on one queue pair: the next verb arrives while the one before is executed.
inline constexpr uint32_t kLitmusChainMax = 16;
inline constexpr uint32_t kLitmusImageBytesMax = 1024;

// A queue pair, its peer in the same process, and chains of verbs from the one to the other. Used
// by one thread.
class LitmusRequester {
 public:
  static absl::StatusOr<std::unique_ptr<LitmusRequester>> Create(
      std::shared_ptr<VerbsDevice> device, const RemoteSpace& target) {
    std::unique_ptr<LitmusRequester> requester(new LitmusRequester(std::move(device), target));
    PANDO_RETURN_IF_ERROR(requester->Init());
    return requester;
  }

  // Where slot `slot` of the chain reads from or writes to.
  std::byte* slot(size_t slot) const { return buffer_.data() + slot * kLitmusImageBytesMax; }
  uint64_t word(size_t slot_index) const {
    uint64_t value;
    std::memcpy(&value, slot(slot_index), sizeof(value));
    return value;
  }

  // The n-th verb of a chain has slot n and begins at the first byte of the target, or of another
  // space from SetTarget() on.
  void Clear() { length_ = 0; }
  void SetTarget(const RemoteSpace& target) { target_ = target; }
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
  LitmusRequester(std::shared_ptr<VerbsDevice> device, const RemoteSpace& target)
      : device_(std::move(device)), target_(target) {}
  absl::Status Init();
  ibv_send_wr& Add(ibv_wr_opcode opcode, uint32_t bytes);
  void AddTransfer(ibv_wr_opcode opcode, uint32_t bytes) {
    ibv_send_wr& request = Add(opcode, bytes);
    request.wr.rdma.remote_addr = target_.address;
    request.wr.rdma.rkey = target_.key;
  }

  const std::shared_ptr<VerbsDevice> device_;
  RemoteSpace target_;
  RegisteredMemory buffer_;
  CompletionQueueHandle completions_;
  QueuePair from_, to_;
  size_t length_ = 0;
  std::array<ibv_send_wr, kLitmusChainMax> requests_ = {};
  std::array<ibv_sge, kLitmusChainMax> pieces_ = {};
};

using LitmusRequesters = std::vector<std::unique_ptr<LitmusRequester>>;

absl::StatusOr<LitmusRequesters> MakeLitmusRequesters(const std::shared_ptr<VerbsDevice>& device,
                                                      const RemoteSpace& target, int count);

// Runs `round` of each of `count` others again and again in threads of their own, until `main`,
// which runs here, has returned. The first error.
absl::Status RunBeside(size_t count,
                       const std::function<absl::Status(size_t index)>& round_of_other,
                       const std::function<absl::Status()>& main);

}  // namespace pando

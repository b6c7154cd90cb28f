#include "common/fabric/verbs/litmus_requester.h"

#include <atomic>
#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace pando {
namespace {

// A queue pair gives up by itself within seconds.
constexpr int64_t kGiveUpNs = 20 * kSecondNs;

}  // namespace

absl::Status LitmusRequester::Init() {
  PANDO_ASSIGN_OR_RETURN(
      buffer_, RegisteredMemory::Create(*device_, kLitmusChainMax * kLitmusImageBytesMax));
  completions_.reset(ibv_create_cq(device_->context(), 2 * kLitmusChainMax, nullptr, nullptr, 0));
  if (completions_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "RDMA device ", device_->name(), ": no completion queue: ", std::strerror(errno)));
  }
  PANDO_ASSIGN_OR_RETURN(
      from_, QueuePair::Create(*device_, completions_.get(), {.work_requests = kLitmusChainMax}));
  PANDO_ASSIGN_OR_RETURN(to_, QueuePair::Create(*device_, completions_.get(), {}));
  PANDO_RETURN_IF_ERROR(to_.Connect(*device_, from_.address()));
  return from_.Connect(*device_, to_.address());
}

ibv_send_wr& LitmusRequester::Add(ibv_wr_opcode opcode, uint32_t bytes) {
  PANDO_CHECK(length_ < kLitmusChainMax && bytes <= kLitmusImageBytesMax);
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

absl::Status LitmusRequester::Execute() {
  for (size_t i = 0; i < length_; ++i) {
    const bool last = i + 1 == length_;
    requests_[i].next = last ? nullptr : &requests_[i + 1];
    if (last) requests_[i].send_flags |= IBV_SEND_SIGNALED;
  }
  return PostAndAwait(*device_, from_, completions_.get(), requests_.data(), kGiveUpNs);
}

absl::StatusOr<LitmusRequesters> MakeLitmusRequesters(const std::shared_ptr<VerbsDevice>& device,
                                                      const RemoteSpace& target, int count) {
  LitmusRequesters requesters;
  for (int i = 0; i < count; ++i) {
    PANDO_ASSIGN_OR_RETURN(requesters.emplace_back(), LitmusRequester::Create(device, target));
  }
  return requesters;
}

absl::Status RunBeside(size_t count,
                       const std::function<absl::Status(size_t index)>& round_of_other,
                       const std::function<absl::Status()>& main) {
  std::atomic<bool> stop = false;
  std::vector<absl::Status> statuses(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
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

}  // namespace pando

#include "common/fabric/verbs/loopback.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr int64_t kGiveUpNs = kSecondNs;

}  // namespace

absl::StatusOr<std::unique_ptr<Loopback>> Loopback::Create(std::shared_ptr<VerbsDevice> device) {
  std::unique_ptr<Loopback> loopback(new Loopback(std::move(device)));
  PANDO_ASSIGN_OR_RETURN(loopback->buffer_,
                         RegisteredMemory::Create(*loopback->device_, kReadBytesMax));
  PANDO_RETURN_IF_ERROR(loopback->Connect());
  return loopback;
}

absl::Status Loopback::Connect() {
  connected_ = false;
  from_.Destroy();
  to_.Destroy();
  completions_.reset(ibv_create_cq(device_->context(), 16, nullptr, nullptr, 0));
  if (completions_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("RDMA device ", device_->name(), ": no completion queue: ", strerror(errno)));
  }
  PANDO_ASSIGN_OR_RETURN(from_, QueuePair::Create(*device_, completions_.get(), {}));
  PANDO_ASSIGN_OR_RETURN(to_, QueuePair::Create(*device_, completions_.get(), {}));
  PANDO_RETURN_IF_ERROR(to_.Connect(*device_, from_.address()));
  PANDO_RETURN_IF_ERROR(from_.Connect(*device_, to_.address()));
  connected_ = true;
  return absl::OkStatus();
}

absl::Status Loopback::Execute(ibv_send_wr* request, uint32_t bytes) {
  if (!connected_) PANDO_RETURN_IF_ERROR(Connect());
  ibv_sge piece = {reinterpret_cast<uintptr_t>(buffer_.data()), bytes, buffer_.local_key()};
  request->sg_list = &piece;
  request->num_sge = 1;
  request->send_flags = IBV_SEND_SIGNALED;
  absl::Status status = PostAndAwait(*device_, from_, completions_.get(), request, kGiveUpNs);
  connected_ = status.ok();
  return status;
}

absl::Status Loopback::Read(const RemoteSpace& space, uint64_t offset, std::span<std::byte> into) {
  PANDO_CHECK(into.size() <= kReadBytesMax && into.size() <= space.bytes &&
              offset <= space.bytes - into.size());
  ibv_send_wr request = {};
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = space.address + offset;
  request.wr.rdma.rkey = space.key;
  PANDO_RETURN_IF_ERROR(Execute(&request, static_cast<uint32_t>(into.size())));
  std::memcpy(into.data(), buffer_.data(), into.size());
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Loopback::CompareSwap(const RemoteSpace& space, uint64_t offset,
                                               uint64_t compare, uint64_t swap) {
  PANDO_CHECK(offset % 8 == 0 && space.bytes >= 8 && offset <= space.bytes - 8);
  ibv_send_wr request = {};
  request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  request.wr.atomic.remote_addr = space.address + offset;
  request.wr.atomic.rkey = space.key;
  request.wr.atomic.compare_add = compare;
  request.wr.atomic.swap = swap;
  PANDO_RETURN_IF_ERROR(Execute(&request, sizeof(uint64_t)));
  uint64_t found;
  std::memcpy(&found, buffer_.data(), sizeof(found));
  return found;
}

}  // namespace pando

#include "common/fabric/verbs/verbs_peer_room.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr uint32_t kInlineBytes = 128;  // travel with the doorbell, where the NIC can

absl::Status NoQueue(const VerbsDevice& device, const char* what) {
  return absl::ResourceExhaustedError(absl::StrCat("RDMA device ", device.name(), " has no ", what,
                                                   " for links: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<PeerRoom>> PeerRoom::Create(std::shared_ptr<VerbsDevice> device,
                                                           ibv_comp_channel* channel) {
  std::shared_ptr<PeerRoom> room(new PeerRoom(std::move(device)));
  constexpr int kEach = static_cast<int>(kLinksMax * kPeerSlots);
  ibv_context* const context = room->device_->context();
  room->completions_.reset(ibv_create_cq(context, 2 * kEach, nullptr, channel, 0));
  if (room->completions_ == nullptr) return NoQueue(*room->device_, "completion queue");
  ibv_srq_init_attr attributes = {};
  attributes.attr.max_wr = kEach;
  attributes.attr.max_sge = 1;
  room->receives_.reset(ibv_create_srq(room->device_->pd(), &attributes));
  if (room->receives_ == nullptr) return NoQueue(*room->device_, "shared receive queue");
  return room;
}

absl::Status PeerRoom::Provide() {
  while (buffers_.size() < links()) {
    PANDO_ASSIGN_OR_RETURN(
        RegisteredMemory memory,
        RegisteredMemory::Create(*device_, uint64_t{kPeerSlots} * kPeerMessageBytesMax));
    buffers_.push_back(std::move(memory));
    const uint64_t first = (buffers_.size() - 1) * kPeerSlots;
    for (uint64_t i = 0; i < kPeerSlots; ++i) PostReceive(first + i);
  }
  return absl::OkStatus();
}

std::string_view PeerRoom::Message(uint64_t id, uint32_t bytes) const {
  const std::byte* const data =
      buffers_[id / kPeerSlots].data() + id % kPeerSlots * kPeerMessageBytesMax;
  return {reinterpret_cast<const char*>(data), bytes};
}

void PeerRoom::PostReceive(uint64_t id) {
  ibv_sge piece = {};
  piece.addr = reinterpret_cast<uintptr_t>(Message(id, 0).data());
  piece.length = kPeerMessageBytesMax;
  piece.lkey = buffers_[id / kPeerSlots].local_key();
  ibv_recv_wr request = {};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  // The queue has room for all buffers that there are.
  const int error = ibv_post_srq_recv(receives_.get(), &request, &bad);
  if (error != 0) {
    PANDO_LOG(ERROR) << "RDMA device " << device_->name()
                     << " takes no receive buffer: " << std::strerror(error);
  }
}

absl::StatusOr<QueuePair> PeerPair::Make(const VerbsDevice& device, const PeerRoom& room) {
  return QueuePair::Create(device, room.completions(),
                           {.work_requests = kPeerSlots,
                            .inline_bytes = kInlineBytes,
                            .receives = room.receives(),
                            .remote_access = false});
}

absl::StatusOr<std::unique_ptr<PeerPair>> PeerPair::Connect(const VerbsDevice& device,
                                                            PeerPlace place, QueuePair pair,
                                                            const QueuePairAddress& remote) {
  if (!pair) {
    PANDO_ASSIGN_OR_RETURN(pair, Make(device, *place.get()));
  }
  PANDO_ASSIGN_OR_RETURN(
      RegisteredMemory memory,
      RegisteredMemory::Create(device, uint64_t{kPeerSlots} * kPeerMessageBytesMax));
  PANDO_RETURN_IF_ERROR(pair.Connect(device, remote));
  return std::unique_ptr<PeerPair>(
      new PeerPair(std::move(place), std::move(memory), std::move(pair)));
}

int PeerPair::Post(uint32_t slot, std::string_view message, uint32_t credit) {
  std::byte* const data = memory_.data() + slot * kPeerMessageBytesMax;
  std::memcpy(data, message.data(), message.size());
  ibv_sge piece = {};
  piece.addr = reinterpret_cast<uintptr_t>(data);
  piece.length = static_cast<uint32_t>(message.size());
  piece.lkey = memory_.local_key();
  ibv_send_wr request = {};
  request.wr_id = PeerRoom::kSendId;
  request.sg_list = &piece;
  request.num_sge = message.empty() ? 0 : 1;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  if (!message.empty() && message.size() <= pair_.inline_bytes()) {
    request.send_flags |= IBV_SEND_INLINE;
  }
  request.imm_data = htonl(credit);
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair_.get(), &request, &bad);
}

}  // namespace pando

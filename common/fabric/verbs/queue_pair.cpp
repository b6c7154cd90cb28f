#include "common/fabric/verbs/queue_pair.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/system_random.h"

namespace pando {
namespace {

constexpr uint32_t kSequenceMask = (1u << 24) - 1;
// 4.096 us * 2^15 = 134 ms, 7 times: a peer that does not answer for a second is given up. NICs may
// take up to four times as long. (7 retries are endless ones on SoftRoCE.)
constexpr uint8_t kTimeoutExponent = 15;
constexpr uint8_t kRetries = 6;
constexpr uint8_t kHopLimit = 64;

uint32_t RandomSequence() { return static_cast<uint32_t>(SystemRandom()) & kSequenceMask; }

absl::Status StepError(const VerbsDevice& device, const char* step, int error) {
  return absl::UnavailableError(absl::StrCat(
      "RDMA device ", device.name(), ": a queue pair cannot ", step, ": ", std::strerror(error)));
}

ibv_ah_attr AddressVector(const VerbsDevice& device, const QueuePairAddress& remote) {
  const DeviceChoice& path = device.path();
  ibv_ah_attr vector = {};
  vector.port_num = static_cast<uint8_t>(path.port.number);
  vector.dlid = remote.local_id;
  vector.sl = path.service_level;
  // RoCE always routes by GID; InfiniBand by local id, as one subnet is what this is made for.
  vector.is_global = path.uses_global_route() ? 1 : 0;
  if (vector.is_global != 0) {
    vector.grh.traffic_class = path.traffic_class;
    std::memcpy(vector.grh.dgid.raw, remote.gid.data(), remote.gid.size());
    vector.grh.sgid_index = static_cast<uint8_t>(device.GidIndex());
    vector.grh.hop_limit = kHopLimit;
  }
  return vector;
}

}  // namespace

absl::Status CheckQueuePairAddress(const QueuePairAddress& address) {
  const bool mtu = address.mtu_bytes >= 256 && address.mtu_bytes <= 4096 &&
                   (address.mtu_bytes & (address.mtu_bytes - 1)) == 0;
  if (address.number == 0 || address.number > kSequenceMask || address.sequence > kSequenceMask ||
      !mtu || address.responder_depth == 0) {
    return absl::DataLossError("the other side sent what is no address of a queue pair");
  }
  return absl::OkStatus();
}

absl::StatusOr<QueuePair> QueuePair::Create(const VerbsDevice& device, ibv_cq* completions,
                                            const QueuePairLimits& limits) {
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = completions;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = limits.work_requests;
  attributes.srq = limits.receives;
  attributes.cap.max_recv_wr = limits.receives == nullptr ? 1 : 0;
  attributes.cap.max_send_sge = limits.pieces;
  attributes.cap.max_recv_sge = limits.receives == nullptr ? 1 : 0;
  attributes.cap.max_inline_data = limits.inline_bytes;
  ibv_pd* const domain = limits.domain != nullptr ? limits.domain : device.pd();
  QueuePair pair;
  pair.pair_.reset(ibv_create_qp(domain, &attributes));
  if (pair.pair_ == nullptr && limits.inline_bytes > 0) {
    attributes.cap.max_inline_data = 0;
    pair.pair_.reset(ibv_create_qp(domain, &attributes));
  }
  if (pair.pair_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("RDMA device ", device.name(), " has no queue pair for ", limits.work_requests,
                     " work requests: ", std::strerror(errno)));
  }
  pair.inline_bytes_ = std::min(attributes.cap.max_inline_data, limits.inline_bytes);
  const DeviceChoice& path = device.path();
  pair.address_.number = pair.pair_->qp_num;
  pair.address_.sequence = RandomSequence();
  pair.address_.mtu_bytes = path.mtu_bytes;
  pair.address_.responder_depth = device.responder_depth();
  pair.address_.gid = path.gid.gid;
  ibv_port_attr port = {};
  if (ibv_query_port(device.context(), static_cast<uint8_t>(path.port.number), &port) == 0) {
    pair.address_.local_id = port.lid;
  }
  ibv_qp_attr init = {};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = static_cast<uint8_t>(path.port.number);
  init.pkey_index = path.pkey_index;
  init.qp_access_flags = limits.remote_access ? kRemoteAccess : 0;
  const int error =
      ibv_modify_qp(pair.pair_.get(), &init,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return StepError(device, "be initialised", error);
  return pair;
}

absl::Status QueuePair::Connect(const VerbsDevice& device, const QueuePairAddress& remote) {
  PANDO_RETURN_IF_ERROR(CheckQueuePairAddress(remote));
  ibv_qp_attr receive = {};
  receive.qp_state = IBV_QPS_RTR;
  receive.ah_attr = AddressVector(device, remote);
  receive.path_mtu = MtuFromBytes(std::min(address_.mtu_bytes, remote.mtu_bytes));
  receive.dest_qp_num = remote.number;
  receive.rq_psn = remote.sequence;
  receive.max_dest_rd_atomic = address_.responder_depth;
  receive.min_rnr_timer = 12;
  int error = ibv_modify_qp(pair_.get(), &receive,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return StepError(device, "find its peer (is the GID right?)", error);
  ibv_qp_attr send = {};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = kTimeoutExponent;
  send.retry_cnt = kRetries;
  send.rnr_retry = kRetries;  // 7 is for ever
  send.sq_psn = address_.sequence;
  send.max_rd_atomic = std::min(device.initiator_depth(), remote.responder_depth);
  error = ibv_modify_qp(pair_.get(), &send,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? absl::OkStatus() : StepError(device, "be made ready to send", error);
}

void QueuePair::Break() {
  if (pair_ == nullptr) return;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  // Where the device refuses this it has broken the pair itself.
  ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
}

absl::Status PostAndAwait(const VerbsDevice& device, const QueuePair& from, ibv_cq* completions,
                          ibv_send_wr* list, int64_t give_up_ns) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(from.get(), list, &bad);
  ibv_wc completion = {};
  int count = 0;
  const int64_t until_ns = RealClock().NowNs() + give_up_ns;
  while (error == 0 && (count = ibv_poll_cq(completions, 1, &completion)) == 0 &&
         RealClock().NowNs() < until_ns) {
    sched_yield();
  }
  if (error == 0 && count == 1 && completion.status == IBV_WC_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "RDMA device ", device.name(), ": a verb to this host itself failed: ",
      error != 0 ? std::strerror(error)
                 : (count == 1 ? ibv_wc_status_str(completion.status) : "no completion")));
}

}  // namespace pando

#include "common/fabric/verbs/chain_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {

ChainQueue::ChainQueue(uint16_t index, const VerbsMemory& server, uint32_t depth, List* list,
                       VerbsCounters* counters)
    : index_(index), depth_(depth), list_(list), counters_(counters) {
  PANDO_CHECK(std::has_single_bit(depth) && depth >= Chain::kMaxVerbs);
  SetServer(server);
}

void ChainQueue::SetServer(const VerbsMemory& server) {
  PANDO_CHECK(size() == 0 && !connected());
  address_[static_cast<int>(MemorySpace::kMain)] = server.main_address;
  address_[static_cast<int>(MemorySpace::kLocks)] = server.lock_address;
  key_[static_cast<int>(MemorySpace::kMain)] = server.main_key;
  key_[static_cast<int>(MemorySpace::kLocks)] = server.lock_key;
}

void ChainQueue::Attach(QueuePair pair, LocalBuffer results) {
  PANDO_CHECK(posted_.empty());
  PANDO_CHECK(results.bytes >= depth_ * sizeof(uint64_t));
  results_ = results;
  pair_ = std::move(pair);
  ++generation_;
  used_ = 0;
}

void ChainQueue::Push(Chain* chain, uint32_t verbs, absl::Status refused) {
  PANDO_CHECK(verbs > 0);
  waiting_verbs_ += verbs;
  waiting_.push_back({chain, verbs, std::move(refused), 0});
}

absl::Status ChainQueue::Pump(int64_t now_ns, bool alone) {
  while (connected() && HasRoom(0)) {
    uint32_t count = 0;
    do {
      Entry entry = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_verbs_ -= entry.verbs;
      entry.first = next_number_;
      next_number_ += entry.verbs;
      used_ += entry.verbs;
      entry.chain->MarkStarted(now_ns);
      Append(entry, &count);
      posted_.push_back(std::move(entry));
    } while (HasRoom(count));
    const bool each = alone && count > 1 && count <= kAloneVerbsMax;
    PANDO_RETURN_IF_ERROR(each ? RingForEach(count) : Ring(count));
  }
  return absl::OkStatus();
}

void ChainQueue::Append(const Entry& entry, uint32_t* count) {
  for (uint32_t i = 0; i < entry.verbs; ++i, ++*count) {
    ibv_send_wr& request = list_->requests[*count];
    Fill(entry.chain->verb(i), entry.first + i, &request,
         &list_->pieces[*count * Verb::kMaxPieces]);
    if (*count > 0) list_->requests[*count - 1].next = &request;
    counters_->inlined += (request.send_flags & IBV_SEND_INLINE) != 0;
  }
  list_->requests[*count - 1].send_flags |= IBV_SEND_SIGNALED;
}

absl::Status ChainQueue::RingForEach(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    list_->requests[i].next = nullptr;
    PANDO_RETURN_IF_ERROR(Ring(1, i));
  }
  return absl::OkStatus();
}

absl::Status ChainQueue::Ring(uint32_t count, uint32_t first) {
  ++counters_->doorbells;
  counters_->work_requests += count;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair_.get(), &list_->requests[first], &bad);
  if (error == 0) [[likely]]
    return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the doorbell failed: ", std::strerror(error)));
}

std::vector<ChainQueue::Entry> ChainQueue::TakeLate(int64_t now_ns, int64_t within_ns) {
  std::vector<Entry> late;
  std::deque<Entry> others;
  for (Entry& entry : waiting_) {
    const bool is_late = entry.chain->StartByNs(within_ns) <= now_ns;
    if (is_late) waiting_verbs_ -= entry.verbs;
    (is_late ? late.emplace_back() : others.emplace_back()) = std::move(entry);
  }
  waiting_ = std::move(others);
  return late;
}

int64_t ChainQueue::NextLateNs(int64_t until_ns, int64_t within_ns) const {
  for (const Entry& entry : waiting_) {
    until_ns = std::min(until_ns, entry.chain->StartByNs(within_ns));
  }
  return until_ns;
}

void ChainQueue::Fill(const Verb& verb, uint32_t number, ibv_send_wr* request,
                      ibv_sge* pieces) const {
  const int space = static_cast<int>(verb.space);
  *request = {};
  request->wr_id = RequestId(number);
  request->sg_list = pieces;
  request->send_flags = verb.fence ? IBV_SEND_FENCE : 0;
  if (verb.is_atomic()) {
    std::byte* const result = results_.data + number % depth_ * sizeof(uint64_t);
    pieces[0] = {reinterpret_cast<uintptr_t>(result), sizeof(uint64_t), results_.key};
    request->num_sge = 1;
    request->wr.atomic.remote_addr = address_[space] + verb.offset;
    request->wr.atomic.rkey = key_[space];
    const bool swap = verb.kind == VerbKind::kCompareSwap;
    request->opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
    request->wr.atomic.compare_add = swap ? verb.compare : verb.swap_or_add;
    request->wr.atomic.swap = swap ? verb.swap_or_add : 0;
    return;
  }
  for (int i = 0; i < verb.piece_count; ++i) {
    const LocalBuffer& piece = verb.pieces[i];
    pieces[i] = {reinterpret_cast<uintptr_t>(piece.data), piece.bytes, piece.key};
  }
  request->num_sge = verb.piece_count;
  request->wr.rdma.remote_addr = address_[space] + verb.offset;
  request->wr.rdma.rkey = key_[space];
  request->opcode = verb.kind == VerbKind::kRead ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  if (verb.kind == VerbKind::kWrite && verb.bytes <= pair_.inline_bytes()) {
    request->send_flags |= IBV_SEND_INLINE;
  }
}

std::optional<ChainQueue::Entry> ChainQueue::OnCompletion(const ibv_wc& completion,
                                                          std::optional<Failure>* failure) {
  const auto number = static_cast<uint32_t>(completion.wr_id);
  if (completion.wr_id != RequestId(number) || posted_.empty()) return std::nullopt;
  const Entry& oldest = posted_.front();
  if (completion.status != IBV_WC_SUCCESS) {
    const uint32_t verb = number - oldest.first;
    *failure = Failure{verb < oldest.verbs ? verb : 0, completion.status};
    return std::nullopt;
  }
  // The provider's fault otherwise; then the queue pair cannot be relied on.
  if (number != oldest.first + oldest.verbs - 1) {
    *failure = Failure{0, IBV_WC_GENERAL_ERR};
    return std::nullopt;
  }
  for (uint32_t i = 0; i < oldest.verbs; ++i) {
    Verb& verb = oldest.chain->verb(i);
    if (!verb.is_atomic()) continue;
    std::memcpy(&verb.old_value, results_.data + (oldest.first + i) % depth_ * sizeof(uint64_t),
                sizeof(uint64_t));
  }
  used_ -= oldest.verbs;
  Entry done = std::move(posted_.front());
  posted_.pop_front();
  return done;
}

std::vector<ChainQueue::Entry> ChainQueue::TakeAll() {
  pair_.Break();
  pair_.Destroy();
  ++generation_;
  used_ = waiting_verbs_ = 0;
  std::vector<Entry> all;
  for (std::deque<Entry>* queue : {&posted_, &waiting_}) {
    for (Entry& entry : *queue) all.push_back(std::move(entry));
    queue->clear();
  }
  return all;
}

}  // namespace pando

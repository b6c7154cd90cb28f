// A queue pair that is none, for tests without a device: what is posted to it is kept, and is
// executed, fails or is flushed when the test says so. As a NIC it has so many places for work
// requests, takes a list up to the one that it refuses, and says nothing of a request that is not
// signaled, unless it fails.
//
// Posting comes here by the context's operations; this file also defines two functions of
// libibverbs, so one source file of a program may include it. Not thread-safe.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/verbs/queue_pair.h"

namespace pando {

class FakeQueuePair {
 public:
  static constexpr uint32_t kInlineBytes = 64;
  static constexpr uint64_t kFirstFound = 1000;

  explicit FakeQueuePair(uint32_t places) : places_(places) {
    context_.ops.post_send = Post;
    pair_.context = &context_;
    pair_.qp_context = this;
  }
  FakeQueuePair(const FakeQueuePair&) = delete;

  // Its only owner's.
  QueuePair Take() { return QueuePair(QueuePairHandle(&pair_), kInlineBytes); }

  // The next list, or the one after so many others, is refused, with `error`, at the work request
  // with this place in it.
  void RefuseAt(uint32_t place, int error, uint32_t lists_before = 0) {
    refuse_at_ = place;
    lists_before_ = lists_before;
    refuse_error_ = error;
  }
  // Executes the oldest work request that was accepted: atomics find kFirstFound
  // and as many more as work requests came before.
  // What the completion queue then shows of it, if anything.
  std::optional<ibv_wc> Execute() {
    PANDO_CHECK(!failed_);
    const Request request = TakeOldest();
    if (request.is_atomic) {
      std::memcpy(reinterpret_cast<void*>(request.result), &found_, sizeof(found_));
    }
    ++found_;
    if (!request.is_signaled) return std::nullopt;
    unreported_ = 0;
    return Completion(request.id, IBV_WC_SUCCESS);
  }
  // The oldest one fails, so that nothing behind it is executed.
  ibv_wc Fail(ibv_wc_status status) {
    PANDO_CHECK(!failed_);
    failed_ = true;
    return Completion(TakeOldest().id, status);
  }
  // And what is behind it is flushed: each says so, signaled or not.
  std::vector<ibv_wc> Flush() {
    std::vector<ibv_wc> flushed;
    while (!accepted_.empty()) {
      flushed.push_back(Completion(accepted_.front().id, IBV_WC_WR_FLUSH_ERR));
      accepted_.pop_front();
    }
    return flushed;
  }

  size_t accepted() const { return accepted_.size(); }
  // How many work requests each list had that was posted.
  const std::vector<uint32_t>& lists() const { return lists_; }
  bool was_broken() const { return was_broken_; }
  bool is_destroyed() const { return is_destroyed_; }

  // --- What libibverbs asks.
  static FakeQueuePair& Of(ibv_qp* pair) { return *static_cast<FakeQueuePair*>(pair->qp_context); }
  void Break() { was_broken_ = failed_ = true; }
  void Destroy() {
    PANDO_CHECK(!is_destroyed_);
    is_destroyed_ = true;
    accepted_.clear();
  }

 private:
  static constexpr uint32_t kNever = UINT32_MAX;
  struct Request {
    uint64_t id, result;
    bool is_atomic, is_signaled;
  };

  static ibv_wc Completion(uint64_t id, ibv_wc_status status) {
    ibv_wc completion = {};
    completion.wr_id = id;
    completion.status = status;
    return completion;
  }
  static int Post(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) {
    return Of(pair).PostList(first, bad);
  }
  int PostList(ibv_send_wr* first, ibv_send_wr** bad) {
    PANDO_CHECK(!is_destroyed_);
    lists_.push_back(0);
    const uint32_t refuse_at = lists_before_ == 0 ? std::exchange(refuse_at_, kNever) : kNever;
    lists_before_ -= lists_before_ > 0 ? 1 : 0;
    uint32_t place = 0;
    int error = 0;
    for (ibv_send_wr* request = first; request != nullptr; request = request->next, ++place) {
      ++lists_.back();
      if (error != 0) continue;
      const bool full = accepted_.size() + unreported_ >= places_;
      if (place == refuse_at || full) {
        *bad = request;
        error = full ? ENOMEM : refuse_error_;
        continue;
      }
      const bool is_atomic = request->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                             request->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
      accepted_.push_back({request->wr_id, request->sg_list[0].addr, is_atomic,
                           (request->send_flags & IBV_SEND_SIGNALED) != 0});
    }
    return error;
  }
  Request TakeOldest() {
    PANDO_CHECK(!accepted_.empty() && !is_destroyed_);
    const Request oldest = accepted_.front();
    accepted_.pop_front();
    ++unreported_;
    return oldest;
  }

  const uint32_t places_;
  ibv_context context_ = {};
  ibv_qp pair_ = {};
  uint32_t refuse_at_ = kNever, lists_before_ = 0;
  int refuse_error_ = 0;
  std::deque<Request> accepted_;
  uint32_t unreported_ = 0;  // executed; their places are free when a completion has said so
  uint64_t found_ = kFirstFound;
  std::vector<uint32_t> lists_;
  bool failed_ = false, was_broken_ = false, is_destroyed_ = false;
};

}  // namespace pando

extern "C" {
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  PANDO_CHECK(mask == IBV_QP_STATE && attributes->qp_state == IBV_QPS_ERR);
  pando::FakeQueuePair::Of(pair).Break();
  return 0;
}
int ibv_destroy_qp(ibv_qp* pair) {
  pando::FakeQueuePair::Of(pair).Destroy();
  return 0;
}
}

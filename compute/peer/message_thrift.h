// How much the requests that share a link wait for each other, so as to share messages (rule P2).
// Internal to compute/peer; each end of a link has one.
//
// Thread safety: as the owner of the object says.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pando {

// Where a message is a system call each of them is worth a wait. Where it is a post to a NIC, few
// requests gain nothing by waiting, and many would cost the threads at both ends a message each.
class MessageThrift {
 public:
  // `cheap_messages`: the fabric's (Capabilities).
  explicit MessageThrift(bool cheap_messages) : cheap_(cheap_messages) {}

  // At each message: how many requests are in flight on the link. The most of late counts, as an
  // answer to many leaves few for a moment.
  void Observe(size_t in_flight) {
    in_flight_ = std::max(static_cast<double>(in_flight), in_flight_ * kForgetting);
  }

  // Messages that may be unanswered before others wait: 2 to 8.
  size_t unanswered_max() const {
    return static_cast<size_t>(kUnansweredFew - share() * (kUnansweredFew - kUnansweredMany));
  }
  // The part of its longest wait that an answer waits for others.
  double share() const {
    return cheap_ ? std::clamp((in_flight_ - kFew) / (kMany - kFew), 0.0, 1.0) : 1;
  }

 private:
  // Requests. With 32 in flight, the most of late is hardly ever below 28.
  static constexpr double kFew = 20, kMany = 28;
  static constexpr double kUnansweredFew = 8, kUnansweredMany = 2;
  static constexpr double kForgetting = 1 - 1.0 / 64;

  const bool cheap_;
  double in_flight_ = 0;
};

}  // namespace pando

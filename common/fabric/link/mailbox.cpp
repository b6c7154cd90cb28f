#include "common/fabric/link/mailbox.h"

#include <utility>

#include "common/fabric/body.h"

namespace pando {

absl::StatusOr<Reply> MakeReply(std::optional<ReplyKind> kind, uint32_t sequence,
                                std::string body) {
  if (!kind.has_value()) return absl::DataLossError("it sent something that is no reply");
  Reply reply = {sequence, *kind, absl::OkStatus(), std::move(body)};
  if (*kind != ReplyKind::kError) return reply;
  reply.status = ParseStatus(reply.body);
  if (sequence == 0) return reply.status;
  return reply;
}

bool Mailbox::Put(Reply reply) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    replies_.push_back(std::move(reply));
    filled_.store(true, std::memory_order_release);
  }
  sleeper_.Wake();
  return true;
}

std::vector<Reply> Mailbox::TakeAll() {
  if (empty()) return {};
  std::lock_guard lock(mutex_);
  filled_.store(false, std::memory_order_release);
  return std::exchange(replies_, {});
}

std::vector<Reply> Mailbox::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  filled_.store(false, std::memory_order_release);
  return std::exchange(replies_, {});
}

}  // namespace pando

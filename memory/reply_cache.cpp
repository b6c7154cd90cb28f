#include "memory/reply_cache.h"

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"

namespace pando::memory {

ReplyCache::Key ReplyCache::KeyOf(const ControlHeader& header) {
  return {header.sender, header.incarnation, header.session, header.sequence, header.opcode};
}

absl::StatusOr<const std::string*> ReplyCache::Find(const ControlHeader& header,
                                                    std::string_view body) const {
  if (header.sequence == 0 || !RuleHolds(Rule::kR4)) return nullptr;
  const auto entry = replies_.find(KeyOf(header));
  if (entry == replies_.end()) return nullptr;
  if (entry->second.body != body) {
    return absl::InvalidArgumentError(
        absl::StrCat("request ", header.sequence, " was used before, with another content"));
  }
  return &entry->second.reply;
}

// `first_incomplete` says that everything below it has arrived.
void ReplyCache::DropAcknowledged(const ControlHeader& header) {
  while (!oldest_first_.empty()) {
    const auto& [sender, incarnation, session, sequence, opcode] = oldest_first_.front();
    const bool same_client = sender == header.sender && incarnation == header.incarnation;
    const bool acknowledged = same_client && sequence < header.first_incomplete;
    if (!acknowledged && oldest_first_.size() < kRepliesMax) return;
    replies_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
}

void ReplyCache::Insert(const ControlHeader& header, std::string_view body, std::string reply) {
  if (header.sequence == 0 || body.size() > kBodyBytesMax) return;
  DropAcknowledged(header);
  const Key key = KeyOf(header);
  if (replies_.try_emplace(key, Entry{std::string(body), std::move(reply)}).second) {
    oldest_first_.push_back(key);
  }
}

}  // namespace pando::memory

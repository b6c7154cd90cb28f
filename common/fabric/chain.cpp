#include "common/fabric/chain.h"

#include <utility>

#include "common/base/check.h"

namespace pando {

void Chain::CheckRoom() const {
  PANDO_CHECK_LT(count_, kMaxVerbs) << "a chain for server " << server_ << " is full";
}

Verb& Chain::Write(MemorySpace space, uint64_t offset, LocalBuffer from) {
  return WriteGather(space, offset, {&from, 1});
}

Verb& Chain::WriteGather(MemorySpace space, uint64_t offset, std::span<const LocalBuffer> from) {
  PANDO_CHECK(!from.empty() && from.size() <= Verb::kMaxPieces) << from.size() << " pieces";
  Verb& verb = Append(VerbKind::kWrite, space, offset);
  verb.piece_count = static_cast<uint8_t>(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    verb.pieces[i] = from[i];
    verb.bytes += from[i].bytes;
  }
  return verb;
}

Verb& Chain::CompareSwap(MemorySpace space, uint64_t offset, uint64_t compare, uint64_t swap) {
  Verb& verb = Append(VerbKind::kCompareSwap, space, offset);
  verb.bytes = 8;
  verb.compare = compare;
  verb.swap_or_add = swap;
  verb.old_value = 0;
  return verb;
}

Verb& Chain::FetchAdd(MemorySpace space, uint64_t offset, uint64_t add) {
  Verb& verb = Append(VerbKind::kFetchAdd, space, offset);
  verb.bytes = 8;
  verb.swap_or_add = add;
  verb.old_value = 0;
  return verb;
}

void Chain::Complete(absl::Status status, int64_t now_ns) {
  PANDO_CHECK(!done_) << "a chain for server " << server_ << " completed twice";
  status_ = std::move(status);
  completed_ns_ = now_ns;
  done_ = true;
  // Last: the chain may be gone when the callee returns.
  if (on_done_ != nullptr) on_done_(this, on_done_context_);
}

}  // namespace pando

#include "memory/extent_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"

namespace pando::memory {

ExtentTable::ExtentTable(const Region* region, NodeLedger* nodes, const Clock* clock,
                         const TimeConstants& times, uint64_t life, uint32_t spares)
    : region_(region),
      nodes_(nodes),
      clock_(clock),
      times_(times),
      life_(life),
      chunk_bytes_(region->superblock().chunk_bytes),
      spares_max_(spares) {}

ExtentTable::Extents::iterator ExtentTable::FindPromise(const ClientId& holder) {
  return std::find_if(extents_.begin(), extents_.end(), [&](const auto& entry) {
    return entry.second.holder == holder && entry.second.cleared < entry.second.chunks;
  });
}

ExtentTable::Extents::const_iterator ExtentTable::Find(uint64_t id) const {
  return std::find_if(extents_.begin(), extents_.end(),
                      [&](const auto& entry) { return entry.second.id == id; });
}

ExtentGrant ExtentTable::AskAgain(int64_t in_ns) const {
  return {.life = life_,
          .ask_again_ns = std::clamp<int64_t>(in_ns, times_.rest_ask_min_ns, kAskAgainNsMax)};
}

absl::Status ExtentTable::Exhausted(uint64_t bytes) const {
  const uint64_t longest = nodes_->pool().LongestRun(nodes_->kept_back());
  uint64_t fits = longest;
  if (spares_max_ > 0) {
    // Beside the spare that is there, or with one as long beside it.
    const uint64_t beside = HasSpareFor(1) ? std::min<uint64_t>(longest, spares_.back().chunks) : 0;
    fits = std::max(beside, longest / 2 >= LongestExtent() ? longest / 2 : 0);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory server ", region_->server_id(), " has no ", bytes, " bytes in one piece for a log, ",
      fits * chunk_bytes_, " bytes would fit",
      spares_max_ > 0 ? " besides what it keeps for a client that takes over an owner's keys" : "",
      "; take a smaller log, drop a tree, or start servers with more --memory"));
}

absl::StatusOr<ExtentGrant> ExtentTable::Allocate(const ClientId& holder, uint64_t bytes,
                                                  IsOver is_over) {
  const uint64_t chunks = std::max<uint64_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_, 1);
  if (const auto promise = FindPromise(holder); promise != extents_.end()) {
    if (promise->second.asked == chunks) return Prepare(promise);
    GiveBack(promise);
  }
  MendSpares();
  if (chunks > region_->superblock().chunk_count) return Exhausted(bytes);
  const auto count = static_cast<uint32_t>(chunks);
  std::optional<ExtentGrant> grant;
  if (spares_.size() > SparesWanted(extents_.size() + 1)) grant = TakeSpare(holder, count);
  if (!grant.has_value()) grant = TakeFree(holder, count);
  const bool one_has_ended = std::any_of(extents_.begin(), extents_.end(), [&](const auto& entry) {
    return is_over(entry.second.holder) || !RuleHolds(Rule::kW7Ended);
  });
  if (!grant.has_value() && one_has_ended) grant = TakeSpare(holder, count);
  if (!grant.has_value()) return Exhausted(bytes);
  return *grant;
}

std::optional<ExtentGrant> ExtentTable::TakeFree(const ClientId& holder, uint32_t chunks) {
  ChunkPool& pool = nodes_->pool();
  const bool needs_spare = spares_max_ > 0 && !HasSpareFor(chunks) && RuleHolds(Rule::kW7);
  const uint32_t spare_chunks = needs_spare ? std::max(chunks, LongestExtent()) : 0;
  const ChunkPool::Run run = pool.FindRun(chunks, nodes_->kept_back() + spare_chunks);
  if (run.rested_ns == kNeverNs) return std::nullopt;
  const int64_t now_ns = clock_->NowNs();
  int64_t rested_ns = run.rested_ns;
  if (needs_spare) {
    const ChunkPool::Run spare =
        pool.FindRun(spare_chunks, nodes_->kept_back() + chunks, {run.first, chunks});
    if (spare.rested_ns == kNeverNs) return std::nullopt;
    rested_ns = std::max(rested_ns, spare.rested_ns);
  }
  if (rested_ns > now_ns) return AskAgain(rested_ns - now_ns);
  pool.TakeRun(run, chunks);
  const ExtentGrant grant = Add(holder, run.first, chunks, chunks);
  MendSpares();
  return grant;
}

std::optional<ExtentGrant> ExtentTable::TakeSpare(const ClientId& holder, uint32_t chunks) {
  auto spare = spares_.end();
  for (auto kept = spares_.begin(); kept != spares_.end(); ++kept) {
    if (kept->chunks < chunks) continue;
    if (spare == spares_.end() || kept->rested_ns < spare->rested_ns) spare = kept;
  }
  if (spare == spares_.end()) return std::nullopt;
  const int64_t now_ns = clock_->NowNs();
  if (spare->rested_ns > now_ns) return AskAgain(spare->rested_ns - now_ns);
  const Spare taken = *spare;
  spares_.erase(spare);
  return Add(holder, taken.first, taken.chunks, chunks);
}

ExtentGrant ExtentTable::Add(const ClientId& holder, uint32_t first, uint32_t chunks,
                             uint32_t asked) {
  chunks_ += chunks;
  const auto [extent, inserted] = extents_.try_emplace(
      first, Extent{.id = next_id_++, .holder = holder, .chunks = chunks, .asked = asked});
  PANDO_CHECK(inserted);
  return Prepare(extent);
}

uint64_t ExtentTable::spare_bytes() const {
  uint64_t chunks = 0;
  for (const Spare& spare : spares_) chunks += spare.chunks;
  return chunks * chunk_bytes_;
}

uint32_t ExtentTable::LongestExtent() const {
  uint32_t longest = 0;
  for (const auto& [first, extent] : extents_) longest = std::max(longest, extent.chunks);
  return longest;
}

bool ExtentTable::HasSpareFor(uint32_t chunks) const {
  return !spares_.empty() && spares_.back().chunks >= std::max(chunks, LongestExtent());
}

void ExtentTable::MendSpares() {
  if (spares_max_ == 0 || !RuleHolds(Rule::kW7)) return;
  ChunkPool& pool = nodes_->pool();
  // With no extents they are as long as they are.
  const uint32_t chunks = LongestExtent();
  if (chunks > 0 && !HasSpareFor(chunks)) {
    const ChunkPool::Run run = pool.FindRun(chunks, nodes_->kept_back());
    if (run.rested_ns <= clock_->NowNs()) {
      pool.TakeRun(run, chunks);
      spares_.push_back({.first = run.first, .chunks = chunks, .rested_ns = 0});
    }
  }
  while (spares_.size() > SparesWanted(extents_.size())) {
    GiveBack(spares_.front().first, spares_.front().chunks);
    spares_.erase(spares_.begin());
  }
}

ExtentGrant ExtentTable::Prepare(Extents::iterator entry) {
  auto& [first, extent] = *entry;
  uint64_t zeroed_bytes = 0;
  while (extent.cleared < extent.chunks) {
    if (zeroed_bytes > 0 && zeroed_bytes + chunk_bytes_ > kZeroedBytesMax) return AskAgain(0);
    zeroed_bytes += nodes_->pool().Clear(first + extent.cleared);
    ++extent.cleared;
  }
  return {.life = life_,
          .id = extent.id,
          .offset = region_->ChunkOffset(first),
          .bytes = extent.chunks * chunk_bytes_,
          .ask_again_ns = 0};
}

const ClientId* ExtentTable::HolderOf(uint64_t id) const {
  const auto extent = Find(id);
  return extent == extents_.end() ? nullptr : &extent->second.holder;
}

void ExtentTable::Free(uint64_t id) {
  const auto extent = Find(id);
  PANDO_CHECK(extent != extents_.end()) << "there is no extent " << id;
  GiveBack(extent);
}

void ExtentTable::GiveBack(Extents::const_iterator entry) {
  const uint32_t first = entry->first;
  uint32_t chunks = entry->second.chunks;
  chunks_ -= chunks;
  extents_.erase(entry);
  // Where spares are missing, or short, it is one; no longer than the longest extent.
  const uint32_t longest = LongestExtent();
  const uint32_t kept = longest > 0 ? std::min(chunks, longest) : chunks;
  const bool is_missed = spares_.size() < SparesWanted(extents_.size());
  if (spares_max_ > 0 && (is_missed || (!HasSpareFor(1) && kept > spares_.front().chunks))) {
    for (uint32_t i = 0; i < kept; ++i) nodes_->pool().MarkUncleared(first + i);
    const auto after = std::find_if(spares_.begin(), spares_.end(),
                                    [=](const Spare& spare) { return spare.chunks >= kept; });
    spares_.insert(after, {first, kept, clock_->NowNs() + times_.freed_rest_ns});
    GiveBack(first + kept, chunks - kept);
  } else {
    GiveBack(first, chunks);
  }
  MendSpares();
}

void ExtentTable::GiveBack(uint32_t first, uint32_t chunks) {
  for (uint32_t i = 0; i < chunks; ++i) {
    nodes_->pool().GiveBack(first + i, /*written=*/true, /*life=*/0);
  }
}

ExtentList ExtentTable::List(
    const ExtentQuery& query,
    const std::function<ClientLiveness(const ClientId&)>& liveness_of) const {
  ExtentList list = {.life = life_, .more = 0, .extents = {}};
  const size_t wanted = std::clamp<size_t>(query.max, 1, kListedExtentsMax);
  for (const auto& [first, extent] : extents_) {
    const uint64_t offset = region_->ChunkOffset(first);
    if (offset <= query.after_offset) continue;
    if (list.extents.size() == wanted) {
      list.more = 1;
      break;
    }
    list.extents.push_back({.id = extent.id,
                            .offset = offset,
                            .bytes = extent.chunks * chunk_bytes_,
                            .compute_server = extent.holder.compute_server,
                            .incarnation = extent.holder.incarnation,
                            .holder = liveness_of(extent.holder)});
  }
  return list;
}

}  // namespace pando::memory

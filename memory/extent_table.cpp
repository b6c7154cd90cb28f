#include "memory/extent_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace pando::memory {

ExtentTable::ExtentTable(const Region* region, NodeLedger* nodes, const Clock* clock,
                         const TimeConstants& times, uint64_t life)
    : region_(region),
      nodes_(nodes),
      clock_(clock),
      times_(times),
      life_(life),
      chunk_bytes_(region->superblock().chunk_bytes) {}

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
  const uint64_t fits = nodes_->pool().LongestRun(nodes_->kept_back()) * chunk_bytes_;
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory server ", region_->server_id(), " has no ", bytes, " bytes in one piece for a log, ",
      fits, " bytes would fit; take a smaller log, drop a tree, or start servers with more ",
      "--memory"));
}

absl::StatusOr<ExtentGrant> ExtentTable::Allocate(const ClientId& holder, uint64_t bytes) {
  const uint64_t chunks = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  if (const auto promise = FindPromise(holder); promise != extents_.end()) {
    if (promise->second.chunks == chunks) return Prepare(promise);
    GiveBack(promise);
  }
  if (chunks > region_->superblock().chunk_count) return Exhausted(bytes);
  const auto count = static_cast<uint32_t>(chunks);
  ChunkPool& pool = nodes_->pool();
  const ChunkPool::Run run = pool.FindRun(count, nodes_->kept_back());
  if (run.rested_ns == kNeverNs) return Exhausted(bytes);
  const int64_t now_ns = clock_->NowNs();
  if (run.rested_ns > now_ns) return AskAgain(run.rested_ns - now_ns);
  pool.TakeRun(run, count);
  chunks_ += count;
  const auto [extent, inserted] =
      extents_.try_emplace(run.first, Extent{.id = next_id_++, .holder = holder, .chunks = count});
  PANDO_CHECK(inserted);
  return Prepare(extent);
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
  const auto& [first, extent] = *entry;
  for (uint32_t i = 0; i < extent.chunks; ++i) {
    nodes_->pool().GiveBack(first + i, /*written=*/true, /*life=*/0);
  }
  chunks_ -= extent.chunks;
  extents_.erase(entry);
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

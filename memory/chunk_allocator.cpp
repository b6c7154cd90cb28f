#include "memory/chunk_allocator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/node_layout.h"

namespace pando::memory {

ChunkAllocator::ChunkAllocator(Region* region, const Clock* clock, int64_t rest_ns)
    : region_(region),
      clock_(clock),
      rest_ns_(rest_ns),
      chunks_(region->superblock().chunk_count) {}

uint64_t ChunkAllocator::UsableBytes(const Chunk& chunk) const {
  return region_->superblock().chunk_bytes / chunk.node_bytes * chunk.node_bytes;
}

absl::Status ChunkAllocator::CheckNodeBytes(uint32_t tree_id, uint32_t node_bytes) const {
  if (node_bytes < kNodeBytesMin || node_bytes > kNodeBytesMax || node_bytes % kLineBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("node size ", node_bytes, " must be a multiple of ", kLineBytes, " between ",
                     kNodeBytesMin, " and ", kNodeBytesMax));
  }
  const auto tree = trees_.find(tree_id);
  if (tree != trees_.end() && tree->second.node_bytes != node_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("tree ", tree_id, " has nodes of ",
                                                   tree->second.node_bytes, " bytes here, not of ",
                                                   node_bytes));
  }
  return absl::OkStatus();
}

// Memory that was used before comes first: fresh memory costs new pages, and is what is left while
// other rests.
absl::StatusOr<uint32_t> ChunkAllocator::TakeFree() {
  if (!resting_.empty() && clock_->NowNs() >= resting_.front().until_ns) {
    const uint32_t chunk = resting_.front().chunk;
    resting_.pop_front();
    const uint32_t chunk_bytes = region_->superblock().chunk_bytes;
    region_->Zero(region_->ChunkOffset(chunk), chunk_bytes);
    events_.zeroed_bytes += chunk_bytes;
    return chunk;
  }
  if (next_fresh_ < chunks_.size()) return next_fresh_++;
  ++events_.exhausted;
  const std::string server = absl::StrCat("memory server ", region_->server_id());
  if (resting_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(server, " is full: all ", chunks_.size(),
                     " chunks are in use; drop a tree, or start servers with more --memory"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      server, " is full for the moment: ", resting_.size(),
      " chunks of dropped trees are free again within ", rest_ns_ / kMillisecondNs, " ms"));
}

absl::StatusOr<uint32_t> ChunkAllocator::TakeChunk(uint32_t tree_id, uint32_t node_bytes) {
  PANDO_RETURN_IF_ERROR(CheckNodeBytes(tree_id, node_bytes));
  const auto known = trees_.find(tree_id);
  if (known != trees_.end() && !known->second.partial.empty()) {
    const uint32_t index = known->second.partial.back();
    known->second.partial.pop_back();
    return index;
  }
  PANDO_ASSIGN_OR_RETURN(const uint32_t index, TakeFree());
  PANDO_CHECK(chunks_[index].state == State::kFree);
  chunks_[index].tree_id = tree_id;
  chunks_[index].node_bytes = node_bytes;
  TreeChunks& tree = trees_[tree_id];
  tree.node_bytes = node_bytes;
  tree.all.push_back(index);
  return index;
}

absl::StatusOr<ChunkGrant> ChunkAllocator::Allocate(const ClientId& holder, uint32_t tree_id,
                                                    uint32_t node_bytes) {
  PANDO_ASSIGN_OR_RETURN(const uint32_t index, TakeChunk(tree_id, node_bytes));
  Chunk& chunk = chunks_[index];
  chunk.state = State::kHeld;
  chunk.holder = holder;
  ++events_.grants;
  return ChunkGrant{.offset = region_->ChunkOffset(index) + chunk.watermark,
                    .bytes = UsableBytes(chunk) - chunk.watermark,
                    .free_bytes = free_bytes()};
}

absl::StatusOr<uint64_t> ChunkAllocator::AllocateNode(uint32_t tree_id, uint32_t node_bytes) {
  PANDO_ASSIGN_OR_RETURN(const uint32_t index, TakeChunk(tree_id, node_bytes));
  const uint64_t offset = region_->ChunkOffset(index) + chunks_[index].watermark;
  Unhold(index, chunks_[index].watermark + node_bytes);
  return offset;
}

void ChunkAllocator::Unhold(uint32_t index, uint64_t watermark) {
  Chunk& chunk = chunks_[index];
  chunk.holder = {};
  chunk.watermark = watermark;
  chunk.state = watermark < UsableBytes(chunk) ? State::kPartial : State::kFull;
  if (chunk.state == State::kPartial) trees_[chunk.tree_id].partial.push_back(index);
}

absl::Status ChunkAllocator::Return(const ClientId& holder, const ChunkGrant& remainder) {
  const Superblock& superblock = region_->superblock();
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot take back ", remainder.bytes, " bytes at offset ", remainder.offset, ": ", why));
  };
  if (remainder.offset < superblock.chunk_offset) return refuse("not in a chunk");
  const uint64_t index = (remainder.offset - superblock.chunk_offset) / superblock.chunk_bytes;
  if (index >= chunks_.size()) return refuse("not in a chunk");
  const Chunk& chunk = chunks_[index];
  if (chunk.state != State::kHeld || chunk.holder != holder) {
    return refuse(absl::StrCat("its chunk is not held by ", holder.ToString()));
  }
  const uint64_t watermark = remainder.offset - region_->ChunkOffset(static_cast<uint32_t>(index));
  if (watermark < chunk.watermark || watermark % chunk.node_bytes != 0 ||
      watermark >= UsableBytes(chunk) || remainder.bytes != UsableBytes(chunk) - watermark) {
    return refuse("not the untouched end of what was granted");
  }
  Unhold(static_cast<uint32_t>(index), watermark);
  ++events_.returns;
  return absl::OkStatus();
}

void ChunkAllocator::ReleaseHolder(const ClientId& holder, uint32_t tree_id) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return;
  for (uint32_t index : tree->second.all) {
    const Chunk& chunk = chunks_[index];
    if (chunk.state != State::kHeld || chunk.holder != holder) continue;
    const uint64_t used = region_->UsedPrefix(region_->ChunkOffset(index), UsableBytes(chunk));
    const uint64_t nodes = (used + chunk.node_bytes - 1) / chunk.node_bytes;
    Unhold(index, std::max(chunk.watermark, nodes * chunk.node_bytes));
    ++events_.recovered;
  }
}

void ChunkAllocator::ReleaseHolder(const ClientId& holder) {
  for (const auto& [tree_id, chunks] : trees_) ReleaseHolder(holder, tree_id);
}

void ChunkAllocator::FreeTree(uint32_t tree_id) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return;
  for (uint32_t index : tree->second.all) {
    chunks_[index] = Chunk{};
    resting_.push_back({index, clock_->NowNs() + rest_ns_});
  }
  trees_.erase(tree);
}

uint64_t ChunkAllocator::used_bytes() const {
  return (chunks_.size() - free_chunks()) * region_->superblock().chunk_bytes;
}

ChunkAllocator::Counts ChunkAllocator::counts() const {
  Counts counts = events_;
  for (const Chunk& chunk : chunks_) {
    counts.free += chunk.state == State::kFree;
    counts.held += chunk.state == State::kHeld;
    counts.partial += chunk.state == State::kPartial;
    counts.full += chunk.state == State::kFull;
  }
  return counts;
}

}  // namespace pando::memory

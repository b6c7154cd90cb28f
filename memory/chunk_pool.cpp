#include "memory/chunk_pool.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/wire/node_glance.h"
#include "common/wire/node_layout.h"

namespace pando::memory {

ChunkPool::ChunkPool(Region* region, const Clock* clock, int64_t rest_ns)
    : region_(region),
      clock_(clock),
      rest_ns_(rest_ns),
      lives_(region->superblock().chunk_count),
      node_bytes_(region->superblock().chunk_count),
      stamped_(region->superblock().chunk_count) {}

// Memory that was used before comes first: fresh memory costs new pages, and is what is left while
// other rests.
absl::StatusOr<ChunkPool::Taken> ChunkPool::Take(uint32_t node_bytes) {
  PANDO_CHECK(node_bytes >= kNodeBytesMin && node_bytes <= kNodeBytesMax);
  uint32_t chunk = 0;
  if (!ready_.empty()) {
    chunk = ready_.back();
    ready_.pop_back();
    node_bytes_[chunk] = node_bytes;
  } else if (!resting_.empty() && clock_->NowNs() >= resting_.front().until_ns) {
    chunk = resting_.front().chunk;
    resting_.pop_front();
    NoteLives(chunk);
    node_bytes_[chunk] = node_bytes;
    Prepare(chunk);
    ++taken_again_;
  } else if (next_fresh_ < lives_.size()) {
    chunk = next_fresh_++;
    node_bytes_[chunk] = node_bytes;
  } else {
    return Exhausted();
  }
  return Taken{chunk, lives_[chunk], !stamped_[chunk]};
}

void ChunkPool::NoteLife(uint32_t chunk, uint32_t life) {
  if (LifeNewer(life, lives_[chunk])) lives_[chunk] = life;
}

void ChunkPool::GiveBack(uint32_t chunk, bool written, uint32_t life) {
  PANDO_CHECK(node_bytes_[chunk] != 0) << "never taken";
  NoteLife(chunk, life);
  if (!written && !stamped_[chunk]) {
    ready_.push_back(chunk);
  } else if (!written) {  // nobody has seen it: but its stamps may be in the next user's way
    resting_.push_front({chunk, clock_->NowNs()});
  } else {
    resting_.push_back({chunk, clock_->NowNs() + rest_ns_});
  }
}

// The memory is about to be zeroed, so that looking at its nodes costs nothing more.
void ChunkPool::NoteLives(uint32_t chunk) {
  const uint64_t chunk_bytes = region_->superblock().chunk_bytes;
  std::array<std::byte, kLineBytes> line;
  for (uint64_t at = 0; at + node_bytes_[chunk] <= chunk_bytes; at += node_bytes_[chunk]) {
    region_->Read(region_->ChunkOffset(chunk) + at, line.data(), kLineBytes);
    NoteLife(chunk, GlanceAtNode(line.data()).life);
  }
}

void ChunkPool::Prepare(uint32_t chunk) {
  const uint64_t chunk_bytes = region_->superblock().chunk_bytes;
  const uint64_t offset = region_->ChunkOffset(chunk);
  region_->Zero(offset, chunk_bytes);
  zeroed_bytes_ += chunk_bytes;
  stamped_[chunk] = lives_[chunk] != 0;
  if (!stamped_[chunk]) return;
  std::array<std::byte, kLineBytes> stamp;
  WriteLifeStamp(stamp.data(), lives_[chunk], region_->crc());
  for (uint64_t at = 0; at + node_bytes_[chunk] <= chunk_bytes; at += node_bytes_[chunk]) {
    region_->Write(offset + at, stamp.data(), kLineBytes);
  }
}

absl::Status ChunkPool::Exhausted() {
  ++exhausted_;
  const std::string server = absl::StrCat("memory server ", region_->server_id());
  if (resting_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(server, " is full: all ", lives_.size(),
                     " chunks are in use; drop a tree, or start servers with more --memory"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      server, " is full for the moment: ", resting_.size(),
      " chunks that came back are free again within ", rest_ns_ / kMillisecondNs, " ms"));
}

}  // namespace pando::memory

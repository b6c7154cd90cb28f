#include "memory/chunk_pool.h"

#include <algorithm>
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
      stamped_(region->superblock().chunk_count),
      uncleared_(region->superblock().chunk_count),
      fresh_end_(region->superblock().chunk_count) {}

// Memory that was used before comes first: fresh memory costs new pages, and is what is left while
// other rests.
absl::StatusOr<ChunkPool::Taken> ChunkPool::Take(uint32_t node_bytes, uint64_t kept_back) {
  PANDO_CHECK(node_bytes >= kLineBytes && node_bytes <= region_->superblock().chunk_bytes);
  if (free_chunks() <= kept_back) return Exhausted(kept_back);
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
  } else if (next_fresh_ < fresh_end_) {
    chunk = next_fresh_++;
    node_bytes_[chunk] = node_bytes;
  } else {
    return Exhausted(kept_back);
  }
  return Taken{chunk, lives_[chunk], !stamped_[chunk]};
}

void ChunkPool::NoteLife(uint32_t chunk, uint32_t life) {
  if (LifeNewer(life, lives_[chunk])) lives_[chunk] = life;
}

void ChunkPool::GiveBack(uint32_t chunk, bool written, uint32_t life) {
  PANDO_CHECK(node_bytes_[chunk] != 0) << "never taken";
  NoteLife(chunk, life);
  uncleared_[chunk] = false;
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

void ChunkPool::Zero(uint32_t chunk) {
  const uint64_t chunk_bytes = region_->superblock().chunk_bytes;
  region_->Zero(region_->ChunkOffset(chunk), chunk_bytes);
  zeroed_bytes_ += chunk_bytes;
}

void ChunkPool::Prepare(uint32_t chunk) {
  const uint64_t chunk_bytes = region_->superblock().chunk_bytes;
  const uint64_t offset = region_->ChunkOffset(chunk);
  Zero(chunk);
  stamped_[chunk] = lives_[chunk] != 0;
  if (!stamped_[chunk]) return;
  std::array<std::byte, kLineBytes> stamp;
  WriteLifeStamp(stamp.data(), lives_[chunk], region_->crc());
  for (uint64_t at = 0; at + node_bytes_[chunk] <= chunk_bytes; at += node_bytes_[chunk]) {
    region_->Write(offset + at, stamp.data(), kLineBytes);
  }
}

std::vector<int64_t> ChunkPool::FreeFrom() const {
  std::vector<int64_t> from_ns(lives_.size(), kNeverNs);
  const int64_t now_ns = clock_->NowNs();
  for (uint32_t chunk = next_fresh_; chunk < fresh_end_; ++chunk) from_ns[chunk] = 0;
  for (const uint32_t chunk : ready_) from_ns[chunk] = 0;
  for (const Resting& resting : resting_) {
    from_ns[resting.chunk] = resting.until_ns <= now_ns ? 0 : resting.until_ns;
  }
  return from_ns;
}

ChunkPool::Run ChunkPool::FindRun(uint32_t count, uint64_t kept_back, const Taboo& taboo) const {
  PANDO_CHECK(count > 0);
  Run best;
  if (free_chunks() < count + kept_back) return best;
  std::vector<int64_t> from_ns = FreeFrom();
  for (uint32_t i = 0; i < taboo.count; ++i) from_ns[taboo.first + i] = kNeverNs;
  std::deque<uint32_t> latest;  // of the last `count` chunks, those that no later one outlasts
  for (uint32_t chunk = 0; chunk < from_ns.size(); ++chunk) {
    while (!latest.empty() && from_ns[latest.back()] <= from_ns[chunk]) latest.pop_back();
    latest.push_back(chunk);
    if (latest.front() + count <= chunk) latest.pop_front();
    if (chunk + 1 < count || from_ns[latest.front()] == kNeverNs) continue;
    if (from_ns[latest.front()] <= best.rested_ns) {
      best = {chunk + 1 - count, from_ns[latest.front()]};
    }
  }
  return best;
}

uint64_t ChunkPool::LongestRun(uint64_t kept_back) const {
  uint64_t longest = 0, length = 0;
  for (const int64_t from_ns : FreeFrom()) {
    length = from_ns == kNeverNs ? 0 : length + 1;
    longest = std::max(longest, length);
  }
  return std::min(longest, free_chunks() - std::min(free_chunks(), kept_back));
}

void ChunkPool::TakeRun(const Run& run, uint32_t count) {
  const uint32_t end = run.first + count;
  const auto is_taken = [&](uint32_t chunk) { return chunk >= run.first && chunk < end; };
  // Those that were never used: all that are left, or their end, since the highest run was found.
  if (run.first < fresh_end_ && end > next_fresh_) {
    PANDO_CHECK(end >= fresh_end_) << "not the highest run";
    fresh_end_ = std::max(run.first, next_fresh_);
  }
  std::erase_if(ready_, is_taken);
  std::erase_if(resting_, [&](const Resting& resting) {
    if (!is_taken(resting.chunk)) return false;
    PANDO_CHECK(resting.until_ns <= clock_->NowNs());
    uncleared_[resting.chunk] = true;
    ++taken_again_;
    return true;
  });
  for (uint32_t chunk = run.first; chunk < end; ++chunk) {
    if (!uncleared_[chunk]) node_bytes_[chunk] = kNoNodes;
  }
}

uint64_t ChunkPool::Clear(uint32_t chunk) {
  if (!uncleared_[chunk]) return 0;
  NoteLives(chunk);
  Zero(chunk);
  node_bytes_[chunk] = kNoNodes;
  uncleared_[chunk] = stamped_[chunk] = false;
  return region_->superblock().chunk_bytes;
}

absl::Status ChunkPool::Exhausted(uint64_t kept_back) {
  ++exhausted_;
  const std::string server = absl::StrCat("memory server ", region_->server_id());
  if (resting_.empty() || free_chunks() <= kept_back) {
    return absl::ResourceExhaustedError(
        absl::StrCat(server, " is full: all ", lives_.size() - kept_back,
                     " chunks are in use; drop a tree, or start servers with more --memory"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      server, " is full for the moment: ", resting_.size(),
      " chunks that came back are free again within ", rest_ns_ / kMillisecondNs, " ms"));
}

}  // namespace pando::memory

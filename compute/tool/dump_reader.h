// Reads a dump (dump_format.h), block by block: whatever bytes come in, what comes out are the
// entries of whole blocks that a writer finished, or a status that says where they end.
//
// Statuses: IsDumpTruncated() (DataLoss, with the offset): the bytes end before the dump does; all
// that was given out until then is right. DataLoss: damaged, with the offset of the block.
// InvalidArgument: no dump, or of another version. And what
// the source says. Each has the offset. After an error nothing more is read.
//
// Not thread-safe.
//
// Invariants
// 1. Records are given out after their block's CRC32C, number and count, the limits of the options,
//    and the order of keys have been found right.
// 2. It keeps a block in memory, and allocates nothing by a length that is not within limits.
// 3. It reads no byte beyond the block that was asked for, but for one behind the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/tool/dump_format.h"

namespace pando::tool {

bool IsDumpTruncated(const absl::Status& status);

struct DumpRecord {
  std::string_view key, value;  // hold until the next block is read
};

class DumpReader {
 public:
  // Reads 1 to `size` bytes to `bytes` and returns how many; 0 at the end.
  using Source = std::function<absl::StatusOr<size_t>(char* bytes, size_t size)>;
  explicit DumpReader(Source source) : source_(std::move(source)) {}

  // First.
  absl::StatusOr<DumpOptions> ReadHeader();
  // False: the dump is over, and whole. Else `records` are those of the next block, at least one.
  absl::StatusOr<bool> NextBlock(std::vector<DumpRecord>* records);

  // Behind the last block that was given out, or the header: up to here the dump is right.
  uint64_t offset() const { return offset_; }
  const DumpTotals& totals() const { return totals_; }
  const std::string& last_key() const { return last_key_; }

 private:
  // Appends exactly `size` bytes to `buffer_`.
  absl::Status Fill(size_t size, std::string_view what);
  absl::StatusOr<DumpBlockHeader> ReadBlockHeader();
  absl::Status TakeRecords(uint32_t count, std::vector<DumpRecord>* records);
  absl::Status TakeEnd();
  absl::Status Damaged(std::string_view what) const;

  const Source source_;
  DumpOptions options_;
  DumpTotals totals_;
  uint64_t offset_ = 0;
  std::string buffer_;  // of what is being read, from offset_ on
  std::string last_key_;
};

}  // namespace pando::tool

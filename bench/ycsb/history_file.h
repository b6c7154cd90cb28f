// One thread's part of a history, written as it happens. Not thread-safe.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/history/history.h"

namespace pando::bench {

class HistoryFile {
 public:
  // Appends: the repetitions of a run are one history.
  static absl::StatusOr<std::unique_ptr<HistoryFile>> Open(const std::string& file);
  ~HistoryFile();
  HistoryFile(const HistoryFile&) = delete;
  HistoryFile& operator=(const HistoryFile&) = delete;

  void Add(const history::Operation& operation);
  // Unavailable: something could not be written.
  absl::Status Close();

 private:
  HistoryFile(std::string name, std::FILE* stream) : name_(std::move(name)), stream_(stream) {}

  const std::string name_;
  std::FILE* stream_;
};

// How many values of that length (values.h) are to be skipped so that none which is in a file of
// keys and values is written again.
absl::StatusOr<uint64_t> ValuesUsed(const std::string& state_file, uint32_t value_bytes);

// Writes the lines of all `parts` into `file`, in this order.
absl::Status JoinFiles(const std::vector<std::string>& parts, const std::string& file);

}  // namespace pando::bench

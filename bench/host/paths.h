// Where the programs lie, and a folder for one run.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace pando::bench {

// The running program, and the folder it lies in: other programs of Pando are found beside it.
std::filesystem::path ProgramFile();
std::filesystem::path ProgramFolder();

// A folder of its own, readable by the owner only, removed with everything in it. Move-only. The
// path is short, because sockets go into it. Create() also removes what killed processes left
// behind. InvalidArgument: TMPDIR is too long for that, or not UTF-8.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Create();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  TemporaryFolder() = default;

  std::filesystem::path path_;
  int lock_fd_ = -1;  // locked for as long as the owner lives
};

}  // namespace pando::bench

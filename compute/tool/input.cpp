#include "compute/tool/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/unique_fd.h"
#include "common/wire/value_cell.h"
#include "compute/tool/byte_text.h"

namespace pando::tool {
namespace {

constexpr size_t kReadBytes = 256 << 10;

absl::StatusOr<std::string> ReadDescriptor(int fd, const std::string& name, size_t bytes_max) {
  const auto source = SourceOfFile(fd, name);
  std::string text;
  std::vector<char> buffer(kReadBytes);
  while (true) {
    const auto size = source(buffer.data(), buffer.size());
    if (!size.ok()) return size.status();
    if (*size == 0) return text;
    text.append(buffer.data(), *size);
    if (text.size() > bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has more than ", bytes_max, " bytes"));
    }
  }
}

}  // namespace

std::string NameOfInput(const std::string& path) { return path == "-" ? "standard input" : path; }

absl::StatusOr<std::string> ReadInput(const std::string& path, size_t bytes_max) {
  if (path == "-") return ReadDescriptor(STDIN_FILENO, NameOfInput(path), bytes_max);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  return ReadDescriptor(file.get(), path, bytes_max);
}

std::function<absl::StatusOr<size_t>(char*, size_t)> SourceOfFile(int fd, std::string name) {
  return [fd, name = std::move(name)](char* bytes, size_t size) -> absl::StatusOr<size_t> {
    while (true) {
      const ssize_t got = read(fd, bytes, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == EINTR) continue;
      if (errno == EISDIR) return absl::InvalidArgumentError(absl::StrCat(name, " is a directory"));
      return absl::DataLossError(absl::StrCat("cannot read ", name, ": ", strerror(errno)));
    }
  };
}

absl::Status WriteFully(int fd, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), bytes.size());
    if (done >= 0) {
      bytes.remove_prefix(static_cast<size_t>(done));
    } else if (errno != EINTR) {
      return absl::DataLossError(absl::StrCat("cannot write ", name, ": ", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> KeyOf(const std::string& word, bool hex) {
  if (hex) return FromHex(word);
  return word;
}

absl::StatusOr<std::string> ValueOf(const std::string& word, bool hex) {
  if (!hex && word.starts_with("@@")) return word.substr(1);
  if (!word.starts_with('@')) return KeyOf(word, hex);
  if (word.size() == 1) {
    return absl::InvalidArgumentError(
        "@ is followed by the name of a file; a value that begins with @ is written with two");
  }
  return ReadInput(word.substr(1), kLargeValueBytesMax);  // no tree takes longer ones
}

}  // namespace pando::tool

#include "common/registry/id_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/registry/local_registry.h"
#include "common/registry/memcached_client.h"
#include "common/registry/memcached_member.h"
#include "common/registry/memcached_registry.h"
#include "common/registry/private_directory.h"
#include "common/registry/registry.h"

namespace pando {
namespace {

constexpr std::string_view kIdsHeader = "pando-ids 1\n";
constexpr size_t kBytesMax = 64;
constexpr int64_t kNeverExpires = 0;
// Somebody else writes at the same time: not for long.
constexpr int kStoreTriesMax = 8;

std::optional<uint32_t> ParseMark(std::string_view text, const std::string& where) {
  uint32_t mark = 0;
  if (text.starts_with(kIdsHeader) && text.ends_with('\n')) {
    const std::string_view line =
        text.substr(kIdsHeader.size(), text.size() - kIdsHeader.size() - 1);
    // Behind a space: who has written it (OwnMark).
    const std::string_view digits = line.substr(0, line.find(' '));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), mark);
    if (error == std::errc() && end == digits.data() + digits.size()) return mark;
  }
  PANDO_LOG(ERROR) << where << " does not say which ids were given out: it is written again";
  return std::nullopt;
}

// Tells what one catalog has found or written, even where nobody has confirmed it, from what
// another has: two may come to the same number, so what each writes has a name of its own.
class OwnMark {
 public:
  OwnMark() {
    std::random_device device;
    name_ =
        absl::StrCat(" ", absl::Hex(uint64_t{device()} << 32 | device(), absl::kZeroPad16), "\n");
  }
  std::string Encode(uint32_t mark) const {
    return absl::StrCat(std::string(kIdsHeader), mark, name_);
  }
  void Found(std::optional<std::string> text) { found_ = std::move(text); }
  absl::Status Check(const std::optional<std::string>& kept, const std::string& where) const {
    if (!kept.has_value() || kept == found_ || kept->ends_with(name_)) return absl::OkStatus();
    const std::optional<uint32_t> mark = ParseMark(*kept, where);
    if (!mark.has_value()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(where, " says ", *mark,
                     ", which this catalog has not written: another one has begun, perhaps while "
                     "this process was stopped; stop one of them"));
  }

 private:
  std::string name_;  // behind the number
  std::optional<std::string> found_;
};

absl::Status SystemError(const char* doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(doing, " ", path));
}

class DirectoryIdMark final : public IdMark {
 public:
  explicit DirectoryIdMark(std::string directory)
      : directory_(std::move(directory)), path_(directory_ + "/ids") {}

  absl::StatusOr<std::optional<uint32_t>> Load() override {
    PANDO_ASSIGN_OR_RETURN(const std::optional<std::string> found, Read());
    own_.Found(found);
    return found.has_value() ? ParseMark(*found, path_) : std::nullopt;
  }

  absl::Status Store(uint32_t mark) override {
    // What cannot be read is replaced.
    if (const auto kept = Read(); kept.ok()) PANDO_RETURN_IF_ERROR(own_.Check(*kept, path_));
    return Write(own_.Encode(mark));
  }

 private:
  absl::StatusOr<std::optional<std::string>> Read() const {
    const UniqueFd file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT) return std::optional<std::string>();
    if (!file) return SystemError("opening", path_);
    char buffer[kBytesMax];
    const ssize_t bytes = read(file.get(), buffer, sizeof(buffer));
    if (bytes < 0) return SystemError("reading", path_);
    return std::string(buffer, static_cast<size_t>(bytes));
  }

  absl::Status Write(const std::string& text) const {
    const std::string aside = path_ + ".new";
    if (unlink(aside.c_str()) != 0 && errno != ENOENT) return SystemError("removing", aside);
    {
      const UniqueFd file(
          open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!file) return SystemError("making", aside);
      if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
          fsync(file.get()) != 0) {
        return SystemError("writing", aside);
      }
    }
    if (rename(aside.c_str(), path_.c_str()) != 0) return SystemError("renaming", aside);
    const UniqueFd directory(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || fsync(directory.get()) != 0) return SystemError("synchronising", directory_);
    return absl::OkStatus();
  }

  const std::string directory_, path_;
  OwnMark own_;
};

class MemcachedIdMark final : public IdMark {
 public:
  explicit MemcachedIdMark(const MemcachedRegistryOptions& options)
      : key_(MemcachedKeyPrefix(options.cluster) + "ids"), client_(options.host, options.port) {}

  absl::StatusOr<std::optional<uint32_t>> Load() override {
    PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> value, client_.Get(key_));
    if (!value.has_value()) return std::nullopt;
    own_.Found(value->bytes);
    return ParseMark(value->bytes, key_);
  }

  absl::Status Store(uint32_t mark) override {
    for (int tries = 0; tries < kStoreTriesMax; ++tries) {
      PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> seen, client_.Get(key_));
      if (seen.has_value()) PANDO_RETURN_IF_ERROR(own_.Check(seen->bytes, key_));
      PANDO_ASSIGN_OR_RETURN(const bool stored,
                             seen.has_value()
                                 ? client_.Replace(*seen, own_.Encode(mark), kNeverExpires)
                                 : client_.Add(key_, own_.Encode(mark), kNeverExpires));
      if (stored) return absl::OkStatus();
    }
    return absl::AbortedError(absl::StrCat(key_, ": another process writes it all the time"));
  }

 private:
  const std::string key_;
  MemcachedClient client_;
  OwnMark own_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IdMark>> OpenIdMark(std::string_view registry) {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Registry> opened, OpenRegistry(registry));
  if (!registry.starts_with(kMemcachedScheme)) {
    PANDO_RETURN_IF_ERROR(
        PrivateDirectory::Open(opened->name(), "registry", /*make=*/true).status());
    return std::make_unique<DirectoryIdMark>(opened->name());
  }
  PANDO_ASSIGN_OR_RETURN(const MemcachedRegistryOptions options, ParseMemcachedName(registry));
  return std::make_unique<MemcachedIdMark>(options);
}

}  // namespace pando

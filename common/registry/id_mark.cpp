#include "common/registry/id_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
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
#include "common/registry/registry.h"

namespace pando {
namespace {

constexpr std::string_view kIdsHeader = "pando-ids 1\n";
constexpr size_t kBytesMax = 64;
constexpr int64_t kNeverExpires = 0;
// Somebody else writes at the same time: not for long.
constexpr int kStoreTriesMax = 8;

std::string EncodeMark(uint32_t mark) { return absl::StrCat(std::string(kIdsHeader), mark, "\n"); }

std::optional<uint32_t> ParseMark(std::string_view text, const std::string& where) {
  uint32_t mark = 0;
  if (text.starts_with(kIdsHeader) && text.ends_with('\n')) {
    const std::string_view digits =
        text.substr(kIdsHeader.size(), text.size() - kIdsHeader.size() - 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), mark);
    if (error == std::errc() && end == digits.data() + digits.size()) return mark;
  }
  PANDO_LOG(ERROR) << where << " does not say which ids were given out: it is written again";
  return std::nullopt;
}

// What one catalog knows to be kept: what it found, or said last, even where nobody has confirmed
// it.
class OwnMark {
 public:
  std::optional<uint32_t> Found(std::optional<uint32_t> mark) { return known_ = said_ = mark; }
  void Said(uint32_t mark) { said_ = mark; }
  void Kept(uint32_t mark) { known_ = said_ = mark; }
  absl::Status Check(const std::optional<uint32_t>& kept, const std::string& where) const {
    if (!kept.has_value() || kept == known_ || kept == said_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(where, " says ", *kept,
                     ", which this catalog has not written: another one has begun, perhaps while "
                     "this process was stopped; stop one of them"));
  }

 private:
  std::optional<uint32_t> known_, said_;
};

absl::Status SystemError(const char* doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(doing, " ", path));
}

class DirectoryIdMark final : public IdMark {
 public:
  explicit DirectoryIdMark(std::string directory)
      : directory_(std::move(directory)), path_(directory_ + "/ids") {}

  absl::StatusOr<std::optional<uint32_t>> Load() override {
    PANDO_ASSIGN_OR_RETURN(const std::optional<uint32_t> found, Read());
    return own_.Found(found);
  }

  absl::Status Store(uint32_t mark) override {
    // What cannot be read is replaced.
    if (const auto kept = Read(); kept.ok()) PANDO_RETURN_IF_ERROR(own_.Check(*kept, path_));
    own_.Said(mark);
    PANDO_RETURN_IF_ERROR(Write(mark));
    own_.Kept(mark);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::optional<uint32_t>> Read() const {
    const UniqueFd file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT) return std::optional<uint32_t>();
    if (!file) return SystemError("opening", path_);
    char buffer[kBytesMax];
    const ssize_t bytes = read(file.get(), buffer, sizeof(buffer));
    if (bytes < 0) return SystemError("reading", path_);
    return ParseMark({buffer, static_cast<size_t>(bytes)}, path_);
  }

  absl::Status Write(uint32_t mark) const {
    const std::string aside = path_ + ".new";
    if (unlink(aside.c_str()) != 0 && errno != ENOENT) return SystemError("removing", aside);
    {
      const UniqueFd file(
          open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!file) return SystemError("making", aside);
      const std::string text = EncodeMark(mark);
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
    return own_.Found(value.has_value() ? ParseMark(value->bytes, key_) : std::nullopt);
  }

  absl::Status Store(uint32_t mark) override {
    for (int tries = 0; tries < kStoreTriesMax; ++tries) {
      PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> seen, client_.Get(key_));
      if (seen.has_value()) PANDO_RETURN_IF_ERROR(own_.Check(ParseMark(seen->bytes, key_), key_));
      const absl::StatusOr<bool> stored =
          seen.has_value() ? client_.Replace(*seen, EncodeMark(mark), kNeverExpires)
                           : client_.Add(key_, EncodeMark(mark), kNeverExpires);
      if (!stored.ok()) own_.Said(mark);
      PANDO_RETURN_IF_ERROR(stored.status());
      if (!*stored) continue;
      own_.Kept(mark);
      return absl::OkStatus();
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
    return std::make_unique<DirectoryIdMark>(opened->name());
  }
  PANDO_ASSIGN_OR_RETURN(const MemcachedRegistryOptions options, ParseMemcachedName(registry));
  return std::make_unique<MemcachedIdMark>(options);
}

}  // namespace pando

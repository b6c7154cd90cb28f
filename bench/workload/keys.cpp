#include "bench/workload/keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "bench/workload/distribution.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

constexpr uint32_t kKeyBytesLimit = 255;
constexpr uint32_t kNumberBytes = 8;

class IntegerKeys final : public Keys {
 public:
  IntegerKeys(uint32_t key_bytes, bool random)
      : key_bytes_(key_bytes), number_bytes_(std::min(key_bytes, kNumberBytes)), random_(random) {}

  void Make(uint64_t number, std::string* key) const override {
    if (random_) number = MixBits(number, static_cast<int>(8 * number_bytes_), 0);
    key->resize(key_bytes_);
    const uint64_t big_endian = __builtin_bswap64(number << (8 * (kNumberBytes - number_bytes_)));
    std::memcpy(key->data(), &big_endian, number_bytes_);
    if (key_bytes_ > kNumberBytes)
      key->replace(kNumberBytes, key_bytes_, key_bytes_ - kNumberBytes, '.');
  }
  uint32_t key_bytes_max() const override { return key_bytes_; }

 private:
  const uint32_t key_bytes_;
  const uint32_t number_bytes_;
  const bool random_;
};

class UserKeys final : public Keys {
 public:
  UserKeys(bool hashed, uint32_t zero_padding) : hashed_(hashed), zero_padding_(zero_padding) {}

  void Make(uint64_t number, std::string* key) const override {
    key->assign("user");
    const absl::AlphaNum digits(hashed_ ? YcsbHash(number) : number);
    if (digits.size() < zero_padding_) key->append(zero_padding_ - digits.size(), '0');
    absl::StrAppend(key, digits);
  }
  uint32_t key_bytes_max() const override { return 4 + std::max(kDigitsMax, zero_padding_); }

 private:
  static constexpr uint32_t kDigitsMax = 19;  // of 2^63
  const bool hashed_;
  const uint32_t zero_padding_;
};

class WordKeys final : public Keys {
 public:
  explicit WordKeys(std::vector<std::string> words) : words_(std::move(words)) {
    for (const std::string& word : words_) longest_ = std::max(longest_, word.size());
    longest_ = std::max(longest_, kNumberedBytesMin);
  }

  // Inserts find no further words: they are old ones with a number.
  void Make(uint64_t number, std::string* key) const override {
    key->assign(words_[number % words_.size()]);
    if (number < words_.size()) return;
    const std::string suffix = absl::StrCat("~", number);
    if (key->size() + suffix.size() > longest_) key->resize(longest_ - suffix.size());
    key->append(suffix);
  }
  uint32_t key_bytes_max() const override { return static_cast<uint32_t>(longest_); }

 private:
  static constexpr size_t kNumberedBytesMin = 21;  // room for any number
  const std::vector<std::string> words_;
  size_t longest_ = 0;
};

absl::StatusOr<std::unique_ptr<Keys>> CreateInteger(const KeyOptions& options,
                                                    uint64_t record_count) {
  const uint32_t key_bytes = options.key_bytes == 0 ? kNumberBytes : options.key_bytes;
  if (key_bytes < kNumberBytes && record_count > uint64_t{1} << (8 * key_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(record_count, " records do not fit keys of ",
                                                   key_bytes, " bytes: use a larger --key_bytes"));
  }
  return std::make_unique<IntegerKeys>(key_bytes, options.kind == "integer");
}

absl::StatusOr<std::unique_ptr<Keys>> CreateWords(const KeyOptions& options,
                                                  uint64_t record_count) {
  PANDO_ASSIGN_OR_RETURN(std::vector<std::string> words, ReadWords(options.words_file));
  if (words.empty() || words.size() < record_count) {
    return absl::InvalidArgumentError(absl::StrCat(options.words_file, " has ", words.size(),
                                                   " words, ", record_count,
                                                   " records were asked for"));
  }
  return std::make_unique<WordKeys>(std::move(words));
}

}  // namespace

uint64_t YcsbHash(uint64_t number) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int i = 0; i < 8; ++i) {
    hash = (hash ^ (number & 0xff)) * 1099511628211ull;
    number >>= 8;
  }
  const auto with_sign = static_cast<int64_t>(hash);
  return with_sign < 0 ? -static_cast<uint64_t>(with_sign) : static_cast<uint64_t>(with_sign);
}

absl::StatusOr<std::vector<std::string>> ReadWords(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) {
    return absl::NotFoundError(absl::StrCat(
        "cannot read ", file, ": ", std::strerror(errno),
        " (the default comes with the package wamerican-insane; or use --words_file)"));
  }
  std::vector<std::string> words;
  absl::flat_hash_set<std::string> seen;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || !seen.insert(line).second) continue;
    words.push_back(line);
  }
  return words;
}

absl::StatusOr<std::unique_ptr<Keys>> Keys::Create(const KeyOptions& options,
                                                   uint64_t record_count) {
  if (options.key_bytes > kKeyBytesLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys of ", options.key_bytes, " bytes: at most ", kKeyBytesLimit));
  }
  absl::StatusOr<std::unique_ptr<Keys>> keys;
  if (options.kind == "integer" || options.kind == "ordered") {
    keys = CreateInteger(options, record_count);
  } else if (options.kind == "user" || options.kind == "user_ordered") {
    keys = std::make_unique<UserKeys>(options.kind == "user",
                                      std::min(options.zero_padding, kKeyBytesLimit));
  } else if (options.kind == "words") {
    keys = CreateWords(options, record_count);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown kind of keys '", options.kind,
                     "': use integer, ordered, user, user_ordered or words"));
  }
  PANDO_RETURN_IF_ERROR(keys.status());
  const uint32_t longest = (*keys)->key_bytes_max();
  if (longest > kKeyBytesLimit) {
    return absl::InvalidArgumentError(absl::StrCat("keys of kind '", options.kind, "' have up to ",
                                                   longest, " bytes: keys have at most ",
                                                   kKeyBytesLimit));
  }
  if (options.key_bytes != 0 && longest > options.key_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys of kind '", options.kind, "' have up to ", longest,
                     " bytes; --key_bytes=", options.key_bytes, " is too small for them"));
  }
  return keys;
}

}  // namespace pando::bench

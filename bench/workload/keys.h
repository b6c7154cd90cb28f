// The keys of a workload: record number -> key, without a table except for words.
//
// Immutable after Create(); thread-safe. Different numbers give different keys (user keys: as far
// as YCSB's own hash goes).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pando::bench {

struct KeyOptions {
  // integer: 8-byte (or key_bytes) big-endian numbers in a random order. ordered: the same,
  // ascending. user: YCSB's "user<hash>". user_ordered: its "user<number>". words: lines of
  // `words_file`.
  std::string kind = "integer";
  // Digits of the number in a user's key, at least: with zeros before it.
  uint32_t zero_padding = 1;
  // Length of integer keys (longer ones are filled up behind the number); for the other kinds the
  // longest key allowed. 0: what the kind needs.
  uint32_t key_bytes = 0;
  std::string words_file = "/usr/share/dict/american-english-insane";
};

class Keys {
 public:
  // `record_count` keys have to exist. InvalidArgument: unknown kind, too few different keys of
  // that length, a word that is too long or empty; NotFound: no such file.
  static absl::StatusOr<std::unique_ptr<Keys>> Create(const KeyOptions& options,
                                                      uint64_t record_count);
  virtual ~Keys() = default;

  // Replaces `key`. Numbers from record_count on are for inserts.
  virtual void Make(uint64_t number, std::string* key) const = 0;
  // The longest key there can be; never 0.
  virtual uint32_t key_bytes_max() const = 0;
  std::string Make(uint64_t number) const {
    std::string key;
    Make(number, &key);
    return key;
  }
};

// FNV-1a over the 8 bytes of a number, least significant first, without its sign: the hash of
// YCSB's user keys.
uint64_t YcsbHash(uint64_t number);

// Lines of a text file in order, each once, empty ones left out.
absl::StatusOr<std::vector<std::string>> ReadWords(const std::string& file);

}  // namespace pando::bench

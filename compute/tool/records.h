// Records of a text: what `pando load` reads. Four formats, of which tsv and jsonl are those that
// `pando scan --values` writes:
//
//   lines  a key a line, with every byte up to the line feed; its value is the number of the line
//   tsv    key, tab, value a line; \t, \n, \r and \\ for what would end a field; no line ends with
//          a carriage return
//   csv    key, comma, value a line (RFC 4180): fields in double quotes may have commas, line ends
//          and doubled quotes in them; a carriage return before the end of a line and a byte order
//          mark before the first one belong to no field
//   jsonl  a JSON object a line, with "key" or "key_base64", and "value" or "value_base64"
//
// Lines that are empty are left out. Whatever the bytes are, each record has a key of 1 to 255
// bytes and a value of at most 65,536, or the status (InvalidArgument) names the line. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::tool {

enum class TextFormat { kLines, kTsv, kCsv, kJsonl };

struct TextRecord {
  std::string_view key, value;  // hold as long as their Records
};

class Records {
 public:
  // `name`: of where the text comes from, for messages.
  static absl::StatusOr<Records> Parse(std::string text, TextFormat format,
                                       const std::string& name);
  Records(Records&&) = default;
  Records& operator=(Records&&) = default;

  // In the order of keys, each once: of several the last.
  const std::vector<TextRecord>& sorted() const { return sorted_; }
  uint64_t lines() const { return lines_; }
  uint64_t empty_lines() const { return empty_lines_; }
  // Of the longest; 0 where there are none.
  size_t key_bytes() const { return key_bytes_; }
  size_t value_bytes() const { return value_bytes_; }

 private:
  friend class RecordParser;
  Records() = default;

  std::string_view Keep(std::string_view bytes);
  void Sort();

  std::vector<TextRecord> sorted_;
  // Neither moves what it holds.
  std::deque<std::string> kept_;
  uint64_t lines_ = 0, empty_lines_ = 0;
  size_t key_bytes_ = 0, value_bytes_ = 0;
};

}  // namespace pando::tool

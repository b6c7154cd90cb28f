#include "compute/tool/records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/node_layout.h"
#include "common/wire/value_cell.h"
#include "compute/tool/byte_text.h"

namespace pando::tool {
namespace {

constexpr size_t kKeptBytes = 1 << 20;  // that are allocated at once
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

class RecordParser {
 public:
  RecordParser(std::string_view text, std::string name, Records* records)
      : rest_(text), name_(std::move(name)), records_(records) {}

  absl::Status Parse(TextFormat format) {
    // What other programs put before a table is no part of its first key.
    if (format == TextFormat::kCsv && rest_.starts_with(kByteOrderMark)) {
      rest_.remove_prefix(kByteOrderMark.size());
    }
    while (!rest_.empty()) {
      ++records_->lines_;
      const absl::Status status = format == TextFormat::kCsv ? ParseCsvLine() : ParseLine(format);
      if (!status.ok()) return Annotate(status, absl::StrCat(name_, ":", line_));
      line_ = records_->lines_ + 1;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ParseLine(TextFormat format) {
    const std::string_view line = TakeLine();
    if (line.empty()) {
      ++records_->empty_lines_;
      return absl::OkStatus();
    }
    if (format == TextFormat::kTsv) return ParseTsv(line);
    if (format == TextFormat::kJsonl) return ParseJson(line);
    return Add(line, records_->Keep(std::to_string(line_)));
  }

  absl::Status ParseTsv(std::string_view line) {
    if (line.ends_with('\r')) {
      return absl::InvalidArgumentError(
          "a carriage return at the end of the line; one that belongs to a value is \\r, and "
          "\"sed 's/\\r$//'\" takes away those of line ends");
    }
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      return absl::InvalidArgumentError("no tab between a key and a value");
    }
    if (line.find('\t', tab + 1) != std::string_view::npos) {
      return absl::InvalidArgumentError("a second tab; one that belongs to a value is \\t");
    }
    PANDO_ASSIGN_OR_RETURN(const std::string_view key, TsvField(line.substr(0, tab)));
    PANDO_ASSIGN_OR_RETURN(const std::string_view value, TsvField(line.substr(tab + 1)));
    return Add(key, value);
  }
  absl::StatusOr<std::string_view> TsvField(std::string_view field) {
    if (field.find('\\') == std::string_view::npos) return field;
    PANDO_ASSIGN_OR_RETURN(const std::string bytes, UnescapeTsv(field));
    return records_->Keep(bytes);
  }

  absl::Status ParseJson(std::string_view line) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return absl::InvalidArgumentError("this is not JSON");
    PANDO_ASSIGN_OR_RETURN(const std::string key, BytesOf(json, "key"));
    PANDO_ASSIGN_OR_RETURN(const std::string value, BytesOf(json, "value"));
    return Add(records_->Keep(key), records_->Keep(value));
  }

  // A record, which may be of several lines.
  absl::Status ParseCsvLine() {
    if (rest_.starts_with('\n') || rest_.starts_with("\r\n")) {
      TakeLine();
      ++records_->empty_lines_;
      return absl::OkStatus();
    }
    PANDO_ASSIGN_OR_RETURN(const std::string_view key, CsvField());
    if (!rest_.starts_with(',')) {
      return absl::InvalidArgumentError("no comma between a key and a value");
    }
    rest_.remove_prefix(1);
    PANDO_ASSIGN_OR_RETURN(const std::string_view value, CsvField());
    if (rest_.starts_with("\r\n")) rest_.remove_prefix(1);
    if (!rest_.empty() && !rest_.starts_with('\n')) {
      return absl::InvalidArgumentError("more than a key and a value");
    }
    TakeLine();
    return Add(key, value);
  }
  // Up to the comma or line end behind it.
  absl::StatusOr<std::string_view> CsvField() {
    if (rest_.starts_with('"')) return QuotedField();
    size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
    if (end > 0 && end < rest_.size() && rest_[end] == '\n' && rest_[end - 1] == '\r') --end;
    const std::string_view field = rest_.substr(0, end);
    if (field.find('"') != std::string_view::npos) {
      return absl::InvalidArgumentError("a quote in a field that does not begin with one");
    }
    rest_.remove_prefix(end);
    return field;
  }
  absl::StatusOr<std::string_view> QuotedField() {
    std::string bytes;
    for (size_t at = 1; at < rest_.size(); ++at) {
      if (rest_[at] == '"') {
        const bool is_doubled = at + 1 < rest_.size() && rest_[at + 1] == '"';
        if (!is_doubled) {
          rest_.remove_prefix(at + 1);
          return records_->Keep(bytes);
        }
        ++at;
      }
      if (rest_[at] == '\n') ++records_->lines_;
      bytes += rest_[at];
    }
    return absl::InvalidArgumentError("a quote is not closed");
  }

  std::string_view TakeLine() {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return line;
  }

  absl::Status Add(std::string_view key, std::string_view value) {
    if (key.empty()) return absl::InvalidArgumentError("an empty key");
    if (key.size() > kKeyBytesLimit || value.size() > kLargeValueBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a key of ", key.size(), " and a value of ", value.size(), " bytes; keys have at most ",
          kKeyBytesLimit, ", values at most ", kLargeValueBytesMax));
    }
    records_->key_bytes_ = std::max(records_->key_bytes_, key.size());
    records_->value_bytes_ = std::max(records_->value_bytes_, value.size());
    records_->sorted_.push_back({key, value});
    return absl::OkStatus();
  }

  std::string_view rest_;
  const std::string name_;
  Records* const records_;
  uint64_t line_ = 1;  // the first one of the record
};

absl::StatusOr<Records> Records::Parse(std::string text, TextFormat format,
                                       const std::string& name) {
  Records records;
  records.kept_.push_back(std::move(text));
  // By address: the next bytes that are kept begin an element of their own.
  const std::string_view all = records.kept_.front();
  records.kept_.emplace_back().reserve(kKeptBytes);
  const absl::Status status = RecordParser(all, name, &records).Parse(format);
  if (!status.ok()) return status;
  records.Sort();
  return records;
}

std::string_view Records::Keep(std::string_view bytes) {
  // Never beyond what was reserved: what is there does not move.
  if (kept_.back().size() + bytes.size() > kept_.back().capacity()) {
    kept_.emplace_back().reserve(std::max(kKeptBytes, bytes.size()));
  }
  std::string& last = kept_.back();
  last.append(bytes);
  return std::string_view(last).substr(last.size() - bytes.size());
}

void Records::Sort() {
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [](const TextRecord& a, const TextRecord& b) { return a.key < b.key; });
  size_t kept = 0;
  for (const TextRecord& record : sorted_) {
    const bool repeated = kept > 0 && sorted_[kept - 1].key == record.key;
    sorted_[repeated ? kept - 1 : kept++] = record;
  }
  sorted_.resize(kept);
}

}  // namespace pando::tool

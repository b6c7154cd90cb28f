#include "compute/tool/dump_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/byte_codec.h"
#include "common/wire/crc32c.h"

namespace pando::tool {
namespace {

using wire::ByteReader;

constexpr char kTruncated[] = "pando.tool/dump_truncated";
constexpr size_t kCrcBytes = 4;

uint32_t CrcAtEnd(std::string_view bytes) {
  uint32_t crc = 0;
  ByteReader(bytes.substr(bytes.size() - kCrcBytes)).Take(&crc);
  return crc;
}
bool EndsWithItsCrc(std::string_view bytes) {
  return Crc32c(bytes.data(), bytes.size() - kCrcBytes) == CrcAtEnd(bytes);
}

}  // namespace

bool IsDumpTruncated(const absl::Status& status) {
  return status.GetPayload(kTruncated).has_value();
}

absl::Status DumpReader::Damaged(std::string_view what) const {
  return absl::DataLossError(absl::StrCat("the dump is damaged at offset ", offset_, ": ",
                                          std::string(what), "; up to there ", totals_.records,
                                          " records are right"));
}

absl::Status DumpReader::Fill(size_t size, std::string_view what) {
  const size_t wanted = buffer_.size() + size;
  size_t had = buffer_.size();
  buffer_.resize(wanted);
  while (had < wanted) {
    PANDO_ASSIGN_OR_RETURN(const size_t got, source_(buffer_.data() + had, wanted - had));
    had += got;
    if (got > 0) continue;
    buffer_.resize(had);
    absl::Status status = absl::DataLossError(absl::StrCat(
        "the dump ends too early, at offset ", offset_ + had, ", in ", std::string(what),
        "; up to offset ", offset_, " it has ", totals_.records, " whole records"));
    status.SetPayload(kTruncated, absl::Cord());
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<DumpOptions> DumpReader::ReadHeader() {
  constexpr std::string_view kWhat = "its header";
  const absl::Status magic = Fill(kDumpMagic.size(), kWhat);
  if (!magic.ok() && !IsDumpTruncated(magic)) return magic;
  if (!kDumpMagic.starts_with(buffer_)) {
    return absl::InvalidArgumentError("this is not a dump of pando: it begins with other bytes");
  }
  PANDO_RETURN_IF_ERROR(magic);
  PANDO_RETURN_IF_ERROR(Fill(kDumpHeaderFixedBytes - kDumpMagic.size(), kWhat));
  ByteReader fields(std::string_view(buffer_).substr(kDumpMagic.size()));
  uint32_t version = 0, json_bytes = 0;
  fields.Take(&version);
  fields.Take(&json_bytes);
  if (version < kDumpVersionMin || version > kDumpVersionMax) {
    return absl::InvalidArgumentError(absl::StrCat("a dump of version ", version,
                                                   "; this pando reads versions ", kDumpVersionMin,
                                                   " to ", kDumpVersionMax));
  }
  if (json_bytes > kDumpJsonBytesMax) return Damaged("the length of its options");
  PANDO_RETURN_IF_ERROR(Fill(json_bytes + kCrcBytes, kWhat));
  if (!EndsWithItsCrc(buffer_)) return Damaged("the checksum of its header");
  const auto options =
      ParseDumpOptions(std::string_view(buffer_).substr(kDumpHeaderFixedBytes, json_bytes));
  if (!options.ok()) return Damaged(std::string(options.status().message()));
  if (options->Version() != version) return Damaged("a version that its options do not have");
  options_ = *options;
  offset_ += buffer_.size();
  buffer_.clear();
  return options_;
}

absl::StatusOr<DumpBlockHeader> DumpReader::ReadBlockHeader() {
  PANDO_RETURN_IF_ERROR(Fill(kDumpBlockHeaderBytes, absl::StrCat("block ", totals_.blocks)));
  if (!EndsWithItsCrc(buffer_)) return Damaged("the checksum of a block's header");
  DumpBlockHeader header;
  ByteReader fields(buffer_);
  fields.Take(&header.kind);
  fields.Take(&header.records);
  fields.Take(&header.payload_bytes);
  fields.Take(&header.payload_crc);
  fields.Take(&header.number);
  if (header.number != totals_.blocks) {
    return Damaged(
        absl::StrCat("block ", header.number, " where block ", totals_.blocks, " has to be"));
  }
  const bool is_end = header.kind == DumpBlockHeader::kEnd;
  const bool length_is_right = is_end ? header.payload_bytes == kDumpEndPayloadBytes
                                      : header.payload_bytes <= options_.PayloadBytesMax();
  if ((!is_end && header.kind != DumpBlockHeader::kRecords) || !length_is_right ||
      (header.records == 0) != is_end) {
    return Damaged("the header of a block");
  }
  return header;
}

absl::StatusOr<bool> DumpReader::NextBlock(std::vector<DumpRecord>* records) {
  records->clear();
  buffer_.clear();
  PANDO_ASSIGN_OR_RETURN(const DumpBlockHeader header, ReadBlockHeader());
  PANDO_RETURN_IF_ERROR(Fill(header.payload_bytes, absl::StrCat("block ", totals_.blocks)));
  const std::string_view payload = std::string_view(buffer_).substr(kDumpBlockHeaderBytes);
  if (Crc32c(payload.data(), payload.size()) != header.payload_crc) {
    return Damaged("the checksum of a block");
  }
  if (header.kind == DumpBlockHeader::kEnd) {
    PANDO_RETURN_IF_ERROR(TakeEnd());
    return false;
  }
  PANDO_RETURN_IF_ERROR(TakeRecords(header.records, records));
  totals_.records += header.records;
  ++totals_.blocks;
  totals_.payload_crc = Crc32c(payload.data(), payload.size(), totals_.payload_crc);
  last_key_.assign(records->back().key);
  offset_ += buffer_.size();
  return true;
}

absl::Status DumpReader::TakeRecords(uint32_t count, std::vector<DumpRecord>* records) {
  std::string_view rest = std::string_view(buffer_).substr(kDumpBlockHeaderBytes);
  std::string_view previous = last_key_;
  while (!rest.empty()) {
    if (rest.size() < options_.LengthsBytes()) return Damaged("a record");
    const auto key_bytes = static_cast<uint8_t>(rest[0]);
    uint32_t value_bytes = static_cast<uint8_t>(rest[1]);
    if (options_.Version() > 1) ByteReader(rest.substr(1)).Take(&value_bytes);
    rest.remove_prefix(options_.LengthsBytes());
    if (key_bytes == 0 || key_bytes > options_.key_bytes_max ||
        value_bytes > options_.value_bytes_max || rest.size() < size_t{key_bytes} + value_bytes) {
      return Damaged("a record");
    }
    const DumpRecord record = {rest.substr(0, key_bytes), rest.substr(key_bytes, value_bytes)};
    rest.remove_prefix(size_t{key_bytes} + value_bytes);
    if (record.key <= previous) return Damaged("keys that do not ascend");
    previous = record.key;
    records->push_back(record);
  }
  return records->size() == count ? absl::OkStatus() : Damaged("the number of records of a block");
}

absl::Status DumpReader::TakeEnd() {
  DumpTotals said;
  ByteReader fields(std::string_view(buffer_).substr(kDumpBlockHeaderBytes));
  fields.Take(&said.records);
  fields.Take(&said.blocks);
  fields.Take(&said.payload_crc);
  if (said.records != totals_.records || said.blocks != totals_.blocks ||
      said.payload_crc != totals_.payload_crc) {
    return Damaged("the totals at its end are not those of its blocks");
  }
  offset_ += buffer_.size();
  char more = 0;
  PANDO_ASSIGN_OR_RETURN(const size_t behind, source_(&more, 1));
  return behind == 0 ? absl::OkStatus() : Damaged("bytes after its end");
}

}  // namespace pando::tool

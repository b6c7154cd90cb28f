#include "compute/tool/dump_format.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/wire/byte_codec.h"
#include "common/wire/crc32c.h"
#include "common/wire/node_layout.h"
#include "common/wire/value_cell.h"
#include "compute/tool/byte_text.h"

namespace pando::tool {
namespace {

using wire::ByteWriter;

constexpr uint32_t kNodeBytesLimit = 1 << 20;
constexpr uint32_t kDeletePersistenceMsMin = 10;
static_assert(kDumpKeyBytesMax >= kKeyBytesLimit && kDumpShortValueBytesMax >= kValueBytesLimit &&
              kDumpValueBytesMax >= kLargeValueBytesMax);

bool TakeNumber(const Json& json, const char* name, uint32_t low, uint32_t high, uint32_t* number) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned()) return false;
  const auto value = found->get<uint64_t>();
  if (value < low || value > high) return false;
  *number = static_cast<uint32_t>(value);
  return true;
}

std::string WithCrc(std::string bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return std::move(bytes) + ByteWriter().Put(crc).Take();
}

}  // namespace

std::string DumpOptionsText(const DumpOptions& options) {
  Json json = {{"key_bytes_max", options.key_bytes_max},
               {"value_bytes_max", options.value_bytes_max},
               {"node_bytes", options.node_bytes},
               {"mode", options.owned ? "owned" : "shared"}};
  if (options.narrow_reads) json["narrow_reads"] = true;
  if (options.delete_persistence_ms > 0) {
    json["delete_persistence_ms"] = options.delete_persistence_ms;
  }
  if (options.inline_value_bytes_max > 0) {
    json["inline_value_bytes_max"] = options.inline_value_bytes_max;
  }
  return json.dump();
}

absl::StatusOr<DumpOptions> ParseDumpOptions(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = absl::InvalidArgumentError("these are not the options of a tree");
  if (!json.is_object()) return bad;
  DumpOptions options;
  if (!TakeNumber(json, "key_bytes_max", 1, kDumpKeyBytesMax, &options.key_bytes_max) ||
      !TakeNumber(json, "value_bytes_max", 0, kDumpValueBytesMax, &options.value_bytes_max) ||
      !TakeNumber(json, "node_bytes", 0, kNodeBytesLimit, &options.node_bytes)) {
    return bad;
  }
  const auto mode = json.find("mode");
  if (mode == json.end() || (*mode != "owned" && *mode != "shared")) return bad;
  options.owned = *mode == "owned";
  const auto narrow = json.find("narrow_reads");
  if (narrow != json.end() && !narrow->is_boolean()) return bad;
  options.narrow_reads = narrow != json.end() && narrow->get<bool>();
  const char* const deadline = "delete_persistence_ms";
  if (json.contains(deadline) &&
      (!options.owned || !TakeNumber(json, deadline, kDeletePersistenceMsMin, UINT32_MAX,
                                     &options.delete_persistence_ms))) {
    return bad;
  }
  const char* const inlined = "inline_value_bytes_max";
  if (json.contains(inlined) &&
      !TakeNumber(json, inlined, 1, kDumpShortValueBytesMax - 1, &options.inline_value_bytes_max)) {
    return bad;
  }
  // Only a tree that has longer values has such a limit, and none that has them is without.
  const bool has_limit = options.inline_value_bytes_max > 0;
  if (has_limit ? options.value_bytes_max <= options.inline_value_bytes_max
                : options.value_bytes_max > kDumpShortValueBytesMax) {
    return bad;
  }
  return options;
}

std::string EncodeDumpHeader(const DumpOptions& options) {
  const std::string json = DumpOptionsText(options);
  return WithCrc(
      std::string(kDumpMagic) +
      ByteWriter().Put(options.Version()).Put(static_cast<uint32_t>(json.size())).Take() + json);
}

std::string EncodeDumpBlockHeader(const DumpBlockHeader& header) {
  return WithCrc(ByteWriter()
                     .Put(header.kind)
                     .Put(header.records)
                     .Put(header.payload_bytes)
                     .Put(header.payload_crc)
                     .Put(header.number)
                     .Take());
}

absl::Status DumpWriter::Add(std::string_view key, std::string_view value) {
  PANDO_CHECK(!key.empty() && key.size() <= kDumpKeyBytesMax);
  PANDO_CHECK_LE(value.size(), options_.ValueBytesLimit());
  ByteWriter lengths;
  lengths.Put(static_cast<uint8_t>(key.size()));
  if (options_.Version() == 1) {
    lengths.Put(static_cast<uint8_t>(value.size()));
  } else {
    lengths.Put(static_cast<uint32_t>(value.size()));
  }
  payload_.append(lengths.Take()).append(key).append(value);
  ++block_records_;
  return payload_.size() < kDumpBlockBytes ? absl::OkStatus() : CloseBlock();
}

absl::Status DumpWriter::CloseBlock() {
  if (block_records_ == 0) return absl::OkStatus();
  const auto bytes = static_cast<uint32_t>(payload_.size());
  const std::string header = EncodeDumpBlockHeader({.records = block_records_,
                                                    .payload_bytes = bytes,
                                                    .payload_crc = Crc32c(payload_.data(), bytes),
                                                    .number = totals_.blocks});
  const absl::Status status = sink_(header + payload_);
  if (!status.ok()) return status;
  totals_.records += std::exchange(block_records_, 0);
  ++totals_.blocks;
  totals_.payload_crc = Crc32c(payload_.data(), bytes, totals_.payload_crc);
  payload_.clear();
  return absl::OkStatus();
}

absl::Status DumpWriter::Finish() {
  const absl::Status status = CloseBlock();
  if (!status.ok()) return status;
  const std::string payload =
      ByteWriter().Put(totals_.records).Put(totals_.blocks).Put(totals_.payload_crc).Take();
  return sink_(EncodeDumpBlockHeader({.kind = DumpBlockHeader::kEnd,
                                      .payload_bytes = kDumpEndPayloadBytes,
                                      .payload_crc = Crc32c(payload.data(), payload.size()),
                                      .number = totals_.blocks}) +
               payload);
}

}  // namespace pando::tool

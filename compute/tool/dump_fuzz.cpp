// Fuzz target: whatever bytes come as a dump, what is given out is entries in order, within the
// limits of the options, and what is whole is written again as a dump of the same entries. The
// checksums keep mutations out, so that they are also tried with the right ones.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/wire/crc32c.h"
#include "compute/tool/dump_reader.h"

namespace pando::tool {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

DumpReader::Source SourceOf(std::string_view bytes) {
  return [bytes](char* to, size_t size) mutable -> absl::StatusOr<size_t> {
    const size_t count = std::min(size, bytes.size());
    std::copy_n(bytes.data(), count, to);
    bytes.remove_prefix(count);
    return count;
  };
}

std::string DumpOf(const DumpOptions& options, const Entries& entries) {
  std::string bytes;
  DumpWriter writer([&](std::string_view more) {
    bytes.append(more);
    return absl::OkStatus();
  });
  PANDO_CHECK(writer.Begin(options).ok());
  for (const auto& [key, value] : entries) PANDO_CHECK(writer.Add(key, value).ok());
  PANDO_CHECK(writer.Finish().ok());
  return bytes;
}

// Whether the dump is whole.
bool Read(std::string_view bytes, DumpOptions* options, Entries* entries) {
  DumpReader reader(SourceOf(bytes));
  const auto header = reader.ReadHeader();
  if (!header.ok()) return false;
  *options = *header;
  std::vector<DumpRecord> records;
  while (true) {
    const auto more = reader.NextBlock(&records);
    PANDO_CHECK_LE(reader.offset(), bytes.size());
    if (!more.ok()) return false;
    if (!*more) break;
    PANDO_CHECK(!records.empty());
    for (const DumpRecord& record : records) {
      PANDO_CHECK(!record.key.empty() && record.key.size() <= options->key_bytes_max);
      PANDO_CHECK_LE(record.value.size(), options->value_bytes_max);
      PANDO_CHECK(entries->empty() || entries->back().first < record.key);
      entries->emplace_back(record.key, record.value);
    }
  }
  PANDO_CHECK_EQ(reader.offset(), bytes.size());
  PANDO_CHECK_EQ(reader.totals().records, entries->size());
  return true;
}

void Check(std::string_view bytes) {
  DumpOptions options, options_again;
  Entries entries, entries_again;
  if (!Read(bytes, &options, &entries)) return;
  PANDO_CHECK(Read(DumpOf(options, entries), &options_again, &entries_again));
  PANDO_CHECK(options == options_again && entries == entries_again);
}

void PutCrc(std::string* bytes, size_t from, size_t to) {
  const uint32_t crc = Crc32c(bytes->data() + from, to - from);
  std::memcpy(bytes->data() + to, &crc, sizeof(crc));
}
uint32_t NumberAt(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

// The same with the right checksums wherever header and blocks still are.
std::string Mended(std::string bytes) {
  if (bytes.size() < kDumpHeaderFixedBytes) return bytes;
  size_t at = kDumpHeaderFixedBytes + NumberAt(bytes, kDumpMagic.size() + 4);
  if (at + 4 > bytes.size()) return bytes;
  PutCrc(&bytes, 0, at);
  at += 4;
  uint32_t all = 0;
  while (bytes.size() - at >= kDumpBlockHeaderBytes) {
    const size_t payload = at + kDumpBlockHeaderBytes, size = NumberAt(bytes, at + 8);
    if (size > bytes.size() - payload) break;
    if (NumberAt(bytes, at) == DumpBlockHeader::kEnd && size == kDumpEndPayloadBytes) {
      std::memcpy(bytes.data() + payload + 16, &all, sizeof(all));
    }
    all = Crc32c(bytes.data() + payload, size, all);
    const uint32_t crc = Crc32c(bytes.data() + payload, size);
    std::memcpy(bytes.data() + at + 12, &crc, sizeof(crc));
    PutCrc(&bytes, at, at + 24);
    at = payload + size;
  }
  return bytes;
}

}  // namespace
}  // namespace pando::tool

namespace pando {

std::vector<std::string> FuzzSeeds() {
  using tool::DumpOf;
  const tool::DumpOptions options = {.key_bytes_max = 8, .value_bytes_max = 8, .node_bytes = 1024};
  const tool::DumpOptions large = {.key_bytes_max = 255, .value_bytes_max = 255, .owned = true};
  tool::Entries many;
  const tool::DumpOptions cells = {
      .key_bytes_max = 8, .value_bytes_max = 65'536, .inline_value_bytes_max = 20};
  for (int i = 0; i < 300; ++i) many.emplace_back(std::to_string(1000 + i), std::string(200, 'v'));
  return {DumpOf(options, {}), DumpOf(options, {{"a", "1"}, {"b", ""}, {"c", "33333333"}}),
          DumpOf(large, {{std::string(255, 'k'), std::string(255, 'v')}}), DumpOf(large, many),
          DumpOf(cells, {{"a", "1"}, {"b", std::string(300, 'v')}, {"c", ""}})};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  pando::tool::Check(bytes);
  pando::tool::Check(pando::tool::Mended(bytes));
  return 0;
}

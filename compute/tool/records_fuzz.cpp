// Fuzz target: whatever text is loaded, what comes out of it are records that a tree can take, in
// order; written again as tsv or JSON they are the same.
#include <array>
#include <utility>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/records.h"

namespace pando::tool {
namespace {

constexpr std::array kFormats = {TextFormat::kLines, TextFormat::kTsv, TextFormat::kCsv,
                                 TextFormat::kJsonl};
using Entries = std::vector<std::pair<std::string, std::string>>;

bool Parse(const std::string& text, TextFormat format, Entries* entries) {
  const auto records = Records::Parse(text, format, "input");
  if (!records.ok()) {
    PANDO_CHECK(absl::IsInvalidArgument(records.status()));
    return false;
  }
  for (const TextRecord& record : records->sorted()) {
    PANDO_CHECK(!record.key.empty() && record.key.size() <= 255 && record.value.size() <= 65'536);
    PANDO_CHECK(entries->empty() || entries->back().first < record.key);
    entries->emplace_back(record.key, record.value);
  }
  return true;
}

void Check(const std::string& text, TextFormat format) {
  Entries entries, from_tsv, from_json;
  if (!Parse(text, format, &entries)) return;
  std::string tsv, json;
  for (const auto& [key, value] : entries) {
    tsv += EscapeTsv(key) + "\t" + EscapeTsv(value) + "\n";
    Json row;
    AddBytes(&row, "key", key);
    AddBytes(&row, "value", value);
    json += JsonText(row);
  }
  PANDO_CHECK(Parse(tsv, TextFormat::kTsv, &from_tsv) && from_tsv == entries);
  PANDO_CHECK(Parse(json, TextFormat::kJsonl, &from_json) && from_json == entries);
}

}  // namespace
}  // namespace pando::tool

namespace pando {

// The first byte chooses the format.
std::vector<std::string> FuzzSeeds() {
  return {std::string("\0b\na\n\nb\n", 8), "\1b\t2\na\\tb\t\\\\\\n\r\n",
          "\2b,2\r\n\"a,\"\"\n\",\" x \"\nc,\n",
          "\3{\"key\":\"b\",\"value\":\"\\u00f6\"}\n{\"value_base64\":\"AP8=\",\"key_base64\":\"/"
          "w==\"}\n"};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  pando::tool::Check(text, pando::tool::kFormats[data[0] % pando::tool::kFormats.size()]);
  return 0;
}

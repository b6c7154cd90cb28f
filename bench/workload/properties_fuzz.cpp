// Fuzz target: whatever a property file holds, it is read or refused; and what was read, written as
// escaped lines, is read as the same.
#include "bench/workload/properties.h"
#include "common/base/check.h"
#include "common/base/fuzz.h"

namespace pando::bench {
namespace {

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\t':
        escaped += "\\t";
        break;
      case '\n':
        escaped += "\\n";
        break;
      case '\r':
        escaped += "\\r";
        break;
      case '\f':
        escaped += "\\f";
        break;
      case ' ':
      case '=':
      case ':':
      case '#':
      case '!':
      case '\\':
        escaped += '\\';
        [[fallthrough]];
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace
}  // namespace pando::bench

namespace pando {

std::vector<std::string> FuzzSeeds() {
  return {"# of mine\nrecordcount=1000\r\n\n workload : a.b\nc d\n",
          "a=one, \\\n  two\n! no\nwith\\ blank=\\u0041\\tB\\=\nlast\\\\\\"};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando::bench;
  const auto properties =
      ParseProperties(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!properties.ok()) {
    PANDO_CHECK(absl::IsInvalidArgument(properties.status()));
    return 0;
  }
  std::string lines;
  for (const auto& [name, value] : *properties) {
    lines += Escaped(name) + "=" + Escaped(value) + "\n";
  }
  const auto again = ParseProperties(lines);
  PANDO_CHECK(again.ok() && *again == *properties) << lines;
  return 0;
}

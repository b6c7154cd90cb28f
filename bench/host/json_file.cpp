#include "bench/host/json_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace pando::bench {

using Json = nlohmann::json;

bool IsUtf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

absl::Status WriteJsonFile(const std::string& file, const Json& json, int indent) {
  std::ofstream out(file, std::ios::trunc);
  out << json.dump(indent, ' ', false, Json::error_handler_t::replace) << '\n';
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
}

}  // namespace pando::bench

#include "bench/host/json_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

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

absl::StatusOr<Json> ReadJsonFile(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();  // reads a directory as nothing; the parser would throw
  Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) return json;
  return absl::DataLossError(absl::StrCat(file, " cannot be read, or is not JSON"));
}

}  // namespace pando::bench

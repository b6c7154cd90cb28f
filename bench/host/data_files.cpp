#include "bench/host/data_files.h"

#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/host/paths.h"

namespace pando::bench {

absl::StatusOr<std::filesystem::path> FindDataFile(std::string_view what, std::string_view folder,
                                                   std::string_view name) {
  const std::string text(name);
  if (text.find('/') != std::string::npos || text.ends_with(".json")) return text;
  const std::filesystem::path programs = ProgramFolder();
  std::set<std::string> known;
  for (const auto& place :
       {programs / folder, programs.parent_path() / "share" / "pando" / folder}) {
    const std::filesystem::path file = place / (text + ".json");
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error)) return file;
    for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
      if (entry.path().extension() == ".json") known.insert(entry.path().stem().string());
    }
  }
  return absl::NotFoundError(
      absl::StrCat("there is no ", std::string(what), " '", text,
                   "'; there are: ", known.empty() ? "none" : absl::StrJoin(known, " ")));
}

}  // namespace pando::bench

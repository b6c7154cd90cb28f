#include "common/base/progress_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/units.h"

namespace pando {
namespace {

std::string DurationText(double seconds) {
  if (seconds < 120) return absl::StrCat(static_cast<uint64_t>(seconds + 0.5), " s");
  if (seconds < 7200) return absl::StrCat(static_cast<uint64_t>(seconds / 60 + 0.5), " min");
  return absl::StrCat(static_cast<uint64_t>(seconds / 3600 + 0.5), " h");
}

}  // namespace

std::string ProgressText(const std::string& verb, uint64_t keys, uint64_t part, uint64_t total,
                         double seconds) {
  std::string text = absl::StrCat(verb, " ", keys, " keys");
  // An estimated total may be too small.
  const double done =
      total == 0 ? 0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(total));
  if (total > 0) absl::StrAppend(&text, " (", static_cast<int>(done * 100), " %)");
  if (seconds > 0) {
    absl::StrAppend(&text, ", ", FormatCount(static_cast<double>(keys) / seconds), " a second");
  }
  if (done > 0 && done < 1) {
    absl::StrAppend(&text, ", ", DurationText(seconds * (1 - done) / done), " left");
  }
  return text;
}

}  // namespace pando

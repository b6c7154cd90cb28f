// pando erase: all keys of a range go.

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"

namespace pando::tool {
namespace {

// What has failed, and how to go on: no command to copy, which would lack the other settings, the
// tree among them.
absl::Status WithPlace(const Settings& settings, const absl::Status& status, uint64_t erased,
                       const std::string& next) {
  const std::string to = settings.to_given ? absl::StrCat(" --to=", ToHex(settings.to)) : "";
  return {status.code(), absl::StrCat(std::string(status.message()), "; ", erased,
                                      " keys were erased, and some more may be; the same command "
                                      "with --hex --from=",
                                      ToHex(next), to, " goes on there")};
}

}  // namespace

absl::Status EraseRange(const Settings& settings, const Arguments&) {
  if (!settings.from_given && !settings.to_given) {
    return absl::InvalidArgumentError(
        "which keys? Give --from or --to; --from= without a value means all keys");
  }
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  std::optional<std::string_view> to;
  if (settings.to_given) to = settings.to;
  std::string from = settings.from;
  uint64_t erased = 0;
  {
    Progress progress("erased", 0, settings.progress);
    RangeErased piece;
    EraseRangeOptions options;
    uint64_t shown = 0;
    options.progress = [&](const RangeErased& now) {
      progress.Add(now.erased - shown, now.erased - shown);
      shown = now.erased;
      return true;
    };
    while (!piece.done) {
      shown = 0;
      const absl::Status status =
          opened->session->EraseRange(*opened->tree, from, to, &piece, options);
      erased += piece.erased;
      // The timeout is of one call; a large range takes as many as it needs.
      const bool goes_on = absl::IsDeadlineExceeded(status) && piece.next != from;
      if (!status.ok() && !goes_on) return WithPlace(settings, status, erased, piece.next);
      from = piece.next;
    }
  }
  absl::Status printed;
  if (settings.json) {
    Json json;
    AddBytes(&json, "tree", settings.tree);
    json["erased"] = erased;
    printed = Print(JsonText(json));
  } else {
    printed = Print(absl::StrCat("erased ", erased, " keys\n"));
  }
  if (!printed.ok()) return printed;
  return opened->client->TreeStatus(*opened->tree);
}

}  // namespace pando::tool

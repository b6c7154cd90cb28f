// pando scan: the entries of a range, in one of several formats.

#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"

namespace pando::tool {
namespace {

std::string Field(const Settings& settings, std::string_view bytes) {
  if (settings.format == "tsv") return EscapeTsv(bytes);
  if (settings.format == "hex") return ToHex(bytes);
  return std::string(bytes);
}

std::string TextRow(const Settings& settings, const Cursor& cursor) {
  std::string row = Field(settings, cursor.key());
  if (settings.values) row += "\t" + Field(settings, cursor.value());
  return row + "\n";
}

std::string JsonRow(const Settings& settings, const Cursor& cursor) {
  Json row;
  AddBytes(&row, "key", cursor.key());
  if (settings.values) AddBytes(&row, "value", cursor.value());
  return JsonText(row);
}

}  // namespace

absl::Status Scan(const Settings& settings, const Arguments&) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  CursorOptions options{.from = settings.from,
                        .prefix = settings.prefix,
                        .reverse = settings.reverse,
                        .read_ahead = LeavesAtOnce(*opened->tree)};
  if (settings.to_given) options.to = settings.to;
  if (settings.limit > 0) options.limit = settings.limit;
  const auto cursor = opened->session->NewCursor(*opened->tree, options);
  while (cursor->Next()) {
    absl::Status written =
        Print(settings.format == "json" ? JsonRow(settings, *cursor) : TextRow(settings, *cursor));
    if (!written.ok()) return written;
  }
  if (!cursor->status().ok()) return cursor->status();
  return opened->client->TreeStatus(*opened->tree);
}

}  // namespace pando::tool

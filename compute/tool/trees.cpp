// pando create, drop, trees, count: trees as a whole.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"

namespace pando::tool {
namespace {

absl::Status PrintTreesJson(const std::vector<TreeInfo>& trees) {
  Json list = Json::array();
  for (const TreeInfo& tree : trees) {
    Json row;
    AddBytes(&row, "name", tree.name);
    row["key_bytes_max"] = tree.key_bytes_max;
    row["value_bytes_max"] = tree.value_bytes_max;
    row["inline_value_bytes_max"] = tree.inline_value_bytes_max;
    row["node_bytes"] = tree.node_bytes;
    row["mode"] = ModeText(tree.mode);
    if (tree.delete_persistence_ms > 0) row["delete_persistence_ms"] = tree.delete_persistence_ms;
    if (tree.narrow_reads) row["narrow_reads"] = true;
    list.push_back(std::move(row));
  }
  return Print(JsonText({{"trees", std::move(list)}}, /*in_lines=*/true));
}

}  // namespace

std::string ModeText(TreeOptions::Mode mode) {
  return mode == TreeOptions::Mode::kOwned ? "owned" : "shared";
}

absl::Status Create(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  TreeOptions options{.mode = settings.mode,
                      .delete_persistence_ms = settings.delete_persistence_ms,
                      .narrow_reads = settings.narrow_reads,
                      .inline_value_bytes_max = settings.inline_value_bytes};
  if (settings.key_bytes != 0) options.key_bytes_max = settings.key_bytes;
  if (settings.value_bytes_given) options.value_bytes_max = settings.value_bytes;
  return (*client)->CreateTree(settings.tree, options).status();
}

absl::Status Drop(const Settings& settings, const Arguments& arguments) {
  // Nobody drops the default tree by leaving out its name.
  if (arguments.empty() == !settings.tree_given) {
    return absl::InvalidArgumentError("which tree? Give its name, or --tree=NAME, and not both");
  }
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  return (*client)->DropTree(arguments.empty() ? settings.tree : arguments[0]);
}

absl::Status Trees(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  const auto trees = (*client)->ListTrees();
  if (!trees.ok()) return trees.status();
  if (settings.json) return PrintTreesJson(*trees);
  size_t width = 4;
  for (const TreeInfo& tree : *trees) width = std::max(width, tree.name.size());
  absl::Status status = Print(absl::StrCat(Column("name", width + 2),
                                           "key bytes  value bytes  inline  node bytes  mode\n"));
  for (const TreeInfo& tree : *trees) {
    if (!status.ok()) break;
    status = Print(Column(tree.name, width + 2) + Column(std::to_string(tree.key_bytes_max), 11) +
                   Column(std::to_string(tree.value_bytes_max), 13) +
                   Column(std::to_string(tree.inline_value_bytes_max), 8) +
                   Column(std::to_string(tree.node_bytes), 12) + ModeText(tree.mode) +
                   (tree.narrow_reads ? ", narrow reads\n" : "\n"));
  }
  return status;
}

absl::Status Count(const Settings& settings, const Arguments&) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  const auto size = opened->session->EstimateSize(*opened->tree);
  if (!size.ok()) return size.status();
  const double percent = size->relative_error * 100;
  const std::string about = absl::StrCat("about ", size->keys, " keys (give or take ",
                                         std::ceil(percent * 10) / 10, " %)");
  return Print(absl::StrCat(percent > 0 ? about : absl::StrCat(size->keys, " keys"), ", ",
                            SizeText(size->key_bytes), "; values ", SizeText(size->value_bytes),
                            "; ", size->leaves, " leaves; ",
                            SizeText(size->nodes_bytes + size->cells_bytes), " of memory\n"));
}

}  // namespace pando::tool

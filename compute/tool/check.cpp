// pando check: what is wrong with the trees, if anything.

#include "absl/strings/str_cat.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"

namespace pando::tool {
namespace {

absl::StatusOr<std::vector<std::string>> TreesToCheck(const Settings& settings, Client* client) {
  if (settings.tree_given) return std::vector<std::string>{settings.tree};
  const auto trees = client->ListTrees();
  if (!trees.ok()) return trees.status();
  std::vector<std::string> names;
  for (const TreeInfo& tree : *trees) names.push_back(tree.name);
  return names;
}

absl::StatusOr<CheckReport> CheckOne(const Settings& settings, Client* client,
                                     const std::string& name) {
  const auto tree = client->OpenTree(name);
  if (absl::IsNotFound(tree.status())) {
    return absl::NotFoundError(
        absl::StrCat("there is no tree '", name, "'; 'pando trees' lists them"));
  }
  if (!tree.ok()) return tree.status();
  const auto session = client->NewSession();
  if (!session.ok()) return session.status();
  return (*session)->Check(**tree, {.quiet_tree = settings.quiet_tree});
}

std::string Text(const std::string& name, const CheckReport& report) {
  uint64_t nodes = 0;
  for (const uint64_t count : report.nodes_per_level) nodes += count;
  std::string text =
      absl::StrCat("tree '", name, "': ", report.keys, " keys in ", nodes, " nodes on ",
                   report.nodes_per_level.size(), " levels (from the root:");
  for (size_t level = report.nodes_per_level.size(); level-- > 0;) {
    absl::StrAppend(&text, " ", report.nodes_per_level[level]);
  }
  absl::StrAppend(&text, "), keys of ", SizeText(report.key_bytes), ", values of ",
                  SizeText(report.value_bytes), ", nodes of ", SizeText(report.nodes_bytes), ", ",
                  report.missing_separators, " missing separators, ", report.locks_held,
                  " locks held");
  if (report.cells > 0 || report.cells_unused > 0) {
    absl::StrAppend(&text, "; ", report.cells, " values outside the leaves in ",
                    SizeText(report.cells_bytes), ", ", report.cells_unused, " unused");
  }
  absl::StrAppend(&text, "; on record: ", report.nodes.held, " nodes held by clients, ",
                  report.nodes.free, " free, ", report.nodes.orphans, " orphans");
  if (report.looked_again > 0) {
    absl::StrAppend(&text, ", ", report.looked_again, " places looked at again");
  }
  absl::StrAppend(&text, "\n");
  for (const std::string& problem : report.problems)
    absl::StrAppend(&text, "  problem: ", problem, "\n");
  absl::StrAppend(&text, report.ok() ? "  everything holds\n" : "");
  return text;
}

Json ToJson(const std::string& name, const CheckReport& report) {
  Json json;
  AddBytes(&json, "tree", name);
  json.update(Json{{"ok", report.ok()},
                   {"problems", report.problems},
                   {"nodes_per_level", report.nodes_per_level},
                   {"keys", report.keys},
                   {"key_bytes", report.key_bytes},
                   {"value_bytes", report.value_bytes},
                   {"nodes_bytes", report.nodes_bytes},
                   {"missing_separators", report.missing_separators},
                   {"locks_held", report.locks_held},
                   {"nodes",
                    {{"reachable", report.nodes.reachable},
                     {"held", report.nodes.held},
                     {"free", report.nodes.free},
                     {"orphans", report.nodes.orphans}}},
                   {"cells", report.cells},
                   {"cells_bytes", report.cells_bytes},
                   {"cells_unused", report.cells_unused},
                   {"looked_again", report.looked_again}});
  return json;
}

Json ToJson(const std::string& name, const absl::Status& error) {
  Json json;
  AddBytes(&json, "tree", name);
  json.update(Json{{"ok", false}, {"error", std::string(error.message())}});
  return json;
}

// What was found, of so many trees; `error`: the first one.
absl::Status Result(size_t trees, size_t damaged, size_t unchecked, const absl::Status& error) {
  if (damaged > 0) {
    const std::string others =
        unchecked > 0 ? absl::StrCat("; ", unchecked, " could not be checked") : "";
    return absl::DataLossError(
        absl::StrCat("something is wrong with ", damaged, " of ", trees, " trees", others));
  }
  if (unchecked == 0) return absl::OkStatus();
  return {error.code(), absl::StrCat(unchecked, " of ", trees, " trees could not be checked: ",
                                     std::string(error.message()))};
}

}  // namespace

absl::Status Check(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  const auto names = TreesToCheck(settings, client->get());
  if (!names.ok()) return names.status();
  Json trees = Json::array();
  size_t damaged = 0, unchecked = 0;
  absl::Status error;
  for (const std::string& name : *names) {
    const auto report = CheckOne(settings, client->get(), name);
    // Without --tree: it was dropped since it was listed.
    if (absl::IsNotFound(report.status()) && !settings.tree_given) continue;
    if (!report.ok() && settings.tree_given) return report.status();
    if (!report.ok()) {
      // It says nothing of those after it.
      error.Update(report.status());
      ++unchecked;
      trees.push_back(ToJson(name, report.status()));
      if (settings.json) continue;
      absl::Status printed = Print(
          absl::StrCat("tree '", name, "' cannot be checked: ", report.status().message(), "\n"));
      if (!printed.ok()) return printed;
      continue;
    }
    damaged += report->ok() ? 0 : 1;
    trees.push_back(ToJson(name, *report));
    if (settings.json) continue;
    if (absl::Status printed = Print(Text(name, *report)); !printed.ok()) return printed;
  }
  if (names->empty() && !settings.json) return Print("there are no trees\n");
  if (settings.json) {
    const Json result = {
        {"ok", damaged + unchecked == 0}, {"quiet_tree", settings.quiet_tree}, {"trees", trees}};
    if (absl::Status printed = Print(JsonText(result, /*in_lines=*/true)); !printed.ok())
      return printed;
  }
  return Result(trees.size(), damaged, unchecked, error);
}

}  // namespace pando::tool

#include "compute/tool/commands.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compute/tool/exit_code.h"

namespace pando::tool {
namespace {

constexpr int kScanLeaves = 32;
// A command owns keys of an owned tree for a moment at most: it shall not cost the servers much.
constexpr size_t kHotBytes = 4 << 20;
constexpr uint64_t kLogBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Connect(const Settings& settings) {
  ClientOptions options;
  options.registry = settings.registry;
  options.fabric = settings.fabric;
  options.rdma = settings.rdma;
  options.secret_file = settings.secret_file;
  options.connect_timeout_ms = 2'000;
  options.operation_timeout_ms = settings.timeout_ms;
  options.hot_bytes = kHotBytes;
  options.log_bytes = kLogBytes;
  auto client = Client::Connect(options);
  // Where there is no connection nothing is known of any key: never what says that there is none.
  if (!client.ok() && ExitCodeOf(client.status().code()) == kNo) {
    return absl::UnavailableError(client.status().message());
  }
  return client;
}

absl::StatusOr<OpenedTree> Open(const Settings& settings) {
  OpenedTree opened;
  auto client = Connect(settings);
  if (!client.ok()) return client.status();
  opened.client = *std::move(client);
  auto tree = opened.client->OpenTree(settings.tree);
  if (absl::IsNotFound(tree.status())) {
    return absl::NotFoundError(
        absl::StrCat("there is no tree '", settings.tree,
                     "'; 'pando trees' lists them, 'pando create' and 'pando load' make them"));
  }
  if (!tree.ok()) return tree.status();
  opened.tree = *std::move(tree);
  auto session = opened.client->NewSession();
  if (!session.ok()) return session.status();
  opened.session = *std::move(session);
  return opened;
}

absl::Status Get(const Settings& settings, const Arguments& arguments) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  const auto value = opened->session->Get(*opened->tree, arguments[0]);
  if (!value.ok()) return value.status();
  return Print(*value + "\n");
}

absl::Status Put(const Settings& settings, const Arguments& arguments) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  return opened->session->Put(*opened->tree, arguments[0], arguments[1]);
}

absl::Status Delete(const Settings& settings, const Arguments& arguments) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  return opened->session->Erase(*opened->tree, arguments[0]);
}

absl::Status Scan(const Settings& settings, const Arguments&) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  CursorOptions options{.from = settings.from,
                        .prefix = settings.prefix,
                        .reverse = settings.reverse,
                        .read_ahead = kScanLeaves};
  if (settings.to_given) options.to = settings.to;
  if (settings.limit > 0) options.limit = settings.limit;
  const auto cursor = opened->session->NewCursor(*opened->tree, options);
  std::string line;
  while (cursor->Next()) {
    line.assign(cursor->key());
    if (settings.values) line.append("\t").append(cursor->value());
    absl::Status written = Print(line.append("\n"));
    if (!written.ok()) return written;
  }
  if (!cursor->status().ok()) return cursor->status();
  return opened->client->TreeStatus(*opened->tree);
}

absl::Status Create(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  TreeOptions options{.mode = settings.mode};
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
  size_t width = 4;
  for (const TreeInfo& tree : *trees) width = std::max(width, tree.name.size());
  absl::Status status =
      Print(absl::StrCat(Column("name", width + 2), "key bytes  value bytes  node bytes  mode\n"));
  for (const TreeInfo& tree : *trees) {
    if (!status.ok()) break;
    status = Print(Column(tree.name, width + 2) + Column(std::to_string(tree.key_bytes_max), 11) +
                   Column(std::to_string(tree.value_bytes_max), 13) +
                   Column(std::to_string(tree.node_bytes), 12) +
                   (tree.mode == TreeOptions::Mode::kOwned ? "owned\n" : "shared\n"));
  }
  return status;
}

absl::Status Flush(const Settings& settings, const Arguments&) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  if (opened->tree->mode() == TreeOptions::Mode::kShared) {
    return Print("a shared tree has nothing to flush: its writes go to their leaves at once\n");
  }
  // Who asks for keys of an owner that has ended takes them over, and its log with them.
  std::vector<KeyValue> rows;
  absl::Status status = opened->session->Scan(*opened->tree, "", 1, &rows);
  if (!status.ok()) return status;
  if (opened->client->Stats().owned.ranges == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "keys of tree '", settings.tree,
        "' belong to a compute server that is at work: "
        "it flushes when it needs to, when its program asks (Session::Flush()), and when "
        "it ends"));
  }
  status = opened->session->Flush(*opened->tree);
  if (!status.ok()) return status;
  const OwnedStats owned = opened->client->Stats().owned;
  return Print(absl::StrCat("everything is in its leaf; ", owned.flushed + owned.adopted_messages,
                            " writes were in logs alone\n"));
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
                            "; ", size->leaves, " leaves; ", SizeText(size->nodes_bytes),
                            " of memory\n"));
}

absl::Status Stats(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  absl::Status problem;
  for (const ServerStatus& server : (*client)->Servers()) {
    const std::string title = absl::StrCat("memory server ", server.id);
    if (!server.available) {
      problem = absl::UnavailableError(title + " does not answer");
      continue;
    }
    absl::Status status = Print(absl::StrCat(
        title, server.is_catalog ? " (catalog)" : "", ": ", SizeText(server.region_bytes), ", ",
        SizeText(server.used_bytes), " used, ", SizeText(server.free_bytes), " free\n"));
    for (const auto& [name, value] : server.counters) {
      if (status.ok()) status = Print("  " + Column(name, 20) + std::to_string(value) + "\n");
    }
    if (!status.ok()) return status;
  }
  return problem;
}

}  // namespace pando::tool

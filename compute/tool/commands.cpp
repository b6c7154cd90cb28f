#include "compute/tool/commands.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/exit_code.h"
#include "compute/tool/input.h"

namespace pando::tool {
namespace {

// A command owns keys of an owned tree for a moment at most: it shall not cost the servers much.
constexpr size_t kHotBytes = 4 << 20;
constexpr uint64_t kLogBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Connect(const Settings& settings, bool owner) {
  ClientOptions options;
  options.owner = owner;
  options.registry = settings.registry;
  options.fabric = settings.fabric;
  options.rdma = settings.rdma;
  options.secret_file = settings.secret_file;
  options.connect_timeout_ms = 2'000;
  options.operation_timeout_ms = settings.timeout_ms;
  options.hot_bytes = kHotBytes;
  options.log_bytes = kLogBytes;
  options.spread_ranges = false;  // a command ends soon
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

bool IsShortage() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error& thrown) {
    return thrown.code() == std::errc::resource_unavailable_try_again ||
           thrown.code() == std::errc::not_enough_memory;
  } catch (...) {
    return false;
  }
}

absl::Status OrShortage(absl::FunctionRef<absl::Status()> run) {
  try {
    return run();
  } catch (...) {
    if (!IsShortage()) throw;
    return absl::ResourceExhaustedError(kShortageText);
  }
}

int LeavesAtOnce(const Tree& tree) {
  constexpr uint64_t kLeavesMax = 32, kBytes = 8 << 20;
  const uint64_t inlined = tree.inline_value_bytes_max();
  if (tree.value_bytes_max() <= inlined) return kLeavesMax;
  // Values beside a leaf are READ with it.
  const uint64_t slots = tree.node_bytes() / (1 + inlined) + 1;
  return static_cast<int>(
      std::clamp(kBytes / (slots * tree.value_bytes_max()), uint64_t{1}, kLeavesMax));
}

absl::Status Get(const Settings& settings, const Arguments& arguments) {
  const auto key = KeyOf(arguments[0], settings.hex);
  if (!key.ok()) return key.status();
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  const auto value = opened->session->Get(*opened->tree, *key);
  if (!value.ok()) return value.status();
  if (!settings.json) return Print((settings.hex ? ToHex(*value) : *value) + "\n");
  Json row;
  AddBytes(&row, "key", *key);
  AddBytes(&row, "value", *value);
  return Print(JsonText(row));
}

absl::Status Put(const Settings& settings, const Arguments& arguments) {
  const auto key = KeyOf(arguments[0], settings.hex);
  if (!key.ok()) return key.status();
  const auto value = ValueOf(arguments[1], settings.hex);
  if (!value.ok()) return value.status();
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  return opened->session->Put(*opened->tree, *key, *value);
}

absl::Status Delete(const Settings& settings, const Arguments& arguments) {
  const auto key = KeyOf(arguments[0], settings.hex);
  if (!key.ok()) return key.status();
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  return opened->session->Erase(*opened->tree, *key);
}

}  // namespace pando::tool

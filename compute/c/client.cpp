#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/sized.h"
#include "pando/client.h"

namespace pando::c {
namespace {

// Room for the result of a program's own upsert function: for the longest value of any tree.
constexpr size_t kUpsertResultBytes = 64 << 10;

constexpr pando_client_options kClientDefaults = PANDO_CLIENT_OPTIONS_INIT;
constexpr pando_tree_options kTreeDefaults = PANDO_TREE_OPTIONS_INIT;

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

absl::StatusOr<Techniques> TechniquesOf(int64_t number) {
  switch (number) {
    case PANDO_TECHNIQUES_ALL:
      return Techniques::Everything();
    case PANDO_TECHNIQUES_SHERMAN:
      return Techniques::Sherman();
    case PANDO_TECHNIQUES_FG_PLUS:
      return Techniques::FgPlus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("techniques: there are no number ", number));
  }
}

absl::StatusOr<ClientOptions> ClientOptionsOf(const pando_client_options* given) {
  PANDO_ASSIGN_OR_RETURN(const pando_client_options c,
                         ReadSized(given, kClientDefaults, "client options"));
  if (c.registry == nullptr) {
    return absl::InvalidArgumentError("registry is NULL: say where the memory servers are found");
  }
  ClientOptions options;
  options.registry = c.registry;
  if (c.fabric != nullptr) options.fabric = c.fabric;
  options.secret_file = TextOf(c.secret_file);
  options.connect_timeout_ms = c.connect_timeout_ms;
  options.operation_timeout_ms = c.operation_timeout_ms;
  options.index_cache_bytes = c.index_cache_bytes;
  options.value_places_bytes = c.value_places_bytes;
  options.hot_bytes = c.hot_bytes;
  options.log_bytes = c.log_bytes;
  options.service_address = TextOf(c.service_address);
  options.lend_after_ms = c.lend_after_ms;
  options.seed = c.seed;
  options.rdma.device = TextOf(c.rdma_device);
  PANDO_ASSIGN_OR_RETURN(options.techniques, TechniquesOf(c.techniques));
  PANDO_RETURN_IF_ERROR(ReadFlag(c.owner, "owner", &options.owner));
  PANDO_RETURN_IF_ERROR(ReadFlag(c.spread_ranges, "spread_ranges", &options.spread_ranges));
  PANDO_RETURN_IF_ERROR(
      Narrow(c.memory_servers_min, "memory_servers_min", &options.memory_servers_min));
  PANDO_RETURN_IF_ERROR(
      Narrow(c.coroutines_per_session, "coroutines_per_session", &options.coroutines_per_session));
  PANDO_RETURN_IF_ERROR(Narrow(c.service_threads, "service_threads", &options.service_threads));
  PANDO_RETURN_IF_ERROR(Narrow(c.flush_threads, "flush_threads", &options.flush_threads));
  PANDO_RETURN_IF_ERROR(Narrow(c.ranges_min, "ranges_min", &options.ranges_min));
  PANDO_RETURN_IF_ERROR(Narrow(c.dirty_percent, "dirty_percent", &options.dirty_percent));
  PANDO_RETURN_IF_ERROR(Narrow(c.handover_max, "handover_max", &options.handover_max));
  PANDO_RETURN_IF_ERROR(Narrow(c.combine_max, "combine_max", &options.combine_max));
  PANDO_RETURN_IF_ERROR(Narrow(c.rdma_port, "rdma_port", &options.rdma.port));
  PANDO_RETURN_IF_ERROR(Narrow(c.rdma_gid_index, "rdma_gid_index", &options.rdma.gid_index));
  PANDO_RETURN_IF_ERROR(Narrow(c.rdma_mtu_bytes, "rdma_mtu_bytes", &options.rdma.mtu_bytes));
  PANDO_RETURN_IF_ERROR(
      Narrow(c.rdma_traffic_class, "rdma_traffic_class", &options.rdma.traffic_class));
  PANDO_RETURN_IF_ERROR(
      Narrow(c.rdma_service_level, "rdma_service_level", &options.rdma.service_level));
  PANDO_RETURN_IF_ERROR(Narrow(c.rdma_pkey_index, "rdma_pkey_index", &options.rdma.pkey_index));
  return options;
}

absl::StatusOr<TreeOptions> TreeOptionsOf(const pando_tree_options* given) {
  PANDO_ASSIGN_OR_RETURN(const pando_tree_options c,
                         ReadSized(given, kTreeDefaults, "tree options"));
  TreeOptions options;
  PANDO_RETURN_IF_ERROR(Narrow(c.key_bytes_max, "key_bytes_max", &options.key_bytes_max));
  PANDO_RETURN_IF_ERROR(Narrow(c.value_bytes_max, "value_bytes_max", &options.value_bytes_max));
  PANDO_RETURN_IF_ERROR(Narrow(c.node_bytes, "node_bytes", &options.node_bytes));
  PANDO_RETURN_IF_ERROR(
      Narrow(c.delete_persistence_ms, "delete_persistence_ms", &options.delete_persistence_ms));
  PANDO_RETURN_IF_ERROR(
      Narrow(c.inline_value_bytes_max, "inline_value_bytes_max", &options.inline_value_bytes_max));
  if (c.mode != PANDO_MODE_SHARED && c.mode != PANDO_MODE_OWNED) {
    return absl::InvalidArgumentError(absl::StrCat("mode: there is no number ", c.mode));
  }
  options.mode =
      c.mode == PANDO_MODE_OWNED ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared;
  PANDO_RETURN_IF_ERROR(ReadFlag(c.narrow_reads, "narrow_reads", &options.narrow_reads));
  return options;
}

// Creates or opens.
template <typename Make>
pando_code MakeTree(pando_client* client, const char* name, pando_tree** tree, const Make& make) {
  return CallMaking(tree, "tree", [&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckGiven(name, "the tree's name"));
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Tree> made, make(*held->client));
    return Publish<TreeObject>(tree, held.shared(), std::move(made));
  });
}

absl::StatusOr<std::string> CallUpsert(pando_upsert_function function, void* context,
                                       std::string_view key,
                                       std::optional<std::string_view> present,
                                       std::string_view operand) {
  // Not cleared: a lock is held. The function cannot come back here, as it may not call Pando.
  thread_local std::unique_ptr<char[]> result;
  if (result == nullptr) result.reset(new char[kUpsertResultBytes]);
  size_t size = 0;
  const pando_bytes present_bytes = BytesOf(present.value_or(std::string_view()));
  const CallbackScope scope(Inside::kCallback);
  const int refused =
      function(context, BytesOf(key), present.has_value() ? &present_bytes : nullptr,
               BytesOf(operand), result.get(), kUpsertResultBytes, &size);
  if (refused != 0) return absl::FailedPreconditionError(absl::StrCat("it refused: ", refused));
  if (size > kUpsertResultBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has made ", size, " bytes, in room of ", kUpsertResultBytes));
  }
  return std::string(result.get(), size);
}

}  // namespace

void ClientObject::LetTreesGo() {
  std::vector<std::shared_ptr<const Tree>> idle;  // closed outside the mutex
  std::lock_guard lock(mutex);
  std::erase_if(closed_trees, [&idle](ClosedTree& closed) {
    if (*closed.submitted != 0) return false;
    idle.push_back(std::move(closed.tree));
    return true;
  });
}

}  // namespace pando::c

using pando::c::Call;
using pando::c::ClientObject;
using pando::c::Held;
using pando::c::TreeObject;

extern "C" {

pando_code pando_connect(const pando_client_options* options, pando_client** client) {
  return pando::c::CallMaking(client, "client", [&]() -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(const pando::ClientOptions read, pando::c::ClientOptionsOf(options));
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<pando::Client> made, pando::Client::Connect(read));
    return pando::c::Publish<ClientObject>(client, std::move(made));
  });
}

pando_code pando_close_client(pando_client* client) {
  return Call([&] { return pando::c::Close(client, pando::c::Kind::kClient); });
}

pando_code pando_leave(pando_client* client, int64_t timeout_ms) {
  return Call([&]() -> absl::Status {
    if (timeout_ms < 0) return absl::InvalidArgumentError("timeout_ms is below 0");
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    return held->client->Leave(timeout_ms);
  });
}

pando_code pando_client_fenced(const pando_client* client, int32_t* fenced) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckGiven(fenced, "fenced"));
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    *fenced = held->client->fenced() ? 1 : 0;
    return absl::OkStatus();
  });
}

pando_code pando_compute_server_id(const pando_client* client, uint16_t* id) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckGiven(id, "id"));
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    *id = held->client->compute_server_id();
    return absl::OkStatus();
  });
}

pando_code pando_create_tree(pando_client* client, const char* name,
                             const pando_tree_options* options, pando_tree** tree) {
  return pando::c::MakeTree(
      client, name, tree,
      [&](pando::Client& connected) -> absl::StatusOr<std::unique_ptr<pando::Tree>> {
        PANDO_ASSIGN_OR_RETURN(const pando::TreeOptions read, pando::c::TreeOptionsOf(options));
        return connected.CreateTree(name, read);
      });
}

pando_code pando_open_tree(pando_client* client, const char* name, pando_tree** tree) {
  return pando::c::MakeTree(client, name, tree,
                            [&](pando::Client& connected) { return connected.OpenTree(name); });
}

pando_code pando_close_tree(pando_tree* tree) {
  return Call([&] { return pando::c::Close(tree, pando::c::Kind::kTree); });
}

pando_code pando_drop_tree(pando_client* client, const char* name) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckGiven(name, "the tree's name"));
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    return held->client->DropTree(name);
  });
}

pando_code pando_get_tree_info(const pando_tree* tree, pando_tree_info* info) {
  return Call([&]() -> absl::Status {
    Held<TreeObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(tree));
    const pando::Tree& of = *held->tree;
    return pando::c::WriteSized(
        pando_tree_info{.size = sizeof(pando_tree_info),
                        .name = of.name().c_str(),
                        .key_bytes_max = of.key_bytes_max(),
                        .value_bytes_max = of.value_bytes_max(),
                        .node_bytes = of.node_bytes(),
                        .mode = static_cast<int64_t>(of.mode()),
                        .narrow_reads = of.narrow_reads() ? 1 : 0,
                        .delete_persistence_ms = of.delete_persistence_ms(),
                        .inline_value_bytes_max = of.inline_value_bytes_max()},
        info, "info");
  });
}

pando_code pando_tree_status(pando_client* client, const pando_tree* tree) {
  return Call([&]() -> absl::Status {
    Held<ClientObject> held;
    Held<TreeObject> of;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    PANDO_RETURN_IF_ERROR(of.Take(tree));
    if (of->parent().get() != &*held) {
      return absl::InvalidArgumentError("the tree was opened by another client");
    }
    return held->client->TreeStatus(*of->tree);
  });
}

pando_code pando_register_upsert(pando_client* client, uint32_t number,
                                 pando_upsert_function function, void* context) {
  return Call([&]() -> absl::Status {
    if (function == nullptr) return absl::InvalidArgumentError("the function is NULL");
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    return held->client->RegisterUpsertFunction(
        number, [function, context](std::string_view key, std::optional<std::string_view> present,
                                    std::string_view operand) {
          return pando::c::CallUpsert(function, context, key, present, operand);
        });
  });
}

}  // extern "C"

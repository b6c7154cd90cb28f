// What a client says of its cluster: trees, memory servers, owners, counters.
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/sized.h"
#include "pando/client.h"

namespace pando::c {
namespace {

// Asks `ask(Client&)` for things, and makes a list of elements `describe(thing)` of them.
template <typename Element, typename Ask, typename Describe>
pando_code ListOf(pando_client* client, pando_list** list, const Ask& ask,
                  const Describe& describe) {
  return CallMaking(list, "list", [&]() -> absl::Status {
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    PANDO_ASSIGN_OR_RETURN(auto found, ask(*held));
    // Elements point into it, so it stays in its place.
    const auto things = std::make_shared<decltype(found)>(std::move(found));
    std::vector<Element> elements;
    elements.reserve(things->size());
    for (const auto& thing : *things) elements.push_back(describe(thing));
    return PublishList(std::move(elements), things, list);
  });
}

// The client's tree, while `held` lives.
absl::StatusOr<const Tree*> TreeOf(const ClientObject& client, const pando_tree* tree,
                                   Held<TreeObject>* held) {
  PANDO_RETURN_IF_ERROR(held->Take(tree));
  if ((*held)->parent().get() != &client) {
    return absl::InvalidArgumentError("the tree was opened by another client");
  }
  return (*held)->tree.get();
}

pando_range_info Describe(const OwnerInfo& owner) {
  pando_range_info info{};
  info.compute_server = owner.compute_server;
  info.incarnation = owner.incarnation;
  info.address = owner.address.c_str();
  return info;
}

struct Server {
  ServerStatus status;
  std::vector<pando_counter> counters;
};

std::vector<Server> DescribeServers(std::vector<ServerStatus> servers) {
  std::vector<Server> described;
  described.reserve(servers.size());
  for (ServerStatus& status : servers) {
    Server& server = described.emplace_back(Server{std::move(status), {}});
    for (const auto& [name, value] : server.status.counters) {
      server.counters.push_back({name.c_str(), value});
    }
  }
  return described;
}

pando_client_stats StatsOf(const ClientStats& stats) {
  const FabricStats& f = stats.fabric;
  const TreeStats& t = stats.tree;
  const OwnedStats& o = stats.owned;
  return {.size = sizeof(pando_client_stats),
          .reads = f.reads,
          .writes = f.writes,
          .cas = f.cas,
          .faa = f.faa,
          .chains = f.chains,
          .round_trips = f.round_trips,
          .bytes_read = f.bytes_read,
          .bytes_written = f.bytes_written,
          .calls = f.calls,
          .cache_hits = t.cache_hits,
          .cache_misses = t.cache_misses,
          .cache_evictions = t.cache_evictions,
          .cache_bytes = t.cache_bytes,
          .splits = t.splits,
          .root_splits = t.root_splits,
          .merges = t.merges,
          .root_shrinks = t.root_shrinks,
          .nodes_reused = t.nodes_reused,
          .separator_repairs = t.separator_repairs,
          .torn_retries = t.torn_retries,
          .stale_retries = t.stale_retries,
          .moves_right = t.moves_right,
          .lock_attempts = t.lock_attempts,
          .lock_failures = t.lock_failures,
          .handovers = t.handovers,
          .combined = t.combined,
          .repairs = t.repairs,
          .redone = t.redone,
          .lock_recoveries = t.lock_recoveries,
          .lost_races = t.lost_races,
          .owned_hits = o.hits,
          .owned_misses = o.misses,
          .owned_ranges = o.ranges,
          .owned_hot_bytes = o.hot_bytes,
          .owned_dirty_bytes = o.dirty_bytes,
          .owned_claims = o.claims,
          .owned_adoptions = o.adoptions,
          .owned_adopted_messages = o.adopted_messages,
          .owned_log_batches = o.log_batches,
          .owned_log_messages = o.log_messages,
          .owned_log_bytes = o.log_bytes,
          .owned_base_lines = o.base_lines,
          .owned_flushed = o.flushed,
          .owned_flush_rounds = o.flush_rounds,
          .owned_refused = o.refused,
          .owned_splits = o.splits,
          .owned_given = o.given,
          .owned_tombstones = o.tombstones,
          .owned_oldest_tombstone_ms = o.oldest_tombstone_ms,
          .place_hits = t.place_hits,
          .place_misses = t.place_misses,
          .place_bytes = t.place_bytes,
          .owned_forwarded = o.forwarded,
          .owned_served = o.served,
          .owned_messages = o.messages,
          .owned_flushed_leaves = o.flushed_leaves,
          .owned_log_used_bytes = o.log_used_bytes,
          .owned_log_capacity_bytes = o.log_capacity_bytes,
          .owned_lent = o.lent};
}

}  // namespace
}  // namespace pando::c

using pando::c::ClientObject;
using pando::c::Held;
using pando::c::ListOf;
using pando::c::TreeObject;

extern "C" {

pando_code pando_list_trees(pando_client* client, pando_list** list) {
  return ListOf<pando_tree_info>(
      client, list, [](ClientObject& held) { return held.client->ListTrees(); },
      [](const pando::TreeInfo& tree) {
        return pando_tree_info{.size = sizeof(pando_tree_info),
                               .name = tree.name.c_str(),
                               .key_bytes_max = tree.key_bytes_max,
                               .value_bytes_max = tree.value_bytes_max,
                               .node_bytes = tree.node_bytes,
                               .mode = static_cast<int64_t>(tree.mode),
                               .narrow_reads = tree.narrow_reads ? 1 : 0,
                               .delete_persistence_ms = tree.delete_persistence_ms,
                               .inline_value_bytes_max = tree.inline_value_bytes_max};
      });
}

pando_code pando_list_servers(pando_client* client, pando_list** list) {
  using Servers = std::vector<pando::c::Server>;
  return ListOf<pando_server_info>(
      client, list,
      [](ClientObject& held) -> absl::StatusOr<Servers> {
        return pando::c::DescribeServers(held.client->Servers());
      },
      [](const pando::c::Server& server) {
        const pando::ServerStatus& status = server.status;
        return pando_server_info{
            sizeof(pando_server_info), status.id,         status.available,  status.is_catalog,
            status.region_bytes,       status.free_bytes, status.used_bytes, server.counters.data(),
            server.counters.size()};
      });
}

pando_code pando_owner_of(pando_client* client, const pando_tree* tree, pando_bytes key,
                          pando_list** list) {
  using Owners = std::vector<pando::OwnerInfo>;
  return ListOf<pando_range_info>(
      client, list,
      [&](ClientObject& held) -> absl::StatusOr<Owners> {
        PANDO_RETURN_IF_ERROR(pando::c::CheckBytes(key, "the key"));
        Held<TreeObject> of;
        PANDO_ASSIGN_OR_RETURN(const pando::Tree* const open, pando::c::TreeOf(held, tree, &of));
        PANDO_ASSIGN_OR_RETURN(pando::OwnerInfo owner,
                               held.client->OwnerOf(*open, pando::c::ViewOf(key)));
        return Owners{std::move(owner)};
      },
      [](const pando::OwnerInfo& owner) { return pando::c::Describe(owner); });
}

pando_code pando_list_ranges(pando_client* client, const pando_tree* tree, pando_list** list) {
  return ListOf<pando_range_info>(
      client, list,
      [&](ClientObject& held) -> absl::StatusOr<std::vector<pando::RangeInfo>> {
        Held<TreeObject> of;
        PANDO_ASSIGN_OR_RETURN(const pando::Tree* const open, pando::c::TreeOf(held, tree, &of));
        return held.client->ListRanges(*open);
      },
      [](const pando::RangeInfo& range) {
        pando_range_info info = pando::c::Describe(range.owner);
        info.low = pando::c::BytesOf(range.low);
        info.high = pando::c::BytesOf(range.high);
        return info;
      });
}

pando_code pando_list_members(pando_client* client, pando_list** list) {
  return ListOf<pando_member_info>(
      client, list, [](ClientObject& held) { return held.client->ListMembers(); },
      [](const pando::MemberInfo& member) {
        return pando_member_info{sizeof(pando_member_info),
                                 member.identity.compute_server,
                                 member.identity.incarnation,
                                 member.identity.address.c_str(),
                                 member.ended,
                                 member.recovering,
                                 member.ranges,
                                 member.log_server,
                                 member.log_bytes};
      });
}

pando_code pando_get_client_stats(const pando_client* client, pando_client_stats* stats) {
  return pando::c::Call([&]() -> absl::Status {
    Held<ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    return pando::c::WriteSized(pando::c::StatsOf(held->client->Stats()), stats, "stats");
  });
}

}  // extern "C"

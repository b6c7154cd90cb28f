// Bodies of control messages: one Encode and one Parse each.

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/body_parser.h"
#include "common/wire/byte_codec.h"
#include "common/wire/control.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_layout.h"

namespace pando {
namespace {

using wire::ByteReader;
using wire::ByteWriter;
using wire::DoneOr;
using wire::Malformed;

constexpr size_t kCounterNameBytesMax = 120;

// Fields in their order on the wire: Encode and Parse of a body go by one list.
constexpr auto kShape = [](auto& shape) {
  return std::tie(shape.key_bytes_max, shape.value_bytes_max, shape.node_bytes, shape.packet_bytes,
                  shape.inline_value_bytes_max);
};
constexpr auto kTreeServer = [](auto& on) { return std::tie(on.server, on.life); };
constexpr auto kEntryAfterRoot = [](auto& entry) {
  return std::tie(entry.root_lock_index, entry.version, entry.features.compatible,
                  entry.features.read_compatible, entry.features.incompatible,
                  entry.delete_persistence_ms, entry.created);
};
constexpr auto kServerInfo = [](auto& info) {
  return std::tie(info.superblock, info.is_catalog, info.free_bytes, info.used_bytes, info.lease_us,
                  info.life, info.highest_id, info.serving_lease_us);
};
constexpr auto kJoinRequest = [](auto& request) {
  return std::tie(request.process_id, request.id_floor);
};
constexpr auto kJoinReply = [](auto& reply) {
  return std::tie(reply.compute_server, reply.incarnation, reply.proof);
};
constexpr auto kTreeAttach = [](auto& attach) { return std::tie(attach.tree_id, attach.life); };
constexpr auto kTreeGrowth = [](auto& growth) {
  return std::tie(growth.tree_id, growth.on.server, growth.on.life);
};

void PutShape(const TreeShape& shape, ByteWriter* writer) {
  writer->PutFields(kShape(shape)).Put(static_cast<uint8_t>(shape.has_cells ? 1 : 0));
}
bool TakeShape(ByteReader* reader, TreeShape* shape) {
  reader->TakeFields(kShape(*shape));
  uint8_t has_cells = 0;
  reader->Take(&has_cells);
  shape->has_cells = has_cells == 1;
  return has_cells <= 1 && (shape->has_cells || shape->inline_value_bytes_max == 0);
}

// CreateTreeRequest::windows, in the byte of its mode.
constexpr uint8_t kWindowsBit = 0x80;

absl::Status CheckName(std::string_view name) {
  if (!name.empty() && name.size() <= kTreeNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tree name of ", name.size(), " bytes, must be 1 to ", kTreeNameBytesMax));
}

void PutTreeServers(const TreeServerList& servers, ByteWriter* writer) {
  writer->Put(static_cast<uint32_t>(servers.size()));
  for (const TreeServer& on : servers) writer->PutFields(kTreeServer(on));
}
bool TakeTreeServers(ByteReader* reader, TreeServerList* servers) {
  uint32_t count = 0;
  if (!reader->Take(&count) || count > kTreeServersMax) return false;
  for (uint32_t i = 0; i < count; ++i) {  // ends with the bytes, whatever `count` says
    TreeServer& on = servers->emplace_back();
    if (!reader->TakeFields(kTreeServer(on)) || on.life == 0) return false;
  }
  return true;
}

void PutEntry(const CatalogEntry& entry, ByteWriter* writer) {
  writer->PutString(entry.name).Put(entry.tree_id);
  PutShape(entry.shape, writer);
  writer->Put(entry.root_record.raw()).PutFields(kEntryAfterRoot(entry));
  PutTreeServers(entry.servers, writer);
}
bool TakeEntry(ByteReader* reader, CatalogEntry* entry) {
  uint64_t root_record = 0;
  reader->TakeString(kTreeNameBytesMax, &entry->name);
  reader->Take(&entry->tree_id);
  const bool is_shape = TakeShape(reader, &entry->shape);
  reader->Take(&root_record);
  entry->root_record = RemoteAddress::FromRaw(root_record);
  return is_shape && reader->TakeFields(kEntryAfterRoot(*entry)) &&
         TakeTreeServers(reader, &entry->servers) && !entry->name.empty();
}

// What a client relies on when it opens the tree, whatever kind of tree it is: that the entry's
// features say, which the client looks at (compute/route).
absl::Status CheckEntry(const CatalogEntry& entry) {
  if (entry.version != CatalogEntry{}.version) {
    return absl::FailedPreconditionError(
        absl::StrCat("tree '", entry.name, "': its entry in the catalog has version ",
                     entry.version, ", this release knows version ", CatalogEntry{}.version,
                     "; use the release that created it"));
  }
  const auto layout = entry.Layout();
  const bool has_cells = (entry.features.incompatible & kIncompatibleCells) != 0;
  if (!layout.ok() || layout->node_bytes() != entry.shape.node_bytes ||
      entry.shape.has_cells != has_cells) {
    return Malformed(absl::StrCat("catalog entry: shape of tree '", entry.name, "'"));
  }
  if (entry.shape.packet_bytes < layout->lines_per_group() * kLineBytes) {
    return Malformed(
        absl::StrCat("catalog entry: a packet holds no slot of tree '", entry.name, "'"));
  }
  if (entry.tree_id == 0 || entry.root_record.is_null() ||
      entry.root_record.offset() % kLineBytes != 0 || entry.root_lock_index >= kRootLockWords) {
    return Malformed(absl::StrCat("catalog entry: root record of tree '", entry.name, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NodeLayout> TreeShape::Layout(bool windows) const {
  if (has_cells && value_bytes_max > kLargeValueBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("value_bytes_max is ", value_bytes_max,
                                                   ", must be 0 to ", kLargeValueBytesMax));
  }
  if (has_cells && inline_value_bytes_max >= kValueBytesLimit) {
    return absl::InvalidArgumentError(absl::StrCat("inline_value_bytes_max is ",
                                                   inline_value_bytes_max, ", must be below ",
                                                   kValueBytesLimit));
  }
  return NodeLayout::Create(key_bytes_max, stored_value_bytes_max(), node_bytes, windows);
}

std::string EncodeServerInfo(const ServerInfo& info) {
  return ByteWriter().PutFields(kServerInfo(info)).Take();
}
absl::StatusOr<ServerInfo> ParseServerInfo(std::string_view body) {
  ByteReader reader(body);
  ServerInfo info;
  reader.TakeFields(kServerInfo(info));
  if (!reader.Done() || info.life == 0) return Malformed("server info");
  if (info.lease_us > kLeaseUsMax || info.serving_lease_us > kLeaseUsMax) {
    return Malformed("server info: a lease of more than a day");
  }
  const absl::Status status = ValidateSuperblock(info.superblock);
  if (!status.ok()) return status;
  return info;
}

std::string EncodeJoinRequest(const JoinRequest& request) {
  return ByteWriter().PutFields(kJoinRequest(request)).Take();
}
absl::StatusOr<JoinRequest> ParseJoinRequest(std::string_view body) {
  ByteReader reader(body);
  JoinRequest request;
  reader.TakeFields(kJoinRequest(request));
  return DoneOr(reader, request, "join request");
}

std::string EncodeJoinReply(const JoinReply& reply) {
  return ByteWriter().PutFields(kJoinReply(reply)).Take();
}
absl::StatusOr<JoinReply> ParseJoinReply(std::string_view body) {
  ByteReader reader(body);
  JoinReply reply;
  reader.TakeFields(kJoinReply(reply));
  if (reader.Done() && (reply.compute_server == 0 || reply.incarnation == 0)) {
    return Malformed("identity: compute server and incarnation start at 1");
  }
  return DoneOr(reader, reply, "identity");
}

std::string EncodeClientState(ClientLiveness state) {
  return ByteWriter().Put(static_cast<uint8_t>(state)).Take();
}
absl::StatusOr<ClientLiveness> ParseClientState(std::string_view body) {
  ByteReader reader(body);
  uint8_t state = 0;
  reader.Take(&state);
  if (!reader.Done() || state > static_cast<uint8_t>(ClientLiveness::kDead)) {
    return Malformed("client state");
  }
  return static_cast<ClientLiveness>(state);
}

std::string EncodeCreateTree(const CreateTreeRequest& request) {
  ByteWriter writer;
  writer.PutString(request.name);
  PutShape(request.shape, &writer);
  const uint8_t windows = request.windows ? kWindowsBit : 0;
  return writer.Put(static_cast<uint8_t>(static_cast<uint8_t>(request.mode) | windows))
      .Put(request.delete_persistence_ms)
      .Take();
}
absl::StatusOr<CreateTreeRequest> ParseCreateTree(std::string_view body) {
  ByteReader reader(body);
  CreateTreeRequest request;
  reader.TakeString(UINT16_MAX, &request.name);
  const bool is_shape = TakeShape(&reader, &request.shape);
  uint8_t mode = 0;
  reader.Take(&mode);
  reader.Take(&request.delete_persistence_ms);
  if (!is_shape || !reader.Done()) return Malformed("request to create a tree");
  const absl::Status status = CheckName(request.name);
  if (!status.ok()) return status;
  request.windows = (mode & kWindowsBit) != 0;
  mode &= static_cast<uint8_t>(~kWindowsBit);
  if (mode > static_cast<uint8_t>(TreeMode::kOwned)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree '", request.name, "': this release knows no mode ", mode));
  }
  request.mode = static_cast<TreeMode>(mode);
  return request;
}

std::string EncodeCatalogEntry(const CatalogEntry& entry) {
  ByteWriter writer;
  PutEntry(entry, &writer);
  return writer.Take();
}
absl::StatusOr<CatalogEntry> ParseCatalogEntry(std::string_view body) {
  ByteReader reader(body);
  CatalogEntry entry;
  if (!TakeEntry(&reader, &entry) || !reader.Done()) return Malformed("catalog entry");
  const absl::Status status = CheckEntry(entry);
  if (!status.ok()) return status;
  return entry;
}

std::string EncodeCatalogList(const std::vector<CatalogEntry>& entries) {
  ByteWriter writer;
  writer.Put(static_cast<uint32_t>(entries.size()));
  for (const CatalogEntry& entry : entries) PutEntry(entry, &writer);
  return writer.Take();
}
absl::StatusOr<std::vector<CatalogEntry>> ParseCatalogList(std::string_view body) {
  ByteReader reader(body);
  uint32_t count = 0;
  std::vector<CatalogEntry> entries;
  reader.Take(&count);
  for (uint32_t i = 0; i < count; ++i) {  // ends with the bytes, whatever `count` says
    if (!TakeEntry(&reader, &entries.emplace_back())) return Malformed("list of trees");
  }
  return DoneOr(reader, std::move(entries), "list of trees");
}

std::string EncodeTreeName(std::string_view name) { return ByteWriter().PutString(name).Take(); }
absl::StatusOr<std::string> ParseTreeName(std::string_view body) {
  ByteReader reader(body);
  std::string name;
  reader.TakeString(UINT16_MAX, &name);
  if (!reader.Done()) return Malformed("tree name");
  const absl::Status status = CheckName(name);
  if (!status.ok()) return status;
  return name;
}

std::string EncodeTreeId(uint32_t tree_id) { return ByteWriter().Put(tree_id).Take(); }
absl::StatusOr<uint32_t> ParseTreeId(std::string_view body) {
  ByteReader reader(body);
  uint32_t tree_id = 0;
  reader.Take(&tree_id);
  return DoneOr(reader, tree_id, "tree id");
}

std::string EncodeTreeAttach(const TreeAttach& attach) {
  return ByteWriter().PutFields(kTreeAttach(attach)).Take();
}
absl::StatusOr<TreeAttach> ParseTreeAttach(std::string_view body) {
  ByteReader reader(body);
  TreeAttach attach;
  reader.TakeFields(kTreeAttach(attach));
  return DoneOr(reader, attach, "tree to attach to");
}

std::string EncodeTreeGrowth(const TreeGrowth& growth) {
  return ByteWriter().PutFields(kTreeGrowth(growth)).Take();
}
absl::StatusOr<TreeGrowth> ParseTreeGrowth(std::string_view body) {
  ByteReader reader(body);
  TreeGrowth growth;
  reader.TakeFields(kTreeGrowth(growth));
  if (reader.Done() && growth.on.life == 0) return Malformed("growth of a tree: no life");
  return DoneOr(reader, growth, "growth of a tree");
}

std::string EncodeTreeServers(const TreeServerList& servers) {
  ByteWriter writer;
  PutTreeServers(servers, &writer);
  return writer.Take();
}
absl::StatusOr<TreeServerList> ParseTreeServers(std::string_view body) {
  ByteReader reader(body);
  TreeServerList servers;
  if (!TakeTreeServers(&reader, &servers)) return Malformed("list of a tree's servers");
  return DoneOr(reader, std::move(servers), "list of a tree's servers");
}

std::string EncodeCounters(const CounterList& counters) {
  ByteWriter writer;
  writer.Put(static_cast<uint32_t>(counters.size()));
  for (const auto& [name, value] : counters) writer.PutString(name).Put(value);
  return writer.Take();
}
absl::StatusOr<CounterList> ParseCounters(std::string_view body) {
  ByteReader reader(body);
  uint32_t count = 0;
  CounterList counters;
  reader.Take(&count);
  for (uint32_t i = 0; i < count; ++i) {  // ends with the bytes, whatever `count` says
    auto& [name, value] = counters.emplace_back();
    reader.TakeString(kCounterNameBytesMax, &name);
    if (!reader.Take(&value)) return Malformed("counters");
  }
  return DoneOr(reader, std::move(counters), "counters");
}

}  // namespace pando

#include "common/wire/node_messages.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/body_parser.h"
#include "common/wire/byte_codec.h"
#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"
#include "common/wire/value_cell.h"

namespace pando {
namespace {

using wire::ByteReader;
using wire::ByteWriter;
using wire::DoneOr;
using wire::Malformed;

bool IsNodeStart(uint64_t offset) {
  return offset != 0 && offset <= RemoteAddress::kOffsetMask && offset % kLineBytes == 0;
}
bool IsRun(uint64_t offset, uint64_t bytes) {
  return IsNodeStart(offset) && bytes != 0 && bytes % kLineBytes == 0 &&
         bytes <= RemoteAddress::kOffsetMask - offset;
}

bool IsPool(uint16_t cell_lines) { return cell_lines == 0 || IsCellSize(cell_lines); }

// Fields in their order on the wire: Encode and Parse of a body go by one list.
constexpr auto kNodeLife = [](auto& node) { return std::tie(node.offset, node.life); };
constexpr auto kNodeRequest = [](auto& request) {
  return std::tie(request.tree_id, request.node_bytes, request.nodes_max, request.cell_lines);
};
constexpr auto kNodeGrant = [](auto& grant) {
  return std::tie(grant.free_bytes, grant.orphans, grant.rested_in_ns);
};
constexpr auto kGrantedRun = [](auto& run) {
  return std::tie(run.offset, run.bytes, run.recycled, run.life);
};
constexpr auto kReturnedRun = [](auto& run) { return std::tie(run.offset, run.bytes); };
constexpr auto kNodesFreed = [](auto& freed) { return std::tie(freed.count, freed.free_bytes); };
constexpr auto kTreeDetach = [](auto& detach) { return std::tie(detach.tree_id, detach.settled); };
constexpr auto kNodeQuery = [](auto& query) {
  return std::tie(query.tree_id, query.after_offset, query.max);
};
constexpr auto kOrphan = [](auto& orphan) {
  return std::tie(orphan.offset, orphan.compute_server, orphan.incarnation, orphan.life);
};
constexpr auto kUseRun = [](auto& run) {
  return std::tie(run.offset, run.bytes, run.use, run.incarnation);
};
constexpr auto kCellQuery = [](auto& query) {
  return std::tie(query.tree_id, query.after_lines, query.after_offset, query.max, query.which,
                  query.takes, query.done);
};
constexpr auto kCellList = [](auto& list) {
  return std::tie(list.more, list.next_lines, list.next_offset, list.due);
};
constexpr auto kCellUse = [](auto& cell) {
  return std::tie(cell.cell_lines, cell.offset, cell.life, cell.use, cell.compute_server,
                  cell.incarnation);
};

// A list: its count, then its elements. False: more than `max` of them, or one that does not parse.
template <typename T, typename FieldsOf>
void PutList(const std::vector<T>& list, const FieldsOf& fields_of, ByteWriter* writer) {
  writer->Put(static_cast<uint32_t>(list.size()));
  for (const T& element : list) writer->PutFields(fields_of(element));
}
template <typename T, typename FieldsOf, typename IsRight>
bool TakeList(ByteReader* reader, size_t max, const FieldsOf& fields_of, const IsRight& is_right,
              std::vector<T>* list) {
  uint32_t count = 0;
  if (!reader->Take(&count) || count > max) return false;
  for (uint32_t i = 0; i < count; ++i) {
    T& element = list->emplace_back();
    if (!reader->TakeFields(fields_of(element)) || !is_right(element)) return false;
  }
  return true;
}

// Single nodes of a tree, each with its life: NodeFree, NodeSettle.
template <typename Request>
std::string EncodeLives(const Request& request) {
  ByteWriter writer;
  writer.Put(request.tree_id).Put(request.cell_lines);
  PutList(request.nodes, kNodeLife, &writer);
  return writer.Take();
}
template <typename Request>
absl::StatusOr<Request> ParseLives(std::string_view body, absl::string_view what) {
  ByteReader reader(body);
  Request request;
  reader.Take(&request.tree_id);
  reader.Take(&request.cell_lines);
  const bool taken = TakeList(
      &reader, kNodesPerRequestMax, kNodeLife,
      [](const NodeLife& node) { return IsNodeStart(node.offset); }, &request.nodes);
  if (!taken || !IsPool(request.cell_lines)) return Malformed(what);
  return DoneOr(reader, std::move(request), what);
}

}  // namespace

std::string EncodeNodeRequest(const NodeRequest& request) {
  return ByteWriter().PutFields(kNodeRequest(request)).Take();
}
absl::StatusOr<NodeRequest> ParseNodeRequest(std::string_view body) {
  ByteReader reader(body);
  NodeRequest request;
  reader.TakeFields(kNodeRequest(request));
  if (!IsPool(request.cell_lines) ||
      (request.cell_lines != 0 && request.node_bytes != request.cell_lines * kLineBytes)) {
    return Malformed("request for cells");
  }
  if (reader.Done() && request.cell_lines == 0 &&
      (request.node_bytes < kNodeBytesMin || request.node_bytes > kNodeBytesMax ||
       request.node_bytes % kLineBytes != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request for nodes: node_bytes is ", request.node_bytes));
  }
  return DoneOr(reader, request, "request for nodes");
}

std::string EncodeNodeGrant(const NodeGrant& grant) {
  ByteWriter writer;
  writer.PutFields(kNodeGrant(grant));
  PutList(grant.runs, kGrantedRun, &writer);
  return writer.Take();
}
absl::StatusOr<NodeGrant> ParseNodeGrant(std::string_view body) {
  ByteReader reader(body);
  NodeGrant grant;
  reader.TakeFields(kNodeGrant(grant));
  const bool taken = TakeList(
      &reader, kGrantRunsMax, kGrantedRun,
      [](const NodeRun& run) {
        return IsRun(run.offset, run.bytes) && run.recycled <= 1 && run.life != 0;
      },
      &grant.runs);
  const bool waits = grant.rested_in_ns > 0 && grant.rested_in_ns <= kRestNsMax;
  if (!taken || (grant.runs.empty() ? !waits : grant.rested_in_ns != 0)) {
    return Malformed("grant of nodes");
  }
  return DoneOr(reader, std::move(grant), "grant of nodes");
}

std::string EncodeNodeReturn(const NodeReturn& returned) {
  ByteWriter writer;
  writer.Put(returned.tree_id).Put(returned.cell_lines);
  PutList(returned.runs, kReturnedRun, &writer);
  return writer.Take();
}
absl::StatusOr<NodeReturn> ParseNodeReturn(std::string_view body) {
  ByteReader reader(body);
  NodeReturn returned;
  reader.Take(&returned.tree_id);
  reader.Take(&returned.cell_lines);
  const bool taken = TakeList(
      &reader, kRunsPerRequestMax, kReturnedRun,
      [](const NodeRun& run) { return IsRun(run.offset, run.bytes); }, &returned.runs);
  if (!taken || !IsPool(returned.cell_lines)) return Malformed("return of nodes");
  return DoneOr(reader, std::move(returned), "return of nodes");
}

std::string EncodeNodeFree(const NodeFree& freed) { return EncodeLives(freed); }
absl::StatusOr<NodeFree> ParseNodeFree(std::string_view body) {
  return ParseLives<NodeFree>(body, "list of freed nodes");
}

std::string EncodeNodesFreed(const NodesFreed& freed) {
  return ByteWriter().PutFields(kNodesFreed(freed)).Take();
}
absl::StatusOr<NodesFreed> ParseNodesFreed(std::string_view body) {
  ByteReader reader(body);
  NodesFreed freed;
  reader.TakeFields(kNodesFreed(freed));
  return DoneOr(reader, freed, "number of freed nodes");
}

std::string EncodeNodeCount(uint32_t count) { return ByteWriter().Put(count).Take(); }
absl::StatusOr<uint32_t> ParseNodeCount(std::string_view body) {
  ByteReader reader(body);
  uint32_t count = 0;
  reader.Take(&count);
  return DoneOr(reader, count, "number of nodes");
}

std::string EncodeNodeSettle(const NodeSettle& settle) { return EncodeLives(settle); }
absl::StatusOr<NodeSettle> ParseNodeSettle(std::string_view body) {
  return ParseLives<NodeSettle>(body, "list of settled nodes");
}

std::string EncodeTreeDetach(const TreeDetach& detach) {
  return ByteWriter().PutFields(kTreeDetach(detach)).Take();
}
absl::StatusOr<TreeDetach> ParseTreeDetach(std::string_view body) {
  ByteReader reader(body);
  TreeDetach detach;
  reader.TakeFields(kTreeDetach(detach));
  if (detach.settled > TreeDetach::kCellsDue) return Malformed("detachment from a tree");
  return DoneOr(reader, detach, "detachment from a tree");
}

std::string EncodeNodeQuery(const NodeQuery& query) {
  return ByteWriter().PutFields(kNodeQuery(query)).Take();
}
absl::StatusOr<NodeQuery> ParseNodeQuery(std::string_view body) {
  ByteReader reader(body);
  NodeQuery query;
  reader.TakeFields(kNodeQuery(query));
  return DoneOr(reader, query, "query for nodes");
}

std::string EncodeOrphanList(const OrphanList& list) {
  ByteWriter writer;
  writer.Put(list.more).Put(list.next);
  PutList(list.orphans, kOrphan, &writer);
  return writer.Take();
}
absl::StatusOr<OrphanList> ParseOrphanList(std::string_view body) {
  ByteReader reader(body);
  OrphanList list;
  reader.Take(&list.more);
  reader.Take(&list.next);
  const bool taken = TakeList(
      &reader, kListedNodesMax, kOrphan,
      [](const Orphan& orphan) { return IsNodeStart(orphan.offset); }, &list.orphans);
  if (!taken || list.more > 1) return Malformed("list of orphans");
  return DoneOr(reader, std::move(list), "list of orphans");
}

std::string EncodeNodeList(const NodeList& list) {
  ByteWriter writer;
  writer.Put(list.more).Put(list.next);
  PutList(list.runs, kUseRun, &writer);
  return writer.Take();
}
absl::StatusOr<NodeList> ParseNodeList(std::string_view body) {
  ByteReader reader(body);
  NodeList list;
  reader.Take(&list.more);
  reader.Take(&list.next);
  const bool taken = TakeList(
      &reader, kListedNodesMax, kUseRun,
      [](const NodeUseRun& run) {
        return IsRun(run.offset, run.bytes) && run.use <= NodeUse::kOrphan;
      },
      &list.runs);
  if (!taken || list.more > 1) return Malformed("list of nodes");
  return DoneOr(reader, std::move(list), "list of nodes");
}

std::string EncodeCellQuery(const CellQuery& query) {
  return ByteWriter().PutFields(kCellQuery(query)).Take();
}
absl::StatusOr<CellQuery> ParseCellQuery(std::string_view body) {
  ByteReader reader(body);
  CellQuery query;
  reader.TakeFields(kCellQuery(query));
  if (query.which > 2 || query.takes > 1) return Malformed("query for cells");
  return DoneOr(reader, query, "query for cells");
}

std::string EncodeCellList(const CellList& list) {
  ByteWriter writer;
  writer.PutFields(kCellList(list));
  PutList(list.cells, kCellUse, &writer);
  return writer.Take();
}
absl::StatusOr<CellList> ParseCellList(std::string_view body) {
  ByteReader reader(body);
  CellList list;
  reader.TakeFields(kCellList(list));
  const bool taken = TakeList(
      &reader, kListedNodesMax, kCellUse,
      [](const CellUse& cell) {
        return IsNodeStart(cell.offset) && IsCellSize(cell.cell_lines) &&
               cell.use >= NodeUse::kOut && cell.use <= NodeUse::kOrphan;
      },
      &list.cells);
  if (!taken || list.more > 1) return Malformed("list of cells");
  return DoneOr(reader, std::move(list), "list of cells");
}

}  // namespace pando

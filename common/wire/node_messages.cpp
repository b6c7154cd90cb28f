#include "common/wire/node_messages.h"

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

// A list: its count, then its elements. False: more than `max` of them, or one that does not parse.
template <typename T, typename PutOne>
void PutList(const std::vector<T>& list, ByteWriter* writer, PutOne put_one) {
  writer->Put(static_cast<uint32_t>(list.size()));
  for (const T& element : list) put_one(element);
}
template <typename T, typename TakeOne>
bool TakeList(ByteReader* reader, size_t max, std::vector<T>* list, TakeOne take_one) {
  uint32_t count = 0;
  if (!reader->Take(&count) || count > max) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (!take_one(&list->emplace_back())) return false;
  }
  return true;
}

// Single nodes of a tree, each with its life: NodeFree, NodeSettle.
template <typename Request>
std::string EncodeLives(const Request& request) {
  ByteWriter writer;
  writer.Put(request.tree_id).Put(request.cell_lines);
  PutList(request.nodes, &writer,
          [&](const NodeLife& node) { writer.Put(node.offset).Put(node.life); });
  return writer.Take();
}
template <typename Request>
absl::StatusOr<Request> ParseLives(std::string_view body, absl::string_view what) {
  ByteReader reader(body);
  Request request;
  reader.Take(&request.tree_id);
  reader.Take(&request.cell_lines);
  const bool taken = TakeList(&reader, kNodesPerRequestMax, &request.nodes, [&](NodeLife* node) {
    reader.Take(&node->offset);
    return reader.Take(&node->life) && IsNodeStart(node->offset);
  });
  if (!taken || !IsPool(request.cell_lines)) return Malformed(what);
  return DoneOr(reader, std::move(request), what);
}

}  // namespace

std::string EncodeNodeRequest(const NodeRequest& request) {
  return ByteWriter()
      .Put(request.tree_id)
      .Put(request.node_bytes)
      .Put(request.nodes_max)
      .Put(request.cell_lines)
      .Take();
}
absl::StatusOr<NodeRequest> ParseNodeRequest(std::string_view body) {
  ByteReader reader(body);
  NodeRequest request;
  reader.Take(&request.tree_id);
  reader.Take(&request.node_bytes);
  reader.Take(&request.nodes_max);
  reader.Take(&request.cell_lines);
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
  writer.Put(grant.free_bytes).Put(grant.orphans).Put(grant.rested_in_ns);
  PutList(grant.runs, &writer, [&](const NodeRun& run) {
    writer.Put(run.offset).Put(run.bytes).Put(run.recycled).Put(run.life);
  });
  return writer.Take();
}
absl::StatusOr<NodeGrant> ParseNodeGrant(std::string_view body) {
  ByteReader reader(body);
  NodeGrant grant;
  reader.Take(&grant.free_bytes);
  reader.Take(&grant.orphans);
  reader.Take(&grant.rested_in_ns);
  const bool taken = TakeList(&reader, kGrantRunsMax, &grant.runs, [&](NodeRun* run) {
    reader.Take(&run->offset);
    reader.Take(&run->bytes);
    reader.Take(&run->recycled);
    return reader.Take(&run->life) && IsRun(run->offset, run->bytes) && run->recycled <= 1 &&
           run->life != 0;
  });
  const bool waits = grant.rested_in_ns > 0 && grant.rested_in_ns <= kRestNsMax;
  if (!taken || (grant.runs.empty() ? !waits : grant.rested_in_ns != 0)) {
    return Malformed("grant of nodes");
  }
  return DoneOr(reader, std::move(grant), "grant of nodes");
}

std::string EncodeNodeReturn(const NodeReturn& returned) {
  ByteWriter writer;
  writer.Put(returned.tree_id).Put(returned.cell_lines);
  PutList(returned.runs, &writer,
          [&](const NodeRun& run) { writer.Put(run.offset).Put(run.bytes); });
  return writer.Take();
}
absl::StatusOr<NodeReturn> ParseNodeReturn(std::string_view body) {
  ByteReader reader(body);
  NodeReturn returned;
  reader.Take(&returned.tree_id);
  reader.Take(&returned.cell_lines);
  const bool taken = TakeList(&reader, kRunsPerRequestMax, &returned.runs, [&](NodeRun* run) {
    reader.Take(&run->offset);
    return reader.Take(&run->bytes) && IsRun(run->offset, run->bytes);
  });
  if (!taken || !IsPool(returned.cell_lines)) return Malformed("return of nodes");
  return DoneOr(reader, std::move(returned), "return of nodes");
}

std::string EncodeNodeFree(const NodeFree& freed) { return EncodeLives(freed); }
absl::StatusOr<NodeFree> ParseNodeFree(std::string_view body) {
  return ParseLives<NodeFree>(body, "list of freed nodes");
}

std::string EncodeNodesFreed(const NodesFreed& freed) {
  return ByteWriter().Put(freed.count).Put(freed.free_bytes).Take();
}
absl::StatusOr<NodesFreed> ParseNodesFreed(std::string_view body) {
  ByteReader reader(body);
  NodesFreed freed;
  reader.Take(&freed.count);
  reader.Take(&freed.free_bytes);
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
  return ByteWriter().Put(detach.tree_id).Put(detach.settled).Take();
}
absl::StatusOr<TreeDetach> ParseTreeDetach(std::string_view body) {
  ByteReader reader(body);
  TreeDetach detach;
  reader.Take(&detach.tree_id);
  reader.Take(&detach.settled);
  if (detach.settled > 1) return Malformed("detachment from a tree");
  return DoneOr(reader, detach, "detachment from a tree");
}

std::string EncodeNodeQuery(const NodeQuery& query) {
  return ByteWriter().Put(query.tree_id).Put(query.after_offset).Put(query.max).Take();
}
absl::StatusOr<NodeQuery> ParseNodeQuery(std::string_view body) {
  ByteReader reader(body);
  NodeQuery query;
  reader.Take(&query.tree_id);
  reader.Take(&query.after_offset);
  reader.Take(&query.max);
  return DoneOr(reader, query, "query for nodes");
}

std::string EncodeOrphanList(const OrphanList& list) {
  ByteWriter writer;
  writer.Put(list.more).Put(list.next);
  PutList(list.orphans, &writer, [&](const Orphan& orphan) {
    writer.Put(orphan.offset).Put(orphan.compute_server).Put(orphan.incarnation);
  });
  return writer.Take();
}
absl::StatusOr<OrphanList> ParseOrphanList(std::string_view body) {
  ByteReader reader(body);
  OrphanList list;
  reader.Take(&list.more);
  reader.Take(&list.next);
  const bool taken = TakeList(&reader, kListedNodesMax, &list.orphans, [&](Orphan* orphan) {
    reader.Take(&orphan->offset);
    reader.Take(&orphan->compute_server);
    return reader.Take(&orphan->incarnation) && IsNodeStart(orphan->offset);
  });
  if (!taken || list.more > 1) return Malformed("list of orphans");
  return DoneOr(reader, std::move(list), "list of orphans");
}

std::string EncodeNodeList(const NodeList& list) {
  ByteWriter writer;
  writer.Put(list.more).Put(list.next);
  PutList(list.runs, &writer, [&](const NodeUseRun& run) {
    writer.Put(run.offset).Put(run.bytes).Put(static_cast<uint8_t>(run.use)).Put(run.incarnation);
  });
  return writer.Take();
}
absl::StatusOr<NodeList> ParseNodeList(std::string_view body) {
  ByteReader reader(body);
  NodeList list;
  reader.Take(&list.more);
  reader.Take(&list.next);
  const bool taken = TakeList(&reader, kListedNodesMax, &list.runs, [&](NodeUseRun* run) {
    uint8_t use = 0;
    reader.Take(&run->offset);
    reader.Take(&run->bytes);
    reader.Take(&use);
    run->use = static_cast<NodeUse>(use);
    return reader.Take(&run->incarnation) && IsRun(run->offset, run->bytes) &&
           use <= static_cast<uint8_t>(NodeUse::kOrphan);
  });
  if (!taken || list.more > 1) return Malformed("list of nodes");
  return DoneOr(reader, std::move(list), "list of nodes");
}

std::string EncodeCellQuery(const CellQuery& query) {
  return ByteWriter()
      .Put(query.tree_id)
      .Put(query.after_lines)
      .Put(query.after_offset)
      .Put(query.max)
      .Put(query.which)
      .Put(query.takes)
      .Put(query.done)
      .Take();
}
absl::StatusOr<CellQuery> ParseCellQuery(std::string_view body) {
  ByteReader reader(body);
  CellQuery query;
  reader.Take(&query.tree_id);
  reader.Take(&query.after_lines);
  reader.Take(&query.after_offset);
  reader.Take(&query.max);
  reader.Take(&query.which);
  reader.Take(&query.takes);
  reader.Take(&query.done);
  if (query.which > 2 || query.takes > 1) return Malformed("query for cells");
  return DoneOr(reader, query, "query for cells");
}

std::string EncodeCellList(const CellList& list) {
  ByteWriter writer;
  writer.Put(list.more).Put(list.next_lines).Put(list.next_offset).Put(list.due);
  PutList(list.cells, &writer, [&](const CellUse& cell) {
    writer.Put(cell.cell_lines).Put(cell.offset).Put(cell.life);
    writer.Put(static_cast<uint8_t>(cell.use)).Put(cell.compute_server).Put(cell.incarnation);
  });
  return writer.Take();
}
absl::StatusOr<CellList> ParseCellList(std::string_view body) {
  ByteReader reader(body);
  CellList list;
  reader.Take(&list.more);
  reader.Take(&list.next_lines);
  reader.Take(&list.next_offset);
  reader.Take(&list.due);
  const bool taken = TakeList(&reader, kListedNodesMax, &list.cells, [&](CellUse* cell) {
    reader.Take(&cell->cell_lines);
    reader.Take(&cell->offset);
    uint8_t use = 0;
    reader.Take(&cell->life);
    reader.Take(&use);
    cell->use = static_cast<NodeUse>(use);
    reader.Take(&cell->compute_server);
    return reader.Take(&cell->incarnation) && IsNodeStart(cell->offset) &&
           IsCellSize(cell->cell_lines) && use >= static_cast<uint8_t>(NodeUse::kOut) &&
           use <= static_cast<uint8_t>(NodeUse::kOrphan);
  });
  if (!taken || list.more > 1) return Malformed("list of cells");
  return DoneOr(reader, std::move(list), "list of cells");
}

}  // namespace pando

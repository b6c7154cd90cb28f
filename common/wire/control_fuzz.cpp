// Fuzz target: whatever arrives on a control socket is a message or a status, and what is a message
// is written again as the same bytes.
#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/wire/control.h"
#include "common/wire/node_messages.h"
#include "common/wire/owner_messages.h"

namespace pando {
namespace {

template <typename Parse, typename Encode>
void CheckBody(std::string_view body, Parse parse, Encode encode) {
  const auto parsed = parse(body);
  if (parsed.ok()) PANDO_CHECK(encode(*parsed) == body);
}

void CheckBodies(std::string_view body) {
  CheckBody(body, ParseServerInfo, EncodeServerInfo);
  CheckBody(body, ParseJoinRequest, EncodeJoinRequest);
  CheckBody(body, ParseJoinReply, EncodeJoinReply);
  CheckBody(body, ParseClientState, EncodeClientState);
  CheckBody(body, ParseCreateTree, EncodeCreateTree);
  CheckBody(body, ParseCatalogEntry, EncodeCatalogEntry);
  CheckBody(body, ParseCatalogList, EncodeCatalogList);
  CheckBody(body, ParseTreeName, EncodeTreeName);
  CheckBody(body, ParseTreeId, EncodeTreeId);
  CheckBody(body, ParseTreeAttach, EncodeTreeAttach);
  CheckBody(body, ParseTreeGrowth, EncodeTreeGrowth);
  CheckBody(body, ParseTreeServers, EncodeTreeServers);
  CheckBody(body, ParseNodeRequest, EncodeNodeRequest);
  CheckBody(body, ParseNodeGrant, EncodeNodeGrant);
  CheckBody(body, ParseNodeReturn, EncodeNodeReturn);
  CheckBody(body, ParseNodeFree, EncodeNodeFree);
  CheckBody(body, ParseNodesFreed, EncodeNodesFreed);
  CheckBody(body, ParseNodeCount, EncodeNodeCount);
  CheckBody(body, ParseNodeSettle, EncodeNodeSettle);
  CheckBody(body, ParseTreeDetach, EncodeTreeDetach);
  CheckBody(body, ParseNodeQuery, EncodeNodeQuery);
  CheckBody(body, ParseOrphanList, EncodeOrphanList);
  CheckBody(body, ParseNodeList, EncodeNodeList);
  CheckBody(body, ParseCellQuery, EncodeCellQuery);
  CheckBody(body, ParseCellList, EncodeCellList);
  CheckBody(body, ParseCounters, EncodeCounters);
  CheckBody(body, ParseExtentRequest, EncodeExtentRequest);
  CheckBody(body, ParseExtentGrant, EncodeExtentGrant);
  CheckBody(body, ParseExtentFree, EncodeExtentFree);
  CheckBody(body, ParseExtentFreed, EncodeExtentFreed);
  CheckBody(body, ParseExtentQuery, EncodeExtentQuery);
  CheckBody(body, ParseExtentList, EncodeExtentList);
  CheckBody(body, ParseFenceReply, EncodeFenceReply);
  CheckBody(body, ParseServingLease, EncodeServingLease);
  CheckBody(body, ParsePendingDeletes, EncodePendingDeletes);
}

// The bytes as they are; a message among them is checked body and all.
void CheckMessage(std::string_view bytes) {
  const auto message = ParseMessage(bytes);
  const auto reply = ParseReply(bytes, ControlOpcode::kOpenTree, 0);
  if (!message.ok()) {
    PANDO_CHECK(!reply.ok());
    return;
  }
  PANDO_CHECK(EncodeMessage(message->header, message->body) == bytes);
  CheckBodies(message->body);
}

std::string Seed(char kind, const std::string& bytes) { return kind + bytes; }

}  // namespace

std::vector<std::string> FuzzSeeds() {
  Superblock superblock;
  superblock.region_bytes = 64 << 20;
  superblock.root_offset = 4096;
  superblock.dead_offset = 1 << 19;
  superblock.chunk_offset = 1 << 20;
  superblock.chunk_bytes = 1 << 20;
  superblock.chunk_count = 63;
  superblock.lock_words = 32'768;
  superblock.packet_bytes = 4096;
  SealSuperblock(&superblock);
  CatalogEntry entry;
  entry.name = "words";
  entry.tree_id = 3;
  entry.shape = {60, 8, 4352, 4096};
  entry.root_record = RemoteAddress(1, 4160);
  ControlHeader request;
  request.opcode = static_cast<uint16_t>(ControlOpcode::kOpenTree);
  const std::string body = EncodeCatalogEntry(entry);
  return {
      Seed('m', EncodeMessage(request, body)),
      Seed('m', EncodeReply(request, 1, body)),
      Seed('m', EncodeErrorReply(request, 1, absl::NotFoundError("no such tree"))),
      Seed('b', EncodeServerInfo({superblock, 1, 2, 3, 4, 5, 6, 7})),
      Seed('b', EncodeJoinRequest({1})),
      Seed('b', EncodeJoinReply({1, 2})),
      Seed('b', EncodeClientState(ClientLiveness::kDead)),
      Seed('b', EncodeCreateTree({"words", {8, 8, 0, 0}, TreeMode::kOwned})),
      Seed('b', body),
      Seed('b', EncodeCatalogList({entry, entry})),
      Seed('b', EncodeTreeName("words")),
      Seed('b', EncodeTreeId(3)),
      Seed('b', EncodeTreeAttach({3, 4})),
      Seed('b', EncodeTreeGrowth({3, {4, 5}})),
      Seed('b', EncodeTreeServers({{4, 5}, {6, 7}})),
      Seed('b', EncodeNodeRequest({3, 1024, 64})),
      Seed('b', EncodeNodeGrant({1 << 20, 2, {{1 << 20, 1024, 1, 7}, {2 << 20, 4096, 0, 1}}})),
      Seed('b', EncodeNodeGrant({.free_bytes = 9, .orphans = 2, .rested_in_ns = 8})),
      Seed('b', EncodeNodeReturn({3, {{1 << 20, 1024}, {2 << 20, 4096}}})),
      Seed('b', EncodeNodeFree({3, {{1 << 20, 7}, {2 << 20, 8}}})),
      Seed('b', EncodeNodesFreed({2, 1 << 20})),
      Seed('b', EncodeNodeCount(2)),
      Seed('b', EncodeNodeSettle({3, {{1 << 20, 7}, {2 << 20, 1}}})),
      Seed('b', EncodeTreeDetach({3, 1})),
      Seed('b', EncodeNodeQuery({3, 1 << 20, 100})),
      Seed('b', EncodeOrphanList({1, 2 << 20, {{1 << 20, 4, 5, 6}, {2 << 20, 0, 0, 1}}})),
      Seed('b', EncodeNodeList({1, 2 << 20, {{1 << 20, 1024, NodeUse::kOut, 5}}})),
      Seed('b', EncodeCounters({{"reads", 1}, {"writes", 2}})),
      Seed('b', EncodeExtentRequest({1 << 20})),
      Seed('b', EncodeExtentGrant({1, 2, 1 << 20, 2 << 20, 0})),
      Seed('b', EncodeExtentGrant({.life = 1, .ask_again_ns = 9})),
      Seed('b', EncodeExtentFree({1, 2, 3})),
      Seed('b', EncodeExtentFreed(true)),
      Seed('b', EncodeExtentQuery({1 << 20, 9})),
      Seed('b', EncodeExtentList({9,
                                  1,
                                  {{7, 1 << 20, 2 << 20, 3, 4, ClientLiveness::kJoined},
                                   {8, 3 << 20, 1 << 20, 5, 6, ClientLiveness::kDead}}})),
      Seed('b', EncodeFenceReply({0, 5})),
      Seed('b', EncodeServingLease(1'000'000)),
      Seed('b', EncodePendingDeletes({100, 2'000})),
  };
}

}  // namespace pando

// The first byte says what the rest is: bytes off the socket, or the body of a message whose
// checksum is right.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'm') {
    pando::CheckMessage(rest);
  } else if (rest.size() <= pando::kControlBodyBytesMax) {
    pando::CheckBodies(rest);
    pando::CheckMessage(pando::EncodeMessage({}, rest));
  }
  return 0;
}

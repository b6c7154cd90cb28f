// Control messages: the small two-sided requests between compute and memory servers, and their
// replies.
//
// Every message is a ControlHeader followed by `length` bytes of body; all integers little-endian.
// Parsers take any bytes and return a status; they never read out of bounds (fuzzed: control_fuzz).
// Encoders and parsers are pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"
#include "common/wire/root_record.h"
#include "common/wire/superblock.h"
#include "common/wire/value_cell.h"

namespace pando {

inline constexpr uint16_t kControlVersion = 9;
inline constexpr uint32_t kControlMagic = 0x4c435450;        // "PTCL"
inline constexpr uint32_t kControlBodyBytesMax = 60 * 1024;  // one datagram-sized message
// The last replies to a client that each memory server keeps, for requests that are repeated.
inline constexpr uint32_t kRepliesKept = 512;
inline constexpr size_t kTreeNameBytesMax = 120;
inline constexpr size_t kTreeServersMax = 4096;  // memory servers that one tree may lie on
// The tree of the owners (rule O2), for which the catalog's server keeps memory back.
inline constexpr std::string_view kClusterTreeName = ".cluster";
inline constexpr uint32_t kOwnedKeyBytesMax = 240;  // rule O1

enum class ControlOpcode : uint16_t {
  kServerInfo = 1,  // -> ServerInfo
  kJoin = 2,        // catalog server only: issues (compute server id, incarnation)
  kAttach = 3,      // other servers: introduces that identity, with the catalog's signature
  kLeave = 4,       // in order; everything the client held is given back
  kPing = 5,
  // Bodies of these two in owner_messages.h.
  kServe = 6,        // catalog server only: begins or renews the sender's serving lease (rule O5)
  kFence = 7,        // that life of a compute server has ended, for ever (rule D2)
  kWithdraw = 8,     // the sender was never introduced over this connection, nor will be (rule R8)
  kCreateTree = 10,  // catalog server only: create-if-absent -> CatalogEntry, created or existing
  kOpenTree = 11,    // by name -> CatalogEntry
  kListTrees = 12,
  kDropTree = 13,    // every server, the catalog server last
  kAttachTree = 14,  // this client may hold references into the tree from now on
  kDetachTree = 15,
  kGrowTree = 16,  // catalog server only: from now on the tree may have nodes there (rule R7)
  kListTreeServers = 17,  // catalog server only: where the tree may have nodes
  // Bodies of these in node_messages.h.
  kAllocateNodes = 20,
  kReturnNodes = 21,  // unwritten
  kFreeNodes = 22,    // written, and linked nowhere any more -> how many took effect
  kSettleNodes = 23,  // found reachable by a sweep -> how many took effect
  kListOrphans = 24,  // what a sweep has to look at
  kClientState = 25,  // of an identity -> ClientLiveness
  kListCells = 26,    // what a sweep of a tree's large values has to look at
  kStats = 30,        // -> counters by name
  kListNodes = 31,    // every node of a tree on this server, and who has it
  // Bodies of these in owner_messages.h (rule W1).
  kAllocateExtent = 40,
  kFreeExtent = 41,  // by its holder, or by anybody once the holder has ended here
  kListExtents = 42,
  kNoteDeletes = 43,  // catalog server only: what an owner's erases wait for (rule B5)
};

struct ControlHeader {
  uint32_t magic = kControlMagic;
  uint16_t version = kControlVersion;
  uint16_t opcode = 0;  // replies: opcode of the request
  uint16_t sender = 0;  // compute-server id (0: not joined) or memory-server id in replies
  uint16_t flags = 0;   // bit 0: reply
  uint32_t target_incarnation = 0;  // 0: any
  uint32_t incarnation = 0;         // of the sender
  uint32_t session = 0;
  uint32_t sequence = 0;  // of this request in (sender, incarnation); a repeat gets the same reply
  uint32_t first_incomplete = 0;  // lowest sequence the sender still waits for
  int64_t deadline_ns = 0;        // relative: the sender gives up after this long; 0: none
  uint32_t epoch = 0;
  uint32_t status = 0;  // replies: absl::StatusCode; the body is then the message
  uint32_t length = 0;  // of the body
  uint32_t crc = 0;     // CRC32C of header (this field 0) and body
};
static_assert(std::is_trivially_copyable_v<ControlHeader>);
static_assert(sizeof(ControlHeader) == 56);

// --- Bodies.

inline constexpr uint64_t kLeaseUsMax = uint64_t{24} * 3600 * 1'000'000;

struct ServerInfo {
  Superblock superblock;
  uint8_t is_catalog = 0;
  uint64_t free_bytes = 0;  // chunks nobody holds
  uint64_t used_bytes = 0;
  // A client that is not heard of for so long is fenced (rule C1): pings renew its lease. 0: never.
  uint64_t lease_us = 0;
  // This life of the server: another one after each start (rule R7). Above 0.
  uint64_t life = 0;
  // The highest incarnation or tree id that this life has met; 0: none (rule C0).
  uint32_t highest_id = 0;
  // Of the catalog's server: of the clients that serve keys of owned trees (rule O5). 0: it grants
  // none, since only the end of its process takes the right to serve from a client.
  uint64_t serving_lease_us = 0;
  bool operator==(const ServerInfo&) const = delete;
};
struct JoinRequest {
  uint64_t process_id = 0;
  // What the catalog gives out from now on is above this: the highest id that the servers which the
  // joiner sees have met (rule C0).
  uint32_t id_floor = 0;
};
struct JoinReply {
  uint16_t compute_server = 0;  // 1..65535
  uint32_t incarnation = 0;     // > 0, increasing for ever
  // By the catalog's server: that it has issued this identity (rule C0,
  // common/auth/identity_key.h). Zero where the memory servers share no key, and in kClientState.
  std::array<uint8_t, 32> proof = {};
};
// What a memory server knows of one life of a compute server.
enum class ClientLiveness : uint8_t {
  kUnknown = 0,  // it was never introduced here
  kJoined = 1,   // or dead with lock words that are still to be cleared
  kLeft = 2,     // in order
  kDead = 3,     // and fenced: no lock word of it is left (rule C2)
};
// Trees. The shape is fixed at creation.
struct TreeShape {
  uint32_t key_bytes_max = 0;
  uint32_t value_bytes_max = 0;
  uint32_t node_bytes = 0;
  uint32_t packet_bytes = 0;
  // Values above this lie in cells (rule K1). A feature of the tree's entry says that they may;
  // elsewhere it is 0, and all are in their slots.
  uint32_t inline_value_bytes_max = 0;
  bool has_cells = false;

  // Of the slots.
  uint32_t stored_value_bytes_max() const {
    return has_cells ? std::max(1 + inline_value_bytes_max, kStoredReferenceBytes)
                     : value_bytes_max;
  }
  // Of its nodes. InvalidArgument: there are none of that shape.
  absl::StatusOr<NodeLayout> Layout(bool windows) const;
};
// Rule O1: who reads and writes a tree's leaves. In its entry it is a feature (superblock.h).
enum class TreeMode : uint8_t { kShared = 0, kOwned = 1 };
struct CreateTreeRequest {
  std::string name;
  TreeShape shape;
  TreeMode mode = TreeMode::kShared;
  // Rule N1: keys have windows. In the tree's entry it is a feature, here a bit of the mode's byte:
  // an older server knows no such mode, and says so.
  bool windows = false;
  uint32_t delete_persistence_ms = 0;  // rule B5, of owned trees; 0: none
};
// A life of a memory server on which a tree may have nodes (rule R7).
struct TreeServer {
  ServerId server = 0;
  uint64_t life = 0;
  friend bool operator==(const TreeServer&, const TreeServer&) = default;
};
using TreeServerList = std::vector<TreeServer>;  // each server once
struct TreeAttach {
  uint32_t tree_id = 0;
  // The life of this server that the tree may have nodes on; 0: the tree has nothing here.
  uint64_t life = 0;
};
struct TreeGrowth {
  uint32_t tree_id = 0;
  TreeServer on;
};
struct CatalogEntry {
  std::string name;
  uint32_t tree_id = 0;  // never reused
  TreeShape shape;
  RemoteAddress root_record;  // on the catalog server
  uint32_t root_lock_index = 0;
  uint32_t version = 1;
  FeatureMasks features;
  uint32_t delete_persistence_ms = 0;
  uint8_t created = 0;     // by this request
  TreeServerList servers;  // not in lists of entries

  TreeMode mode() const {
    return (features.incompatible & kIncompatibleOwned) != 0 ? TreeMode::kOwned : TreeMode::kShared;
  }
  bool windows() const { return (features.incompatible & kIncompatibleWindows) != 0; }
  // Of the tree's nodes.
  absl::StatusOr<NodeLayout> Layout() const { return shape.Layout(windows()); }
};
using CounterList = std::vector<std::pair<std::string, uint64_t>>;

// --- Encoding. Encode* give the body; EncodeMessage adds the header (fills magic, version, length,
// crc).
std::string EncodeMessage(ControlHeader header, std::string_view body);
// A reply to `request` carrying a body, or an error (body = message).
std::string EncodeReply(const ControlHeader& request, ServerId server, std::string_view body);
std::string EncodeErrorReply(const ControlHeader& request, ServerId server,
                             const absl::Status& status);

struct ControlMessage {
  ControlHeader header;
  std::string_view body;  // into the parsed bytes
};
// FailedPrecondition: another version of the handshake (says both); DataLoss: not a control
// message, truncated, checksum; bytes after the body are DataLoss too.
absl::StatusOr<ControlMessage> ParseMessage(std::string_view bytes);
// The body of a reply, or the status it carries, or why the bytes are no reply to
// `opcode`/`sequence`.
absl::StatusOr<std::string_view> ParseReply(std::string_view bytes, ControlOpcode opcode,
                                            uint32_t sequence);

std::string EncodeServerInfo(const ServerInfo& info);
absl::StatusOr<ServerInfo> ParseServerInfo(std::string_view body);
std::string EncodeJoinRequest(const JoinRequest& request);
absl::StatusOr<JoinRequest> ParseJoinRequest(std::string_view body);
std::string EncodeJoinReply(const JoinReply& reply);  // also the body of kAttach, kClientState
absl::StatusOr<JoinReply> ParseJoinReply(std::string_view body);
std::string EncodeClientState(ClientLiveness state);
absl::StatusOr<ClientLiveness> ParseClientState(std::string_view body);
std::string EncodeCreateTree(const CreateTreeRequest& request);
// InvalidArgument: a name, or a mode, that cannot be.
absl::StatusOr<CreateTreeRequest> ParseCreateTree(std::string_view body);
std::string EncodeCatalogEntry(const CatalogEntry& entry);
absl::StatusOr<CatalogEntry> ParseCatalogEntry(std::string_view body);
std::string EncodeCatalogList(const std::vector<CatalogEntry>& entries);
absl::StatusOr<std::vector<CatalogEntry>> ParseCatalogList(std::string_view body);
std::string EncodeTreeName(std::string_view name);  // kOpenTree
absl::StatusOr<std::string> ParseTreeName(std::string_view body);
std::string EncodeTreeId(uint32_t tree_id);  // kDropTree, kListTreeServers
absl::StatusOr<uint32_t> ParseTreeId(std::string_view body);
std::string EncodeTreeAttach(const TreeAttach& attach);
absl::StatusOr<TreeAttach> ParseTreeAttach(std::string_view body);
std::string EncodeTreeGrowth(const TreeGrowth& growth);
absl::StatusOr<TreeGrowth> ParseTreeGrowth(std::string_view body);
// Of kListTreeServers, and what kDropTree answers (empty but for the catalog's).
std::string EncodeTreeServers(const TreeServerList& servers);
absl::StatusOr<TreeServerList> ParseTreeServers(std::string_view body);
std::string EncodeCounters(const CounterList& counters);
absl::StatusOr<CounterList> ParseCounters(std::string_view body);

}  // namespace pando

// Messages on the control connection (TCP) of the verbs fabric: a header and a body of `length`
// bytes, little-endian. Magic and version stand first in every version, so that two versions can
// tell each other apart.
//
// Encoders and parsers are pure; parsers take any bytes. FailedPrecondition: another version, or
// features this side does not know (says so). DataLoss: anything else that is no frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/body.h"
#include "common/fabric/link/frame.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/wire/remote_address.h"

namespace pando {

inline constexpr uint32_t kVerbsMagic = 0x42525650;  // "PVRB"
inline constexpr uint16_t kVerbsVersion = 1;
inline constexpr uint32_t kVerbsBodyBytesMax = 64 << 10;
// Of a client that has not introduced itself: hello and proof.
inline constexpr uint32_t kVerbsHelloBytesMax = 1 << 10;

enum class VerbsFrameType : uint16_t {
  kHello = 1,       // client: VerbsFeatures. The first frame
  kHelloReply = 2,  // VerbsHelloReply
  kAuth = 3,        // either side, where the server has a secret: a token (common/auth)
  kMemory = 4,      // the server, once the client has proved itself: VerbsMemory
  kOpen = 5,        // client: VerbsOpen
  kOpenReply = 6,   // VerbsOpenReply: the server's queue pair answers
  kClose = 7,       // client: handle 4. The queue pair is not used any more. No reply
  kCall = 8,        // client: a request for the ControlHandler
  kCallReply = 9,   // its reply
  kError = 10,      // a status (body.h). Sequence 0: the connection is refused
  // Between compute servers (verbs_peers.h). A memory server takes none of these.
  kPeerHello = 11,       // who connects: PeerHello (link/peer_hello.h). The first frame
  kPeerHelloReply = 12,  // PeerHello
  kPeerOpen = 13,        // who connects, once both have proved themselves: QueuePairAddress
  kPeerOpenReply = 14,   // QueuePairAddress: this queue pair answers
  kPeerReady = 15,       // so does the other one. No body
};

struct VerbsFrameHeader {
  FrameStart start = {.magic = kVerbsMagic, .version = kVerbsVersion};
  uint32_t crc = 0;  // CRC32C of header (this field 0) and body
  uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<VerbsFrameHeader> && sizeof(VerbsFrameHeader) == 24);

struct VerbsFrame {
  VerbsFrameType type = VerbsFrameType::kError;
  uint32_t sequence = 0;
  std::string body;
};

// `body` is at most kVerbsBodyBytesMax (CHECKed).
std::string EncodeVerbsFrame(VerbsFrameType type, uint32_t sequence, std::string_view body);

// Takes frames out of a stream of bytes. Not thread-safe.
class VerbsFrameReader {
 public:
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  // The next whole frame, of a body up to `body_bytes_max`; nullopt: more bytes are needed. After
  // an error the stream is useless.
  absl::StatusOr<std::optional<VerbsFrame>> Next(uint32_t body_bytes_max = kVerbsBodyBytesMax);

 private:
  std::string bytes_;
  size_t used_ = 0;
};

// --- Bodies: EncodeBody() (body.h) makes them, these read and check them.

// What a side can do and needs: unknown bits of `incompatible` are refused.
struct VerbsFeatures {
  uint64_t compatible = 0;
  uint64_t read_compatible = 0;
  uint64_t incompatible = 0;
};
static_assert(sizeof(VerbsFeatures) == 24);
inline constexpr uint64_t kVerbsIncompatibleKnown = 0;
inline constexpr uint64_t kVerbsCompatibleProof = 1;  // this side has a secret

absl::StatusOr<VerbsFeatures> ParseVerbsHello(std::string_view body);

struct VerbsHelloReply {
  VerbsFeatures features;
  ServerId server_id = 0;
  uint16_t reserved = 0;
  uint32_t reserved2 = 0;
};
static_assert(std::is_trivially_copyable_v<VerbsHelloReply> && sizeof(VerbsHelloReply) == 32);
absl::StatusOr<VerbsHelloReply> ParseVerbsHelloReply(std::string_view body);

// A server's memory, as verbs name it.
struct VerbsMemory {
  uint64_t main_bytes = 0, main_address = 0;
  uint64_t lock_bytes = 0, lock_address = 0;
  uint32_t main_key = 0, lock_key = 0;
  uint32_t packet_bytes = 0;
  uint32_t mtu_bytes = 0;
  uint32_t on_chip_bytes = 0;
  uint8_t lines_atomic = 0;
  uint8_t write_unlock = 0;
  uint16_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<VerbsMemory> && sizeof(VerbsMemory) == 56);
absl::StatusOr<VerbsMemory> ParseVerbsMemory(std::string_view body);

// A queue pair of the client's wants one of the server's.
struct VerbsOpen {
  QueuePairAddress address;
  uint32_t replaces = 0;  // handle of a broken one, to be destroyed first; 0: none
  uint32_t incarnation = 0;
  uint16_t compute_server = 0;  // said in logs
  uint16_t reserved = 0;
  uint32_t reserved2 = 0;
};
static_assert(std::is_trivially_copyable_v<VerbsOpen> && sizeof(VerbsOpen) == 48);
absl::StatusOr<VerbsOpen> ParseVerbsOpen(std::string_view body);

// It is ready; of the one that it replaces nothing is in flight any more.
struct VerbsOpenReply {
  QueuePairAddress address;
  uint32_t handle = 0;  // never 0
  uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<VerbsOpenReply> && sizeof(VerbsOpenReply) == 40);
absl::StatusOr<VerbsOpenReply> ParseVerbsOpenReply(std::string_view body);

absl::StatusOr<uint32_t> ParseVerbsHandle(std::string_view body);

}  // namespace pando

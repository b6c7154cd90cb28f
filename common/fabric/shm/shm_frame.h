// Messages on the control socket of the shm fabric. One datagram is one frame: a header and a body
// of `length` bytes.
//
// Encoders and parsers are pure; parsers take any bytes. FailedPrecondition: another version (says
// both). DataLoss: anything else that is no frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/link/frame.h"
#include "common/fabric/shm/shm_geometry.h"
#include "common/wire/remote_address.h"

namespace pando {

inline constexpr uint32_t kShmMagic = 0x4d485350;  // "PSHM"
inline constexpr uint16_t kShmVersion = 1;
inline constexpr uint32_t kShmBodyBytesMax = 64 << 10;

enum class ShmFrameType : uint16_t {
  kHello = 1,       // client: the first frame. Body: none
  kHelloReply = 2,  // ShmHelloReply, and the memory's file descriptor
  kOpenSlot = 3,    // client: ShmOpenSlot
  kSlotReply = 4,   // slot 4
  kCloseSlot = 5,   // client: slot 4. The endpoint executes no more verbs. No reply
  kCall = 6,        // client: a request for the ControlHandler
  kCallReply = 7,   // its reply
  kError = 8,       // a status (body.h). Sequence 0: the connection is refused
  // Between compute servers (shm_peers.h), where messages follow that are no frames. A memory
  // server takes neither.
  kPeerHello = 9,        // who connects: PeerHello (link/peer_hello.h). The first frame
  kPeerHelloReply = 10,  // PeerHello
};

inline constexpr size_t kShmFrameBytesMax = sizeof(FrameStart) + kShmBodyBytesMax;

struct ShmFrame {
  ShmFrameType type = ShmFrameType::kError;
  uint32_t sequence = 0;
  std::string_view body;  // into the parsed bytes
};

// `body` is at most kShmBodyBytesMax (CHECKed).
std::string EncodeShmFrame(ShmFrameType type, uint32_t sequence, std::string_view body);
absl::StatusOr<ShmFrame> ParseShmFrame(std::string_view bytes);

struct ShmHelloReply {
  ServerId server_id = 0;
  ShmGeometry geometry;
};
std::string EncodeShmHelloReply(const ShmHelloReply& reply);
absl::StatusOr<ShmHelloReply> ParseShmHelloReply(std::string_view body);

// Who the endpoint works for: said in logs.
struct ShmOpenSlot {
  uint16_t compute_server = 0;
  uint32_t incarnation = 0;
};
std::string EncodeShmOpenSlot(const ShmOpenSlot& request);
absl::StatusOr<ShmOpenSlot> ParseShmOpenSlot(std::string_view body);

std::string EncodeShmSlot(uint32_t slot);
absl::StatusOr<uint32_t> ParseShmSlot(std::string_view body);

}  // namespace pando

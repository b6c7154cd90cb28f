// Fuzz target: whatever arrives on the socket of a shm server or client is a frame or a status, and
// what is a frame is written again as the same bytes.
#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/fabric/body.h"
#include "common/fabric/link/peer_hello.h"
#include "common/fabric/shm/shm_frame.h"

namespace pando {
namespace {

void CheckBody(std::string_view body) {
  const auto slot = ParseShmSlot(body);
  if (slot.ok()) PANDO_CHECK(EncodeShmSlot(*slot) == body);
  const auto open = ParseShmOpenSlot(body);
  if (open.ok()) {
    const auto again = ParseShmOpenSlot(EncodeShmOpenSlot(*open));
    PANDO_CHECK(again.ok() && again->incarnation == open->incarnation);
  }
  // Sizes from a peer never add up to more than fits.
  const auto hello = ParseShmHelloReply(body);
  if (hello.ok()) {
    const ShmGeometry& geometry = hello->geometry;
    PANDO_CHECK_GE(geometry.intents_offset(), geometry.main_bytes + geometry.lock_bytes);
    PANDO_CHECK_GE(geometry.total_bytes(), geometry.IntentOffset(geometry.endpoints_max));
  }
  PANDO_CHECK(!ParseStatus(body).ok());
  const auto peer = ParsePeerHello(body);
  if (peer.ok()) {
    PANDO_CHECK(EncodeBody(*peer) == body);
    PANDO_CHECK_EQ(peer->incompatible & ~kPeerIncompatibleKnown, 0u);
  }
  const absl::Status refusal = CheckRefusal(ParseStatus(body));
  PANDO_CHECK(!refusal.ok() && !absl::IsCancelled(refusal));
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const ShmGeometry geometry = *ShmGeometry::Create(1 << 20, 4096, 1024, 9);
  const absl::Status error = absl::NotFoundError("why");
  return {
      EncodeShmFrame(ShmFrameType::kHello, 0, {}),
      EncodeShmFrame(ShmFrameType::kHelloReply, 0, EncodeShmHelloReply({1, geometry})),
      EncodeShmFrame(ShmFrameType::kOpenSlot, 1, EncodeShmOpenSlot({1, 2})),
      EncodeShmFrame(ShmFrameType::kSlotReply, 2, EncodeShmSlot(3)),
      EncodeShmFrame(ShmFrameType::kCall, 3, "request"),
      EncodeShmFrame(ShmFrameType::kError, 4, EncodeStatus(error)),
      EncodeShmFrame(ShmFrameType::kPeerHello, 0, EncodeBody(MakePeerHello({1, 2}))),
  };
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pando::CheckBody(bytes);
  const auto frame = pando::ParseShmFrame(bytes);
  if (!frame.ok()) return 0;
  PANDO_CHECK(pando::EncodeShmFrame(frame->type, frame->sequence, frame->body) == bytes);
  pando::CheckBody(frame->body);
  return 0;
}

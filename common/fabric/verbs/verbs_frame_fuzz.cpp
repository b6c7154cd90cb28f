// Fuzz target: whatever arrives on a control connection of a verbs server or client is frames or a
// status, in whatever parts it comes, and sizes from a peer never add up to more than fits.
#include <utility>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {
namespace {

void CheckBody(std::string_view body) {
  const auto handle = ParseVerbsHandle(body);
  if (handle.ok()) PANDO_CHECK(EncodeBody<uint32_t>(*handle) == body);
  const auto open = ParseVerbsOpen(body);
  if (open.ok()) PANDO_CHECK(EncodeBody<VerbsOpen>(*open) == body);
  const auto opened = ParseVerbsOpenReply(body);
  if (opened.ok()) PANDO_CHECK(opened->handle != 0);
  const auto hello = ParseVerbsHello(body);
  if (hello.ok()) PANDO_CHECK_EQ(hello->incompatible & ~kVerbsIncompatibleKnown, 0u);
  (void)ParseVerbsHelloReply(body).ok();
  const auto memory = ParseVerbsMemory(body);
  if (memory.ok()) {
    PANDO_CHECK_GE(memory->main_address + memory->main_bytes, memory->main_bytes);
    PANDO_CHECK_GE(memory->lock_address + memory->lock_bytes, memory->lock_bytes);
    PANDO_CHECK(memory->packet_bytes > 0 && memory->mtu_bytes > 0);
  }
  PANDO_CHECK(!ParseStatus(body).ok());
}

// How many frames come out, and whether the stream ended well.
std::pair<int, bool> Read(std::string_view bytes, size_t part) {
  VerbsFrameReader reader;
  int frames = 0;
  for (size_t at = 0; at < bytes.size(); at += part) {
    reader.Append(bytes.substr(at, part));
    for (;;) {
      const auto frame = reader.Next();
      if (!frame.ok()) return {frames, false};
      if (!frame->has_value()) break;
      ++frames;
      CheckBody((*frame)->body);
    }
  }
  return {frames, true};
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  QueuePairAddress address;
  address.number = 17;
  address.mtu_bytes = 4096;
  address.responder_depth = 16;
  VerbsMemory memory;
  memory.main_bytes = 1 << 20;
  memory.main_address = 4096;
  memory.lock_bytes = 4096;
  memory.packet_bytes = memory.mtu_bytes = 1024;
  const std::string hello =
      EncodeVerbsFrame(VerbsFrameType::kHello, 0, EncodeBody<VerbsFeatures>({}));
  const std::string call = EncodeVerbsFrame(VerbsFrameType::kCall, 3, "request");
  return {
      hello + call,
      call + call + call,
      EncodeBody<VerbsFeatures>({}),
      EncodeBody<VerbsHelloReply>({.server_id = 1}),
      EncodeBody<VerbsMemory>(memory),
      EncodeBody<VerbsOpen>({.address = address}),
      EncodeBody<VerbsOpenReply>({address, 4}),
      EncodeVerbsFrame(VerbsFrameType::kError, 4, EncodeStatus(absl::NotFoundError("why"))),
  };
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pando::CheckBody(bytes);
  const auto whole = pando::Read(bytes, size + 1);
  PANDO_CHECK(pando::Read(bytes, 5) == whole);
  return 0;
}

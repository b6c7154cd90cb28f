#include "common/fabric/shm/shm_handshake.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/body.h"

namespace pando {
namespace {

absl::StatusOr<ShmHelloReply> ParseAnswer(std::string_view bytes) {
  PANDO_ASSIGN_OR_RETURN(const ShmFrame frame, ParseShmFrame(bytes));
  if (frame.type == ShmFrameType::kError) return ParseStatus(frame.body);
  if (frame.type != ShmFrameType::kHelloReply) {
    return absl::DataLossError("the answer to the hello is something else");
  }
  return ParseShmHelloReply(frame.body);
}

absl::StatusOr<std::unique_ptr<ShmLink>> Shake(const ServerLocation& location,
                                               int64_t deadline_ns) {
  auto link = std::make_unique<ShmLink>();
  link->location = location;
  PANDO_ASSIGN_OR_RETURN(link->socket, ConnectTo(location.address, deadline_ns));
  PANDO_ASSIGN_OR_RETURN(link->process, IdentifyPeer(link->socket.get()));
  const int socket = link->socket.get();
  if (SendMessage(socket, EncodeShmFrame(ShmFrameType::kHello, 0, {})) == SendResult::kFull) {
    return absl::UnavailableError("the hello could not be sent");
  }
  std::vector<std::byte> buffer(kShmFrameBytesMax);
  size_t bytes = 0;
  UniqueFd memory;
  // A closed connection is looked at, too: the reason may have been sent before.
  if (!WaitReadable(socket, deadline_ns)) {
    return absl::UnavailableError("the memory server does not answer: is it stuck or stopped?");
  }
  switch (ReceiveMessage(socket, buffer, &bytes, &memory)) {
    case ReceiveResult::kMessage:
      break;
    case ReceiveResult::kTooLong:
      return absl::DataLossError("the answer to the hello is too long");
    case ReceiveResult::kNothing:
    case ReceiveResult::kGone:
      return absl::UnavailableError("the memory server closed the connection");
  }
  PANDO_ASSIGN_OR_RETURN(const ShmHelloReply reply,
                         ParseAnswer({reinterpret_cast<const char*>(buffer.data()), bytes}));
  if (reply.server_id != location.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory server there calls itself server ", reply.server_id));
  }
  if (!memory && !UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)) && errno == EMFILE) {
    return absl::ResourceExhaustedError(
        "this process has no file descriptor left for the server's memory: raise RLIMIT_NOFILE "
        "(ulimit -n)");
  }
  if (!memory) return absl::DataLossError("the memory server passed no memory");
  PANDO_ASSIGN_OR_RETURN(link->region, ShmRegion::Map(std::move(memory), reply.geometry));
  return link;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmLink>> ShakeHands(const ServerLocation& location,
                                                    int64_t timeout_ms) {
  absl::StatusOr<std::unique_ptr<ShmLink>> link =
      Shake(location, RealClock().NowNs() + timeout_ms * kMillisecondNs);
  if (link.ok()) return link;
  return Annotate(link.status(),
                  absl::StrCat("connecting to server ", location.id, " at ", location.address));
}

}  // namespace pando

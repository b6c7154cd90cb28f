#include "common/fabric/verbs/verbs_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/link/connect_all.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_handshake.h"

namespace pando {
namespace {

// Requests wait for the socket up to this; more are tried again by their callers.
constexpr size_t kOutBytesMax = 1 << 20;

// What the index was promised of all servers and this one does not have; nullptr: nothing.
const char* WhatIsLacking(const VerbsMemory& memory, const Capabilities& promised) {
  if (promised.lines_atomic && memory.lines_atomic == 0) return "has a software device";
  if (promised.write_unlock && memory.write_unlock == 0) {
    return "keeps its lock table where a WRITE does not release a lock";
  }
  const uint32_t packet_bytes = std::min(memory.packet_bytes, memory.mtu_bytes);
  if (packet_bytes < promised.packet_bytes || memory.mtu_bytes < promised.read_packet_bytes) {
    return "has smaller packets";
  }
  return nullptr;
}

}  // namespace

// --- Servers.

absl::StatusOr<std::shared_ptr<VerbsClient>> VerbsClient::Connect(
    const std::vector<ServerLocation>& servers, const VerbsFabricOptions& options) {
  std::shared_ptr<VerbsClient> client(new VerbsClient(options));
  PANDO_ASSIGN_OR_RETURN(client->device_, VerbsDevice::Open(options.device));
  PANDO_ASSIGN_OR_RETURN(
      auto links,
      ConnectAll<VerbsLink>(servers, options.missing, [&options](const ServerLocation& location) {
        return ShakeVerbsHands(location, options);
      }));
  PANDO_RETURN_IF_ERROR(client->StartWatching("pando-verbs", std::move(links)));
  return client;
}

absl::StatusOr<uint32_t> VerbsClient::AddServer(const ServerLocation& location,
                                                const std::function<void()>& about_to_add,
                                                const Capabilities& capabilities) {
  PANDO_RETURN_IF_ERROR(CheckNotConnected(location));
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<VerbsLink> link, ShakeVerbsHands(location, options_));
  const char* const lacking = WhatIsLacking(link->memory, capabilities);
  if (lacking != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", location.id, " at ", location.address, ", other than those that were there, ",
        lacking, ": connect again, or start it as they were"));
  }
  about_to_add();
  AddLink(link);
  return link->number;
}

void VerbsClient::BreakConnection(ServerId server) {
  // The watcher, and the server, see that it has ended.
  shutdown(LinkTo(server)->socket.get(), SHUT_RDWR);
}

// --- Messages.

bool VerbsClient::Enqueue(VerbsLink* link, std::string_view frame, bool always) {
  bool left = false;
  {
    std::lock_guard lock(link->mutex);
    if (!always && link->out.size() > kOutBytesMax) return false;
    const bool first = link->out.empty();
    link->out.append(frame);
    // Where the connection has ended the watcher is about to see it, too.
    if (first) SendTcp(link->socket.get(), &link->out);
    left = !link->out.empty();
  }
  if (left) Nudge();
  return true;
}

SendResult VerbsClient::Transmit(VerbsLink* link, VerbsFrameType type, uint32_t sequence,
                                 std::string_view body) {
  const bool taken = Enqueue(link, EncodeVerbsFrame(type, sequence, body), false);
  return taken ? SendResult::kSent : SendResult::kFull;
}

void VerbsClient::CloseHandle(VerbsLink* link, uint32_t handle) {
  if (link->gone.load(std::memory_order_acquire)) return;
  Enqueue(link, EncodeVerbsFrame(VerbsFrameType::kClose, 0, EncodeBody<uint32_t>(handle)), true);
}

absl::Status VerbsClient::GiveBack(VerbsLink* link, std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const VerbsOpenReply opened, ParseVerbsOpenReply(body));
  CloseHandle(link, opened.handle);
  return absl::OkStatus();
}

int16_t VerbsClient::EventsOf(VerbsLink* link) {
  std::lock_guard lock(link->mutex);
  return static_cast<int16_t>(POLLIN | (link->out.empty() ? 0 : POLLOUT));
}

absl::Status VerbsClient::Serve(VerbsLink* link) {
  {
    std::lock_guard lock(link->mutex);
    SendTcp(link->socket.get(), &link->out);
  }
  std::string bytes;
  for (;;) {
    switch (ReceiveTcp(link->socket.get(), &bytes)) {
      case TcpResult::kNothing:
        return absl::OkStatus();
      case TcpResult::kGone:
        return absl::CancelledError("it closed the connection, or its host does not answer");
      case TcpResult::kSome:
        break;
    }
    link->reader.Append(std::exchange(bytes, {}));
    for (;;) {
      PANDO_ASSIGN_OR_RETURN(std::optional<VerbsFrame> frame, link->reader.Next());
      if (!frame.has_value()) break;
      PANDO_RETURN_IF_ERROR(Deliver(link, ReplyIn(*std::move(frame))));
    }
  }
}

absl::StatusOr<Reply> VerbsClient::ReplyIn(VerbsFrame frame) {
  std::optional<ReplyKind> kind;
  switch (frame.type) {
    case VerbsFrameType::kError:
      kind = ReplyKind::kError;
      break;
    case VerbsFrameType::kCallReply:
      kind = ReplyKind::kCall;
      break;
    case VerbsFrameType::kOpenReply:
      PANDO_RETURN_IF_ERROR(ParseVerbsOpenReply(frame.body).status());
      kind = ReplyKind::kOpened;
      break;
    default:
      break;
  }
  return MakeReply(kind, frame.sequence, std::move(frame.body));
}

}  // namespace pando

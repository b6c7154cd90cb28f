#include "common/fabric/shm/shm_client.h"

#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/link/connect_all.h"
#include "common/fabric/shm/shm_handshake.h"

namespace pando {

bool ShmMailbox::PutSlot(AddedSlot slot) {
  std::lock_guard lock(mutex_);
  if (!closed_) slots_.push_back(std::move(slot));
  return !closed_;
}

std::vector<ShmMailbox::AddedSlot> ShmMailbox::TakeSlots(uint32_t last) {
  std::lock_guard lock(mutex_);
  std::vector<AddedSlot> taken;
  std::erase_if(slots_, [&](AddedSlot& slot) {
    const bool takes = slot.link->number <= last;
    if (takes) taken.push_back(std::move(slot));
    return takes;
  });
  return taken;
}

std::vector<ShmMailbox::AddedSlot> ShmMailbox::CloseSlots() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  return std::exchange(slots_, {});
}

// --- Servers.

absl::StatusOr<std::shared_ptr<ShmClient>> ShmClient::Connect(
    const std::vector<ServerLocation>& servers, const ShmFabricOptions& options) {
  PANDO_ASSIGN_OR_RETURN(
      auto links,
      ConnectAll<ShmLink>(servers, options.missing, [&options](const ServerLocation& location) {
        return ShakeHands(location, options.connect_timeout_ms);
      }));
  std::shared_ptr<ShmClient> client(new ShmClient(options));
  PANDO_RETURN_IF_ERROR(client->StartWatching("pando-shm", std::move(links)));
  return client;
}

absl::StatusOr<uint32_t> ShmClient::AddServer(const ServerLocation& location,
                                              const std::function<void()>& about_to_add,
                                              uint32_t packet_bytes_min) {
  PANDO_RETURN_IF_ERROR(CheckNotConnected(location));
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<ShmLink> link,
                         ShakeHands(location, options_.connect_timeout_ms));
  if (link->region.geometry().packet_bytes < packet_bytes_min) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", location.id, " has packets of ", link->region.geometry().packet_bytes,
        " bytes, those that were there before ", packet_bytes_min));
  }
  about_to_add();
  const Mailboxes mailboxes = AddLink(link);  // who attaches from now on takes a slot himself
  const absl::Status opened = OpenSlots(link, mailboxes);
  if (!opened.ok()) {
    Disconnect(location.id);
    return opened;
  }
  return link->number;
}

absl::Status ShmClient::OpenSlots(const std::shared_ptr<ShmLink>& link,
                                  const Mailboxes& mailboxes) {
  const auto replies = std::make_shared<Mailbox>();
  PANDO_RETURN_IF_ERROR(replies->Init());
  const int64_t deadline_ns = RealClock().NowNs() + options_.connect_timeout_ms * kMillisecondNs;
  for (const auto& mailbox : mailboxes) {
    PANDO_ASSIGN_OR_RETURN(
        const uint32_t sequence,
        Send(link.get(), ShmFrameType::kOpenSlot,
             EncodeShmOpenSlot({mailbox->compute_server, mailbox->incarnation}), replies));
    std::vector<Reply> answer;
    while (sequence != 0 && answer.empty() && RealClock().NowNs() < deadline_ns) {
      replies->sleeper().Sleep(deadline_ns);
      answer = replies->TakeAll();
    }
    if (answer.empty()) {
      Forget(sequence);
      return absl::UnavailableError(
          absl::StrCat("server ", link->location.id, " does not answer: is it stuck or stopped?"));
    }
    PANDO_RETURN_IF_ERROR(answer.front().status);
    PANDO_ASSIGN_OR_RETURN(const uint32_t slot, ParseShmSlot(answer.front().body));
    if (slot >= link->region.geometry().endpoints_max) {
      return absl::DataLossError(absl::StrCat("server ", link->location.id, ": impossible slot"));
    }
    if (mailbox->PutSlot({link, slot})) {
      link->slots_added.push_back(slot);
    } else {
      CloseSlot(link.get(), slot);
    }
  }
  return absl::OkStatus();
}

void ShmClient::BeforeDisconnect(ShmLink* link) {
  for (const uint32_t slot : std::exchange(link->slots_added, {})) CloseSlot(link, slot);
}

// --- Messages.

SendResult ShmClient::Transmit(ShmLink* link, ShmFrameType type, uint32_t sequence,
                               std::string_view body) {
  return SendMessage(link->socket.get(), EncodeShmFrame(type, sequence, body));
}

void ShmClient::CloseSlot(ShmLink* link, uint32_t slot) {
  constexpr int kTries = 100;
  const std::string frame = EncodeShmFrame(ShmFrameType::kCloseSlot, 0, EncodeShmSlot(slot));
  for (int i = 0; i < kTries && !link->gone.load(std::memory_order_acquire); ++i) {
    if (SendMessage(link->socket.get(), frame) != SendResult::kFull) return;
    const timespec pause = {0, kMillisecondNs};
    nanosleep(&pause, nullptr);
  }
  // The slot stays this process's until it exits.
}

absl::Status ShmClient::GiveBack(ShmLink* link, std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const uint32_t slot, ParseShmSlot(body));
  CloseSlot(link, slot);
  return absl::OkStatus();
}

absl::Status ShmClient::Serve(ShmLink* link) {
  for (;;) {
    size_t bytes = 0;
    switch (ReceiveMessage(link->socket.get(), buffer_, &bytes)) {
      case ReceiveResult::kNothing:
        return absl::OkStatus();
      case ReceiveResult::kMessage:
        PANDO_RETURN_IF_ERROR(
            Deliver(link, ParseReply({reinterpret_cast<const char*>(buffer_.data()), bytes})));
        break;
      case ReceiveResult::kTooLong:
        return absl::DataLossError("it sent a message that is too long");
      case ReceiveResult::kGone:
        return absl::CancelledError("it closed the connection");
    }
  }
}

absl::StatusOr<Reply> ShmClient::ParseReply(std::string_view bytes) {
  PANDO_ASSIGN_OR_RETURN(const ShmFrame frame, ParseShmFrame(bytes));
  std::optional<ReplyKind> kind;
  if (frame.type == ShmFrameType::kError) kind = ReplyKind::kError;
  if (frame.type == ShmFrameType::kSlotReply) kind = ReplyKind::kOpened;
  if (frame.type == ShmFrameType::kCallReply) kind = ReplyKind::kCall;
  return MakeReply(kind, frame.sequence, std::string(frame.body));
}

}  // namespace pando

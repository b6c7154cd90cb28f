#include "common/fabric/shm/shm_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/shm/shm_handshake.h"

namespace pando {

absl::Status ShmLink::GoneError() const {
  return absl::UnavailableError(
      absl::StrCat("server ", location.id, " (", location.address, "): the memory server is gone"));
}

void Mailbox::Put(Reply reply) {
  {
    std::lock_guard lock(mutex_);
    replies_.push_back(std::move(reply));
  }
  doorbell_.Ring();
}

std::vector<Mailbox::Reply> Mailbox::TakeAll() {
  std::lock_guard lock(mutex_);
  return std::exchange(replies_, {});
}

absl::StatusOr<std::shared_ptr<ShmClient>> ShmClient::Connect(
    const std::vector<ServerLocation>& servers, const ShmFabricOptions& options) {
  if (servers.empty()) return absl::InvalidArgumentError("no memory servers to connect to");
  std::shared_ptr<ShmClient> client(new ShmClient(options));
  for (const ServerLocation& location : servers) {
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ShmLink> link,
                           ShakeHands(location, options.connect_timeout_ms));
    client->links_.push_back(std::move(link));
  }
  std::sort(client->links_.begin(), client->links_.end(),
            [](const auto& a, const auto& b) { return a->location.id < b->location.id; });
  std::vector<ServerId> ids;
  for (const auto& link : client->links_) ids.push_back(link->location.id);
  PANDO_ASSIGN_OR_RETURN(client->index_, ServerIndex::Create(ids));
  PANDO_RETURN_IF_ERROR(client->Start());
  return client;
}

absl::Status ShmClient::Start() {
  stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return absl::ErrnoToStatus(errno, "eventfd");
  watcher_ = StartQuietThread("pando-shm", [this] { Watch(); });
  return absl::OkStatus();
}

ShmClient::~ShmClient() {
  if (!watcher_.joinable()) return;
  const uint64_t one = 1;
  PANDO_CHECK_EQ(write(stop_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  watcher_.join();
}

void ShmClient::Attach(std::shared_ptr<Mailbox> mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_.insert(std::move(mailbox));
}

void ShmClient::Detach(const std::shared_ptr<Mailbox>& mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_.erase(mailbox);
}

absl::StatusOr<uint32_t> ShmClient::Send(int link_index, ShmFrameType type, std::string_view body,
                                         std::shared_ptr<Mailbox> mailbox) {
  ShmLink& link = *links_[link_index];
  uint32_t sequence;
  {
    std::lock_guard lock(mutex_);
    // Under the mutex: MarkGone() answers the waiters that it finds, later ones must see the flag.
    if (link.gone.load(std::memory_order_acquire)) return link.GoneError();
    do {
      sequence = ++last_sequence_;
    } while (sequence == 0 || waiters_.contains(sequence));
    waiters_.emplace(sequence, Waiter{link_index, std::move(mailbox)});
  }
  const SendResult sent = SendMessage(link.socket.get(), EncodeShmFrame(type, sequence, body));
  if (sent == SendResult::kSent) return sequence;
  Forget(sequence);
  if (sent == SendResult::kFull) return 0u;
  return link.GoneError();  // the watcher is about to see it, too
}

void ShmClient::Forget(uint32_t sequence) {
  std::lock_guard lock(mutex_);
  waiters_.erase(sequence);
}

void ShmClient::CloseSlot(int link_index, uint32_t slot) {
  constexpr int kTries = 100;
  const ShmLink& link = *links_[link_index];
  const std::string frame = EncodeShmFrame(ShmFrameType::kCloseSlot, 0, EncodeShmSlot(slot));
  for (int i = 0; i < kTries && !link.gone.load(std::memory_order_acquire); ++i) {
    if (SendMessage(link.socket.get(), frame) != SendResult::kFull) return;
    const timespec pause = {0, kMillisecondNs};
    nanosleep(&pause, nullptr);
  }
  // The slot stays this process's until it exits.
}

void ShmClient::Watch() {
  std::vector<std::byte> buffer(kShmFrameBytesMax);
  // [stop, socket and process of link 0, of link 1, ...]; poll() skips negative descriptors.
  std::vector<pollfd> polled;
  polled.push_back({stop_.get(), POLLIN, 0});
  for (const auto& link : links_) {
    polled.push_back({link->socket.get(), POLLIN, 0});
    polled.push_back({link->process.pidfd.get(), POLLIN, 0});
  }
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) {
      PANDO_CHECK(errno == EINTR || errno == ENOMEM) << "poll: " << errno;
      continue;
    }
    if (polled[0].revents != 0) return;
    for (size_t i = 0; i < links_.size(); ++i) {
      pollfd& socket = polled[1 + 2 * i];
      pollfd& process = polled[2 + 2 * i];
      bool alive = true;
      if (socket.revents != 0) alive = ReceiveFrom(static_cast<int>(i), &buffer);
      if (alive && process.revents != 0) {
        MarkGone(static_cast<int>(i), absl::CancelledError("its process has exited"));
        alive = false;
      }
      if (!alive) socket.fd = process.fd = -1;
    }
  }
}

bool ShmClient::ReceiveFrom(int link, std::vector<std::byte>* buffer) {
  for (;;) {
    size_t bytes = 0;
    absl::Status status;
    switch (ReceiveMessage(links_[link]->socket.get(), *buffer, &bytes)) {
      case ReceiveResult::kNothing:
        return true;
      case ReceiveResult::kMessage:
        status = Deliver(link, {reinterpret_cast<const char*>(buffer->data()), bytes});
        break;
      case ReceiveResult::kTooLong:
        status = absl::DataLossError("it sent a message that is too long");
        break;
      case ReceiveResult::kGone:
        status = absl::CancelledError("it closed the connection");
        break;
    }
    if (!status.ok()) {
      MarkGone(link, status);
      return false;
    }
  }
}

absl::Status ShmClient::Deliver(int link, std::string_view bytes) {
  PANDO_ASSIGN_OR_RETURN(const ShmFrame frame, ParseShmFrame(bytes));
  Mailbox::Reply reply = {frame.sequence, frame.type, absl::OkStatus(), std::string(frame.body)};
  if (frame.type == ShmFrameType::kError) {
    reply.status = ParseStatus(frame.body);
    if (frame.sequence == 0) return reply.status;
  } else if (frame.type != ShmFrameType::kSlotReply && frame.type != ShmFrameType::kCallReply) {
    return absl::DataLossError("it sent something that is no reply");
  }
  std::shared_ptr<Mailbox> mailbox;
  {
    std::lock_guard lock(mutex_);
    const auto waiter = waiters_.find(frame.sequence);
    if (waiter != waiters_.end() && waiter->second.link == link) {
      mailbox = std::move(waiter->second.mailbox);
      waiters_.erase(waiter);
    }
  }
  if (mailbox != nullptr) {
    mailbox->Put(std::move(reply));
  } else if (frame.type == ShmFrameType::kSlotReply) {
    // Whoever asked for the slot has given up.
    PANDO_ASSIGN_OR_RETURN(const uint32_t slot, ParseShmSlot(frame.body));
    CloseSlot(link, slot);
  }
  return absl::OkStatus();
}

void ShmClient::MarkGone(int link_index, const absl::Status& why) {
  ShmLink& link = *links_[link_index];
  std::vector<std::pair<uint32_t, std::shared_ptr<Mailbox>>> waiting;
  std::vector<std::shared_ptr<Mailbox>> mailboxes;
  {
    std::lock_guard lock(mutex_);
    link.gone.store(true, std::memory_order_release);
    for (const auto& [sequence, waiter] : waiters_) {
      if (waiter.link == link_index) waiting.emplace_back(sequence, waiter.mailbox);
    }
    for (const auto& [sequence, mailbox] : waiting) waiters_.erase(sequence);
    mailboxes.assign(mailboxes_.begin(), mailboxes_.end());
  }
  for (const auto& [sequence, mailbox] : waiting) {
    mailbox->Put({sequence, ShmFrameType::kError, link.GoneError(), {}});
  }
  for (const auto& mailbox : mailboxes) mailbox->doorbell().Ring();
  // Last: an application's log sink may take its time.
  PANDO_LOG(WARNING) << "memory server " << link.location.id << " at " << link.location.address
                     << " is gone: " << why.message();
}

}  // namespace pando

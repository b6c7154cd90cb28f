#include "common/fabric/shm/shm_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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
#include "common/fabric/connect_all.h"
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

bool Mailbox::PutSlot(AddedSlot slot) {
  std::lock_guard lock(mutex_);
  if (!closed_) slots_.push_back(std::move(slot));
  return !closed_;
}

std::vector<Mailbox::AddedSlot> Mailbox::TakeSlots(uint32_t end) {
  std::lock_guard lock(mutex_);
  std::vector<AddedSlot> taken;
  std::erase_if(slots_, [&](AddedSlot& slot) {
    const bool takes = slot.link->number < end;
    if (takes) taken.push_back(std::move(slot));
    return takes;
  });
  return taken;
}

std::vector<Mailbox::AddedSlot> Mailbox::CloseSlots() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  return std::exchange(slots_, {});
}

absl::StatusOr<std::shared_ptr<ShmClient>> ShmClient::Connect(
    const std::vector<ServerLocation>& servers, const ShmFabricOptions& options) {
  PANDO_ASSIGN_OR_RETURN(
      auto links,
      ConnectAll<ShmLink>(servers, options.missing, [&options](const ServerLocation& location) {
        return ShakeHands(location, options.connect_timeout_ms);
      }));
  std::shared_ptr<ShmClient> client(new ShmClient(options));
  for (auto& link : links) client->links_[link->location.id] = std::move(link);
  PANDO_RETURN_IF_ERROR(client->Start());
  return client;
}

absl::Status ShmClient::Start() {
  nudge_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!nudge_) return absl::ErrnoToStatus(errno, "eventfd");
  watcher_ = StartQuietThread("pando-shm", [this] { Watch(); });
  return absl::OkStatus();
}

ShmClient::~ShmClient() {
  if (!watcher_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  Nudge();
  watcher_.join();
}

void ShmClient::Nudge() {
  const uint64_t one = 1;
  // Can only fail where the counter is full, and then the watcher wakes anyway.
  [[maybe_unused]] const ssize_t ignored = write(nudge_.get(), &one, sizeof(one));
}

ShmClient::Links ShmClient::links() const {
  std::lock_guard lock(mutex_);
  Links links;
  for (const auto& [id, link] : links_) links.push_back(link);
  return links;
}

ShmClient::Links ShmClient::LiveLinks() const {
  Links live = links();
  std::erase_if(live, [](const auto& link) { return link->gone.load(std::memory_order_acquire); });
  return live;
}

std::shared_ptr<ShmLink> ShmClient::LinkTo(ServerId server) const {
  std::lock_guard lock(mutex_);
  const auto link = links_.find(server);
  return link == links_.end() ? nullptr : link->second;
}

absl::StatusOr<uint32_t> ShmClient::AddServer(const ServerLocation& location,
                                              const std::function<void()>& about_to_add,
                                              uint32_t packet_bytes_min) {
  const std::shared_ptr<ShmLink> before = LinkTo(location.id);
  if (before != nullptr && !before->gone.load(std::memory_order_acquire)) {
    return absl::UnavailableError(
        absl::StrCat("server ", location.id, " is connected at ", before->location.address));
  }
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<ShmLink> link,
                         ShakeHands(location, options_.connect_timeout_ms));
  if (link->region.geometry().packet_bytes < packet_bytes_min) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", location.id, " has packets of ", link->region.geometry().packet_bytes,
        " bytes, those that were there before ", packet_bytes_min));
  }
  about_to_add();
  std::vector<std::shared_ptr<Mailbox>> mailboxes;
  {
    std::lock_guard lock(mutex_);
    link->number = links_added_++;
    links_[location.id] = link;
    // Whoever attaches from now on finds the link and takes a slot himself.
    mailboxes.assign(mailboxes_.begin(), mailboxes_.end());
  }
  Nudge();
  const absl::Status opened = OpenSlots(link, mailboxes);
  if (!opened.ok()) {
    Disconnect(location.id);
    return opened;
  }
  return link->number + 1;
}

absl::Status ShmClient::OpenSlots(const std::shared_ptr<ShmLink>& link,
                                  const std::vector<std::shared_ptr<Mailbox>>& mailboxes) {
  const auto replies = std::make_shared<Mailbox>(0, 0);
  PANDO_RETURN_IF_ERROR(replies->Init());
  const int64_t deadline_ns = RealClock().NowNs() + options_.connect_timeout_ms * kMillisecondNs;
  for (const auto& mailbox : mailboxes) {
    PANDO_ASSIGN_OR_RETURN(
        const uint32_t sequence,
        Send(link.get(), ShmFrameType::kOpenSlot,
             EncodeShmOpenSlot({mailbox->compute_server, mailbox->incarnation}), replies));
    std::vector<Mailbox::Reply> answer;
    while (sequence != 0 && answer.empty() && RealClock().NowNs() < deadline_ns) {
      replies->doorbell().WaitUntil(deadline_ns);
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

void ShmClient::Disconnect(ServerId server) {
  const std::shared_ptr<ShmLink> link = LinkTo(server);
  if (link == nullptr) return;
  for (const uint32_t slot : std::exchange(link->slots_added, {})) CloseSlot(link.get(), slot);
  // The watcher sees that it has ended, and so does the server.
  shutdown(link->socket.get(), SHUT_RDWR);
  MarkGone(link.get(), absl::CancelledError("this client does not want it"));
}

ShmClient::Links ShmClient::Attach(std::shared_ptr<Mailbox> mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_.insert(std::move(mailbox));
  Links links;
  for (const auto& [id, link] : links_) links.push_back(link);
  return links;
}

void ShmClient::Detach(const std::shared_ptr<Mailbox>& mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_.erase(mailbox);
}

absl::StatusOr<uint32_t> ShmClient::Send(ShmLink* link, ShmFrameType type, std::string_view body,
                                         std::shared_ptr<Mailbox> mailbox) {
  uint32_t sequence;
  {
    std::lock_guard lock(mutex_);
    // Under the mutex: MarkGone() answers the waiters that it finds, later ones must see the flag.
    if (link->gone.load(std::memory_order_acquire)) return link->GoneError();
    do {
      sequence = ++last_sequence_;
    } while (sequence == 0 || waiters_.contains(sequence));
    waiters_.emplace(sequence, Waiter{link, std::move(mailbox)});
  }
  const SendResult sent = SendMessage(link->socket.get(), EncodeShmFrame(type, sequence, body));
  if (sent == SendResult::kSent) return sequence;
  Forget(sequence);
  if (sent == SendResult::kFull) return 0u;
  return link->GoneError();  // the watcher is about to see it, too
}

void ShmClient::Forget(uint32_t sequence) {
  std::lock_guard lock(mutex_);
  waiters_.erase(sequence);
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

void ShmClient::Watch() {
  std::vector<std::byte> buffer(kShmFrameBytesMax);
  while (!stop_.load(std::memory_order_acquire)) {
    // [nudge, socket and process of link 0, of link 1, ...]
    const Links links = LiveLinks();
    std::vector<pollfd> polled;
    polled.push_back({nudge_.get(), POLLIN, 0});
    for (const auto& link : links) {
      polled.push_back({link->socket.get(), POLLIN, 0});
      polled.push_back({link->process.pidfd.get(), POLLIN, 0});
    }
    bool same_links = true;
    while (same_links) {
      if (poll(polled.data(), polled.size(), -1) < 0) {
        PANDO_CHECK(errno == EINTR || errno == ENOMEM) << "poll: " << errno;
        continue;
      }
      if (polled[0].revents != 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t ignored = read(nudge_.get(), &count, sizeof(count));
        same_links = false;
      }
      for (size_t i = 0; i < links.size(); ++i) {
        ShmLink* const link = links[i].get();
        bool alive = true;
        if (polled[1 + 2 * i].revents != 0) alive = ReceiveFrom(link, &buffer);
        if (alive && polled[2 + 2 * i].revents != 0) {
          MarkGone(link, absl::CancelledError("its process has exited"));
          alive = false;
        }
        same_links = same_links && alive;
      }
    }
  }
}

bool ShmClient::ReceiveFrom(ShmLink* link, std::vector<std::byte>* buffer) {
  for (;;) {
    size_t bytes = 0;
    absl::Status status;
    switch (ReceiveMessage(link->socket.get(), *buffer, &bytes)) {
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

absl::Status ShmClient::Deliver(ShmLink* link, std::string_view bytes) {
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

void ShmClient::MarkGone(ShmLink* link, const absl::Status& why) {
  std::vector<std::pair<uint32_t, std::shared_ptr<Mailbox>>> waiting;
  std::vector<std::shared_ptr<Mailbox>> mailboxes;
  {
    std::lock_guard lock(mutex_);
    if (link->gone.exchange(true, std::memory_order_acq_rel)) return;
    for (const auto& [sequence, waiter] : waiters_) {
      if (waiter.link == link) waiting.emplace_back(sequence, waiter.mailbox);
    }
    for (const auto& [sequence, mailbox] : waiting) waiters_.erase(sequence);
    mailboxes.assign(mailboxes_.begin(), mailboxes_.end());
  }
  for (const auto& [sequence, mailbox] : waiting) {
    mailbox->Put({sequence, ShmFrameType::kError, link->GoneError(), {}});
  }
  for (const auto& mailbox : mailboxes) mailbox->doorbell().Ring();
  // Last: an application's log sink may take its time.
  PANDO_LOG(WARNING) << "memory server " << link->location.id << " at " << link->location.address
                     << " is gone: " << why.message();
}

}  // namespace pando

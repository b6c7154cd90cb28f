#include "common/fabric/verbs/verbs_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/connect_all.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_handshake.h"

namespace pando {
namespace {

// Requests wait for the socket up to this; more are tried again by their callers.
constexpr size_t kOutBytesMax = 1 << 20;
// A server that comes later has as long as this for the handshake, however little time was left
// when the client connected.
constexpr int64_t kAddServerMsMin = 1'000;

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

absl::Status VerbsLink::GoneError() const {
  return absl::UnavailableError(
      absl::StrCat("server ", location.id, " (", location.address, "): the memory server is gone"));
}

bool VerbsMailbox::Put(Reply reply) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    replies_.push_back(std::move(reply));
    filled_.store(true, std::memory_order_release);
  }
  sleeper_.Wake();
  return true;
}

std::vector<VerbsMailbox::Reply> VerbsMailbox::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  filled_.store(false, std::memory_order_release);
  return std::exchange(replies_, {});
}

std::vector<VerbsMailbox::Reply> VerbsMailbox::TakeAll() {
  if (empty()) return {};
  std::lock_guard lock(mutex_);
  filled_.store(false, std::memory_order_release);
  return std::exchange(replies_, {});
}

absl::StatusOr<std::shared_ptr<VerbsClient>> VerbsClient::Connect(
    const std::vector<ServerLocation>& servers, const VerbsFabricOptions& options) {
  std::shared_ptr<VerbsClient> client(new VerbsClient(options));
  PANDO_ASSIGN_OR_RETURN(client->device_, VerbsDevice::Open(options.device));
  PANDO_ASSIGN_OR_RETURN(
      auto links,
      ConnectAll<VerbsLink>(servers, options.missing, [&options](const ServerLocation& location) {
        return ShakeVerbsHands(location, options);
      }));
  for (auto& link : links) client->links_[link->location.id] = std::move(link);
  PANDO_RETURN_IF_ERROR(client->Start());
  return client;
}

absl::Status VerbsClient::Start() {
  nudge_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!nudge_) return absl::ErrnoToStatus(errno, "eventfd");
  watcher_ = StartQuietThread("pando-verbs", [this] { Watch(); });
  return absl::OkStatus();
}

VerbsClient::~VerbsClient() {
  if (!watcher_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  Nudge();
  watcher_.join();
}

void VerbsClient::Nudge() {
  const uint64_t one = 1;
  // Can only fail where the counter is full, and then the watcher wakes anyway.
  [[maybe_unused]] const ssize_t ignored = write(nudge_.get(), &one, sizeof(one));
}

void VerbsClient::NudgeForLinks() {
  links_changed_.store(true, std::memory_order_release);
  Nudge();
}

// --- Servers.

VerbsClient::Links VerbsClient::links() const {
  std::lock_guard lock(mutex_);
  Links links;
  for (const auto& [id, link] : links_) links.push_back(link);
  return links;
}

std::shared_ptr<VerbsLink> VerbsClient::LinkTo(ServerId server) const {
  std::lock_guard lock(mutex_);
  const auto link = links_.find(server);
  return link == links_.end() ? nullptr : link->second;
}

absl::StatusOr<uint32_t> VerbsClient::AddServer(const ServerLocation& location,
                                                const std::function<void()>& about_to_add,
                                                const Capabilities& capabilities) {
  const std::shared_ptr<VerbsLink> before = LinkTo(location.id);
  if (before != nullptr && !before->gone.load(std::memory_order_acquire)) {
    return absl::UnavailableError(
        absl::StrCat("server ", location.id, " is connected at ", before->location.address));
  }
  VerbsFabricOptions options = options_;
  options.connect_timeout_ms = std::max(options.connect_timeout_ms, kAddServerMsMin);
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<VerbsLink> link, ShakeVerbsHands(location, options));
  const char* const lacking = WhatIsLacking(link->memory, capabilities);
  if (lacking != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", location.id, " at ", location.address, ", other than those that were there, ",
        lacking, ": connect anew, or start it as they were"));
  }
  about_to_add();
  uint32_t number;
  {
    std::lock_guard lock(mutex_);
    number = link->number = ++links_added_;
    links_[location.id] = std::move(link);
  }
  NudgeForLinks();
  return number;
}

VerbsClient::Links VerbsClient::AddedLinks(uint32_t after, uint32_t last) const {
  std::lock_guard lock(mutex_);
  Links added;
  for (const auto& [id, link] : links_) {
    if (link->number > after && link->number <= last) added.push_back(link);
  }
  return added;
}

void VerbsClient::Disconnect(ServerId server) {
  const std::shared_ptr<VerbsLink> link = LinkTo(server);
  if (link != nullptr) MarkGone(link.get(), absl::CancelledError("this client does not want it"));
}

// --- Requests.

VerbsClient::Servers VerbsClient::Attach(std::shared_ptr<VerbsMailbox> mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_.insert(std::move(mailbox));
  Servers servers = {{}, links_added_};
  for (const auto& [id, link] : links_) servers.links.push_back(link);
  return servers;
}

void VerbsClient::Detach(const std::shared_ptr<VerbsMailbox>& mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_.erase(mailbox);
}

bool VerbsClient::Enqueue(VerbsLink* link, std::string frame, bool always) {
  bool left = false;
  {
    std::lock_guard lock(link->mutex);
    if (!always && link->out.size() > kOutBytesMax) return false;
    const bool first = link->out.empty();
    link->out += frame;
    // Where the connection has ended the watcher is about to see it, too.
    if (first) SendTcp(link->socket.get(), &link->out);
    left = !link->out.empty();
  }
  if (left) Nudge();
  return true;
}

absl::StatusOr<uint32_t> VerbsClient::Send(VerbsLink* link, VerbsFrameType type,
                                           std::string_view body,
                                           std::shared_ptr<VerbsMailbox> mailbox) {
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
  if (Enqueue(link, EncodeVerbsFrame(type, sequence, body), false)) return sequence;
  Forget(sequence);
  return 0u;
}

void VerbsClient::Forget(uint32_t sequence) {
  std::lock_guard lock(mutex_);
  waiters_.erase(sequence);
}

void VerbsClient::CloseHandle(VerbsLink* link, uint32_t handle) {
  if (link->gone.load(std::memory_order_acquire)) return;
  Enqueue(link, EncodeVerbsFrame(VerbsFrameType::kClose, 0, EncodeVerbsHandle(handle)), true);
}

void VerbsClient::BreakConnection(ServerId server) {
  // The watcher, and the server, see that it has ended.
  shutdown(LinkTo(server)->socket.get(), SHUT_RDWR);
}

// --- The watcher.

void VerbsClient::Watch() {
  Links watched;
  std::vector<pollfd> polled;
  while (!stop_.load(std::memory_order_acquire)) {
    if (links_changed_.exchange(false, std::memory_order_acq_rel)) {
      watched = links();
      polled.resize(1 + watched.size());
      polled[0] = {nudge_.get(), POLLIN, 0};
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      VerbsLink& link = *watched[i];
      std::lock_guard lock(link.mutex);
      const bool gone = link.gone.load(std::memory_order_acquire);
      const short events = static_cast<short>(POLLIN | (link.out.empty() ? 0 : POLLOUT));
      polled[1 + i] = {gone ? -1 : link.socket.get(), events, 0};  // poll() skips negative ones
    }
    if (poll(polled.data(), polled.size(), -1) < 0) {
      PANDO_CHECK(errno == EINTR || errno == ENOMEM) << "poll: " << errno;
      continue;
    }
    uint64_t count;
    [[maybe_unused]] const ssize_t ignored = read(nudge_.get(), &count, sizeof(count));
    for (size_t i = 0; i < watched.size(); ++i) {
      if (polled[1 + i].fd < 0 || polled[1 + i].revents == 0) continue;
      const absl::Status status = Serve(watched[i].get());
      if (!status.ok()) MarkGone(watched[i].get(), status);
    }
  }
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
      PANDO_RETURN_IF_ERROR(Deliver(link, *std::move(frame)));
    }
  }
}

absl::Status VerbsClient::Deliver(VerbsLink* link, VerbsFrame frame) {
  VerbsMailbox::Reply reply = {frame.sequence, frame.type, absl::OkStatus(), std::move(frame.body)};
  if (frame.type == VerbsFrameType::kError) {
    reply.status = ParseStatus(reply.body);
    if (frame.sequence == 0) return reply.status;
  } else if (frame.type != VerbsFrameType::kOpenReply && frame.type != VerbsFrameType::kCallReply) {
    return absl::DataLossError("it sent something that is no reply");
  }
  std::shared_ptr<VerbsMailbox> mailbox;
  {
    std::lock_guard lock(mutex_);
    const auto waiter = waiters_.find(frame.sequence);
    if (waiter != waiters_.end() && waiter->second.link == link) {
      mailbox = std::move(waiter->second.mailbox);
      waiters_.erase(waiter);
    }
  }
  if (frame.type != VerbsFrameType::kOpenReply) {
    if (mailbox != nullptr) mailbox->Put(std::move(reply));
    return absl::OkStatus();
  }
  PANDO_ASSIGN_OR_RETURN(const VerbsOpenReply opened, ParseVerbsOpenReply(reply.body));
  if (mailbox == nullptr || !mailbox->Put(std::move(reply))) {
    CloseHandle(link, opened.handle);  // whoever asked for the queue pair has given up
  }
  return absl::OkStatus();
}

void VerbsClient::MarkGone(VerbsLink* link, const absl::Status& why) {
  std::vector<std::pair<uint32_t, std::shared_ptr<VerbsMailbox>>> waiting;
  std::vector<std::shared_ptr<VerbsMailbox>> mailboxes;
  {
    std::lock_guard lock(mutex_);
    if (link->gone.exchange(true, std::memory_order_acq_rel)) return;
    gone_count_.fetch_add(1, std::memory_order_release);
    for (const auto& [sequence, waiter] : waiters_) {
      if (waiter.link == link) waiting.emplace_back(sequence, waiter.mailbox);
    }
    for (const auto& [sequence, mailbox] : waiting) waiters_.erase(sequence);
    mailboxes.assign(mailboxes_.begin(), mailboxes_.end());
  }
  // So that the server notices, too, where it was not the one that ended it.
  shutdown(link->socket.get(), SHUT_RDWR);
  for (const auto& [sequence, mailbox] : waiting) {
    mailbox->Put({sequence, VerbsFrameType::kError, link->GoneError(), {}});
  }
  for (const auto& mailbox : mailboxes) mailbox->sleeper().Wake();
  // Last: an application's log sink may take its time.
  PANDO_LOG(WARNING) << "memory server " << link->location.id << " at " << link->location.address
                     << " is gone: " << why.message();
}

}  // namespace pando

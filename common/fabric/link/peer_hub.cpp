#include "common/fabric/link/peer_hub.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {

namespace {

// Until what had come before is read: more than sockets hold.
constexpr int kTurnsWhenGone = 128;

}  // namespace

// --- What users have.

PeerSend HubLink::TrySend(std::string_view message) {
  if (message.empty() || message.size() > kPeerMessageBytesMax) return PeerSend::kRefused;
  std::lock_guard lock(mutex_);
  if (is_over()) return PeerSend::kBroken;
  const SendResult sent = open_ ? Transmit(message) : SendResult::kFull;
  switch (sent) {
    case SendResult::kSent:
      return PeerSend::kSent;
    case SendResult::kGone:
      gone_ = true;
      hub_->Nudge(shared_from_this());
      return PeerSend::kBroken;
    case SendResult::kFull:
      break;
  }
  // Before it is open OnWritable() comes by itself.
  if (open_ && !std::exchange(wants_writable_, true)) hub_->Nudge(shared_from_this());
  return PeerSend::kFull;
}

void HubLink::Close() {
  std::lock_guard lock(mutex_);
  if (hub_ == nullptr || std::exchange(closing_, true)) return;
  hub_->Nudge(shared_from_this());
}

bool HubLink::broken() const {
  std::lock_guard lock(mutex_);
  return is_over();
}

PeerIdentity HubLink::other() const {
  std::lock_guard lock(mutex_);
  return other_;
}

// --- What the hub's thread has.

HubConnection::HubConnection(PeerId peer, UniqueFd socket, std::string name, std::string origin,
                             std::shared_ptr<HubLink> link, PeerHub* hub, PeerHandler* handler)
    : ServedLink(peer, std::move(socket), std::move(name), std::move(origin)),
      link_(std::move(link)),
      hub_(hub),
      dialled_(handler != nullptr),
      handler_(handler) {
  std::lock_guard lock(link_->mutex_);
  link_->peer_ = peer;
}

void HubConnection::Detach() {
  std::lock_guard lock(link_->mutex_);
  link_->hub_ = nullptr;
}

HubConnection::~HubConnection() {
  Detach();
  if (handler_ == nullptr) return;
  handler_->OnBroken(link_.get(),
                     why_.ok() ? absl::CancelledError("this end closed the link") : why_);
}

absl::Status HubConnection::End(const absl::Status& why) {
  if (why_.ok()) why_ = why;
  return why;
}

bool HubConnection::is_closing() const {
  std::lock_guard lock(link_->mutex_);
  return link_->closing_;
}

bool HubConnection::is_gone() const {
  std::lock_guard lock(link_->mutex_);
  return link_->gone_;
}

absl::Status HubConnection::OnReady() {
  if (is_closing()) return absl::CancelledError("closed");
  const uint64_t before = delivered_;
  PANDO_RETURN_IF_ERROR(Receive());
  if (is_gone()) {
    // What it has sent is heard first: an answer that has come is no unknown outcome.
    PollMessages();
    // A peer that goes on sending holds its end up no longer than that.
    if (delivered_ == before || ++turns_when_gone_ == kTurnsWhenGone) {
      return End(absl::UnavailableError("the other end takes no messages any more"));
    }
    hub_->Nudge(link_);
  }
  CheckWritable();
  return is_closing() ? absl::CancelledError("closed") : absl::OkStatus();
}

void HubConnection::CheckWritable() {
  {
    std::lock_guard lock(link_->mutex_);
    const bool waits = link_->wants_writable_ && link_->open_ && !link_->is_over();
    if (!waits || !link_->HasRoom()) return;
    link_->wants_writable_ = false;
  }
  TellWritable();
}

bool HubConnection::wants_write() const {
  std::lock_guard lock(link_->mutex_);
  return link_->wants_writable_ && link_->open_ && !link_->is_over();
}

absl::Status HubConnection::Refuse(const absl::Status& status) {
  if (!introduced() && !dialled_) SendError(status);
  return End(status);
}

absl::Status HubConnection::Opened(const PeerIdentity& other) {
  introduced_ = true;
  {
    std::lock_guard lock(link_->mutex_);
    link_->open_ = true;
    link_->other_ = other;
  }
  if (dialled_) {
    TellWritable();
    return absl::OkStatus();
  }
  handler_ = hub_->options().acceptor->OnAccepted(link_);
  return handler_ != nullptr ? absl::OkStatus() : absl::CancelledError("not taken");
}

void HubConnection::Deliver(std::string_view message) {
  ++delivered_;
  if (!is_closing()) handler_->OnMessage(link_.get(), message);
}

void HubConnection::TellWritable() {
  if (!is_closing()) handler_->OnWritable(link_.get());
}

// --- The hub.

PeerHub::PeerHub(const PeerOptions& options)
    : LinkServer({.server_id = options.identity.compute_server,
                  .connections_max = options.links_max,
                  .hello_timeout_ms = options.hello_timeout_ms,
                  .identity_timeout_ms = options.hello_timeout_ms}),
      options_(options) {}

absl::Status PeerHub::CheckOptions(const PeerOptions& options) {
  if (options.hello_timeout_ms > 0 && options.links_max > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("hello_timeout_ms and links_max have to be above 0");
}

absl::Status PeerHub::Start(UniqueFd listener) {
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return absl::ErrnoToStatus(errno, "eventfd");
  PANDO_RETURN_IF_ERROR(LinkServer::Open(std::move(listener)));
  PANDO_RETURN_IF_ERROR(WatchOwn(wake_.get()));
  PANDO_RETURN_IF_ERROR(WatchMore());
  PANDO_ASSIGN_OR_RETURN(thread_, StartQuietThread("pando-peers", [this] { Run(); }));
  return absl::OkStatus();
}

void PeerHub::Run() {
  PANDO_CHECK_OK(LinkServer::Run(this));
  CloseAll();
  std::vector<Dialled> dialled;
  {
    std::lock_guard lock(mutex_);
    dialled.swap(dialled_);
  }
  for (Dialled& one : dialled) {  // they do not begin any more
    NewConnection(NextPeer(), std::move(one.socket), std::move(one.address), std::move(one.link),
                  one.handler);
  }
}

void PeerHub::Shutdown() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Stop();
  thread_.join();
}

void PeerHub::Wake() {
  const uint64_t one = 1;
  // Fails only where the counter is at its end: then the loop has been told often enough.
  [[maybe_unused]] const ssize_t ignored = write(wake_.get(), &one, sizeof(one));
}

void PeerHub::Nudge(std::shared_ptr<HubLink> link) {
  {
    std::lock_guard lock(mutex_);
    nudged_.push_back(std::move(link));
  }
  Wake();
}

absl::StatusOr<std::shared_ptr<PeerLink>> PeerHub::Connect(const std::string& address,
                                                           PeerHandler* handler) {
  absl::StatusOr<UniqueFd> socket = Dial(address);
  if (!socket.ok()) {
    return Annotate(socket.status(), absl::StrCat("connecting to the compute server at ", address));
  }
  std::shared_ptr<HubLink> link = NewLink();
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return absl::UnavailableError("this port is being closed");
    dialled_.push_back({*std::move(socket), address, link, handler});
  }
  Wake();
  return link;
}

void PeerHub::OnOwnEvent() {
  uint64_t count;
  [[maybe_unused]] const ssize_t ignored = read(wake_.get(), &count, sizeof(count));
  std::vector<Dialled> dialled;
  std::vector<std::shared_ptr<HubLink>> nudged;
  {
    std::lock_guard lock(mutex_);
    dialled.swap(dialled_);
    nudged.swap(nudged_);
  }
  for (Dialled& one : dialled) {
    AdmitAs(std::move(one.socket), std::move(one.address), std::move(one.link), one.handler);
  }
  for (const auto& link : nudged) {
    if (ServedLink* const connection = Find(link->peer_)) GoOn(connection);
  }
}

void PeerHub::AdmitAs(UniqueFd socket, std::string name, std::shared_ptr<HubLink> link,
                      PeerHandler* handler) {
  const PeerId peer = NextPeer();
  if (handler != nullptr) {
    opening_.emplace_back(RealClock().NowNs() + options_.hello_timeout_ms * kMillisecondNs, peer);
  }
  Admit(NewConnection(peer, std::move(socket), std::move(name), std::move(link), handler));
}

void PeerHub::Welcome(UniqueFd socket) {
  absl::StatusOr<std::string> name = Identify(socket.get());
  if (absl::IsResourceExhausted(name.status()) && EvictForDescriptor()) {
    name = Identify(socket.get());
  }
  if (!name.ok()) {
    LogRefused("compute server", name.status());
    return Refuse(socket.get(), name.status());
  }
  AdmitAs(std::move(socket), *std::move(name), NewLink(), nullptr);
}

void PeerHub::OnClosed(ServedLink* connection) {
  Unwatch(connection);
  Erase(connection->peer());
}

void PeerHub::AfterTurn() {
  const int64_t now_ns = RealClock().NowNs();
  while (!opening_.empty() && opening_.front().first <= now_ns) {
    ServedLink* const late = Find(opening_.front().second);
    opening_.pop_front();
    if (late == nullptr || late->introduced()) continue;
    static_cast<HubConnection*>(late)
        ->End(absl::UnavailableError(absl::StrCat("the compute server at ", late->name(),
                                                  " does not answer: is it stuck or stopped?")))
        .IgnoreError();
    OnClosed(late);
  }
}

int64_t PeerHub::NextTurnNs() const { return opening_.empty() ? kNeverNs : opening_.front().first; }

absl::Status PeerHub::FullError(size_t links) const {
  return absl::ResourceExhaustedError(absl::StrCat("compute server ",
                                                   options_.identity.compute_server, " has ", links,
                                                   " links to others, as many as it takes"));
}

}  // namespace pando

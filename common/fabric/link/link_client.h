// The client's side of links, and what the endpoints of one fabric share of them: the links, the
// requests under way, and a watcher that receives replies and notices that servers are gone. A
// backend derives from it (LinkT from Link, MailboxT from Mailbox) and says how a link sends and
// receives; LinkT::FrameType is what its frames are called.
//
// Servers may be added while endpoints work: each link has a number, in the order of its coming,
// and an endpoint uses those that it has taken up.
//
// Thread safety: thread-safe; what a backend implements says itself who calls it. The last owner to
// go stops the watcher; that is never the watcher itself. Invariants:
//   1. The watcher touches no caller's object: replies go to a mailbox, which its owner shares.
//   2. Once a link is gone it stays gone, and nothing is sent over it. Every request over it that
//      was under way gets one Unavailable reply, and every attached mailbox is woken. Another life
//      of the server is another link.
//   3. A reply goes only to the caller that asked over that very link, whatever the server says.
//      A sequence is used again only when nobody waits for it; 0 is none.
//   4. What a server opened for an endpoint that does not want it any more is given back to it.
//   5. A link that is gone is kept by its users, by the list of the latest until another life of
//      its server follows, and by nobody else.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/log_aside.h"
#include "common/fabric/link/link.h"
#include "common/fabric/link/link_watcher.h"
#include "common/fabric/link/mailbox.h"

namespace pando {

// Who has connected gives later handshakes (of a new endpoint, of a server that comes) as long as
// this, however little time was left for the first.
inline constexpr int64_t kLaterHandshakeMsMin = 1'000;

template <typename LinkT, typename MailboxT = Mailbox>
class LinkClient : private LinkWatcher::Owner {
 public:
  using FrameType = typename LinkT::FrameType;
  using Links = std::vector<std::shared_ptr<LinkT>>;
  using Mailboxes = std::vector<std::shared_ptr<MailboxT>>;
  // What an endpoint begins with.
  struct Attached {
    Links links;
    uint32_t added = 0;  // the number of the last that was added
  };

  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  // The latest of each server, by ascending server id.
  Links links() const {
    std::lock_guard lock(mutex_);
    return LatestLinks();
  }
  // nullptr: none.
  std::shared_ptr<LinkT> LinkTo(ServerId server) const {
    std::lock_guard lock(mutex_);
    const auto link = links_.find(server);
    return link == links_.end() ? nullptr : link->second;
  }
  bool IsConnected(ServerId server) const {
    const std::shared_ptr<LinkT> link = LinkTo(server);
    return link != nullptr && !link->gone.load(std::memory_order_acquire);
  }
  std::vector<ServerId> servers() const {
    std::vector<ServerId> ids;
    for (const auto& link : links()) ids.push_back(link->location.id);
    return ids;
  }
  // Of the links with numbers above `after`, up to `last`, those that nobody has followed yet.
  Links AddedLinks(uint32_t after, uint32_t last) const {
    Links added = links();
    std::erase_if(added, [&](const auto& l) { return l->number <= after || l->number > last; });
    return added;
  }
  // How often a link has gone; changes after the link says so.
  uint32_t gone_count() const { return gone_count_.load(std::memory_order_acquire); }
  // As if the server had gone: this client does not want it. What was sent to it is still read.
  void Disconnect(ServerId server) {
    const std::shared_ptr<LinkT> link = LinkTo(server);
    if (link == nullptr) return;
    BeforeDisconnect(link.get());
    // A server that cannot send an answer ends the connection, with what it has not read yet.
    MarkGone(link.get(), absl::CancelledError("this client does not want it"), SHUT_WR);
  }

  // Mailboxes that are woken when a link goes.
  Attached Attach(std::shared_ptr<MailboxT> mailbox) {
    std::lock_guard lock(mutex_);
    mailboxes_.insert(std::move(mailbox));
    return {LatestLinks(), links_added_};
  }
  void Detach(const std::shared_ptr<MailboxT>& mailbox) {
    std::lock_guard lock(mutex_);
    mailboxes_.erase(mailbox);
  }

  // Sends a request whose reply goes to `mailbox`. The sequence, or 0: too much waits to be sent,
  // try again later. Unavailable: the server is gone.
  absl::StatusOr<uint32_t> Send(LinkT* link, FrameType type, std::string_view body,
                                std::shared_ptr<Mailbox> mailbox) {
    uint32_t sequence;
    {
      std::lock_guard lock(mutex_);
      // Under the mutex: MarkGone() answers the waiters that it finds, later ones see the flag.
      if (link->gone.load(std::memory_order_acquire)) return link->GoneError();
      do {
        sequence = ++last_sequence_;
      } while (sequence == 0 || waiters_.contains(sequence));
      waiters_.emplace(sequence, Waiter{link, std::move(mailbox)});
    }
    const SendResult sent = Transmit(link, type, sequence, body);
    if (sent == SendResult::kSent) return sequence;
    Forget(sequence);
    if (sent == SendResult::kFull) return 0u;
    return link->GoneError();  // the watcher is about to see it, too
  }
  // The reply is not wanted any more.
  void Forget(uint32_t sequence) {
    std::lock_guard lock(mutex_);
    waiters_.erase(sequence);
  }

 protected:
  LinkClient() = default;
  // The backend has called StopWatching(): its part is gone when this runs.
  ~LinkClient() = default;

  // --- What a backend does.

  // Any thread, several at a time.
  virtual SendResult Transmit(LinkT* link, FrameType type, uint32_t sequence,
                              std::string_view body) = 0;
  // Something came, or can be sent: hands what came to Deliver(). An error: the link is gone. The
  // watcher's thread.
  virtual absl::Status Serve(LinkT* link) = 0;
  // Invariant 4: `body` is of a reply of the kind kOpened. Any thread.
  virtual absl::Status GiveBack(LinkT* link, std::string_view body) = 0;
  // What the watcher waits for at the socket; and what is readable when the server's process has
  // exited, where there is such a thing. The watcher's thread.
  virtual int16_t EventsOf(LinkT* link) {
    (void)link;
    return POLLIN;
  }
  virtual int ExitDescriptorOf(const LinkT& link) const {
    (void)link;
    return -1;
  }
  // While the link still works.
  virtual void BeforeDisconnect(LinkT* link) { (void)link; }

  // --- What it does that with.

  // Before anybody else knows of this.
  absl::Status StartWatching(const char* thread_name, std::vector<std::unique_ptr<LinkT>> links) {
    for (auto& link : links) links_[link->location.id] = std::move(link);
    return watcher_.Start(thread_name, this);
  }
  void StopWatching() { watcher_.Stop(); }
  void Nudge() { watcher_.Nudge(); }

  // Unavailable where there is a link to that server that works.
  absl::Status CheckNotConnected(const ServerLocation& location) const {
    const std::shared_ptr<LinkT> before = LinkTo(location.id);
    if (before == nullptr || before->gone.load(std::memory_order_acquire)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat("server ", location.id, " is connected at ", before->location.address));
  }
  // From now on this link is the latest of its server. The mailboxes of this moment: who attaches
  // later finds the link.
  Mailboxes AddLink(std::shared_ptr<LinkT> link) {
    Mailboxes mailboxes;
    {
      std::lock_guard lock(mutex_);
      link->number = ++links_added_;
      links_[link->location.id] = std::move(link);
      mailboxes.assign(mailboxes_.begin(), mailboxes_.end());
    }
    WatchOthers();
    return mailboxes;
  }

  // A reply that came over the link. An error: it is useless.
  absl::Status Deliver(LinkT* link, absl::StatusOr<Reply> reply) {
    if (!reply.ok()) return reply.status();
    std::shared_ptr<Mailbox> mailbox;
    {
      std::lock_guard lock(mutex_);
      const auto waiter = waiters_.find(reply->sequence);
      if (waiter != waiters_.end() && waiter->second.link == link) {
        mailbox = std::move(waiter->second.mailbox);
        waiters_.erase(waiter);
      }
    }
    const bool opened = reply->kind == ReplyKind::kOpened;
    const std::string body = opened ? reply->body : std::string();
    if (mailbox != nullptr && mailbox->Put(*std::move(reply))) return absl::OkStatus();
    return opened ? GiveBack(link, body) : absl::OkStatus();  // its caller has given up
  }

 private:
  struct Waiter {
    const LinkT* link;
    std::shared_ptr<Mailbox> mailbox;
  };

  Links LatestLinks() const {
    Links latest;
    for (const auto& [id, link] : links_) latest.push_back(link);
    return latest;
  }

  // The links are others now.
  void WatchOthers() {
    links_changed_.store(true, std::memory_order_release);
    Nudge();
  }

  void AppendWatched(std::vector<pollfd>* polled) final {
    if (links_changed_.exchange(false, std::memory_order_acq_rel)) {
      watched_ = links();
      std::erase_if(watched_,
                    [](const auto& l) { return l->gone.load(std::memory_order_acquire); });
    }
    for (const auto& link : watched_) {
      polled->push_back({link->socket.get(), EventsOf(link.get()), 0});
      polled->push_back({ExitDescriptorOf(*link), POLLIN, 0});
    }
  }

  void OnPolled(const std::vector<pollfd>& polled, size_t first) final {
    for (size_t i = 0; i < watched_.size(); ++i) {
      LinkT* const link = watched_[i].get();
      if (link->gone.load(std::memory_order_acquire)) continue;
      absl::Status status;
      if (polled[first + 2 * i].revents != 0) status = Serve(link);
      if (status.ok() && polled[first + 2 * i + 1].revents != 0) {
        status = absl::CancelledError("its process has exited");
      }
      if (!status.ok()) MarkGone(link, status);
    }
  }

  void MarkGone(LinkT* link, const absl::Status& why, int ended = SHUT_RDWR) {
    std::vector<std::pair<uint32_t, std::shared_ptr<Mailbox>>> waiting;
    Mailboxes mailboxes;
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
    shutdown(link->socket.get(), ended);
    WatchOthers();
    for (const auto& [sequence, mailbox] : waiting) {
      mailbox->Put({sequence, ReplyKind::kError, link->GoneError(), {}});
    }
    for (const auto& mailbox : mailboxes) mailbox->sleeper().Wake();
    // An application's log sink may take its time, and other servers' replies come here, too.
    log_.Warn(__FILE__, __LINE__,
              absl::StrCat("memory server ", link->location.id, " at ", link->location.address,
                           " is gone: ", why.message()));
  }

  std::atomic<uint32_t> gone_count_{0};
  std::atomic<bool> links_changed_{true};
  Links watched_;  // the watcher's

  mutable std::mutex mutex_;
  absl::btree_map<ServerId, std::shared_ptr<LinkT>> links_;  // the latest of each server
  uint32_t links_added_ = 0;
  uint32_t last_sequence_ = 0;
  absl::flat_hash_map<uint32_t, Waiter> waiters_;
  absl::flat_hash_set<std::shared_ptr<MailboxT>> mailboxes_;

  LogAside log_;
  LinkWatcher watcher_;  // last: its thread uses the rest
};

}  // namespace pando

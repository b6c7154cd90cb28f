// What a verbs fabric and its endpoints share: the device, the control connections to the memory
// servers, the requests under way, and the watcher thread, which receives replies and notices that
// servers are gone.
//
// Servers may be added while endpoints work (AddServer()): each has a number, in the order of its
// coming, and an endpoint uses those that it has taken up.
//
// Thread safety: thread-safe. The last owner to go joins the watcher; that is never the watcher
// itself. Invariants:
//   1. The watcher touches no caller's object: replies go to a mailbox, which its owner shares.
//   2. Once a server is gone it stays gone; every request to it that was under way gets an
//   Unavailable reply. Another life of it is another link: the addresses and keys of one are never
//   used with a queue pair of another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/fabric/fabric.h"
#include "common/fabric/verbs/sleeper.h"
#include "common/fabric/verbs/thread_domain.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {

// Where replies for one endpoint arrive.
class VerbsMailbox {
 public:
  struct Reply {
    uint32_t sequence = 0;
    VerbsFrameType type = VerbsFrameType::kError;
    absl::Status status;  // kError: what went wrong
    std::string body;
  };

  absl::Status Init() { return sleeper_.Init(); }
  // Wakes. False: the mailbox is closed.
  bool Put(Reply reply);
  std::vector<Reply> TakeAll();
  // Nothing arrives from now on; what has.
  std::vector<Reply> Close();
  bool empty() const { return !filled_.load(std::memory_order_acquire); }
  Sleeper& sleeper() { return sleeper_; }

 private:
  std::mutex mutex_;
  std::vector<Reply> replies_;
  bool closed_ = false;
  std::atomic<bool> filled_{false};
  Sleeper sleeper_;
};

// One life of a server as a client sees it. Location, memory, socket and number are fixed once
// connected.
struct VerbsLink {
  ServerLocation location;
  VerbsMemory memory;
  UniqueFd socket;
  uint32_t number = 0;      // 0: there from the start; else the how-manieth that was added
  VerbsFrameReader reader;  // the watcher's, after the handshake
  std::atomic<bool> gone{false};

  std::mutex mutex;
  std::string out;  // waits for the socket; guarded by mutex

  absl::Status GoneError() const;  // Unavailable, names the server
};

class VerbsClient {
 public:
  using Links = std::vector<std::shared_ptr<VerbsLink>>;
  // What an endpoint begins with.
  struct Servers {
    Links links;
    uint32_t added = 0;
  };

  static absl::StatusOr<std::shared_ptr<VerbsClient>> Connect(
      const std::vector<ServerLocation>& servers, const VerbsFabricOptions& options);
  ~VerbsClient();
  VerbsClient(const VerbsClient&) = delete;
  VerbsClient& operator=(const VerbsClient&) = delete;

  const VerbsDevice& device() const { return *device_; }
  // The latest of each server, by ascending server id.
  Links links() const;
  std::shared_ptr<VerbsLink> LinkTo(ServerId server) const;  // nullptr: none
  const VerbsFabricOptions& options() const { return options_; }
  ThreadDomainCalls* thread_domain_calls() const {
    return options_.thread_domain_calls != nullptr ? options_.thread_domain_calls
                                                   : RealThreadDomainCalls();
  }
  // How often a server has gone; changes after its link says so.
  uint32_t gone_count() const { return gone_count_.load(std::memory_order_acquire); }
  // Sessions take the device's completion vectors, each an interrupt of its own, in turn.
  int NextCompletionVector() {
    const int vectors = device_->context()->num_comp_vectors;
    return static_cast<int>(next_vector_.fetch_add(1, std::memory_order_relaxed) %
                            static_cast<uint32_t>(std::max(vectors, 1)));
  }

  // Statuses as Fabric::AddServer(); `capabilities` are what the fabric has promised.
  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add,
                                     const Capabilities& capabilities);
  void Disconnect(ServerId server);
  // Of the links with numbers above `after`, up to `last`, those that nobody has followed yet.
  Links AddedLinks(uint32_t after, uint32_t last) const;

  // Mailboxes that are woken when a server goes. The links of this moment.
  Servers Attach(std::shared_ptr<VerbsMailbox> mailbox);
  void Detach(const std::shared_ptr<VerbsMailbox>& mailbox);

  // Sends a request whose reply goes to `mailbox`. The sequence, or 0: too much waits to be sent,
  // try again later. Unavailable: the server is gone.
  absl::StatusOr<uint32_t> Send(VerbsLink* link, VerbsFrameType type, std::string_view body,
                                std::shared_ptr<VerbsMailbox> mailbox);
  // The reply is not wanted any more.
  void Forget(uint32_t sequence);
  // Tells the server that a queue pair of this client's exists no more.
  void CloseHandle(VerbsLink* link, uint32_t handle);
  // For tests (BreakVerbsConnection()).
  void BreakConnection(ServerId server);

 private:
  struct Waiter {
    const VerbsLink* link;
    std::shared_ptr<VerbsMailbox> mailbox;
  };

  explicit VerbsClient(const VerbsFabricOptions& options) : options_(options) {}
  absl::Status Start();
  bool Enqueue(VerbsLink* link, std::string frame, bool always);
  void Nudge();
  void Watch();
  // Tells the watcher that the links are others now.
  void NudgeForLinks();
  // An error: nothing more to expect from that server.
  absl::Status Serve(VerbsLink* link);
  absl::Status Deliver(VerbsLink* link, VerbsFrame frame);
  void MarkGone(VerbsLink* link, const absl::Status& why);

  const VerbsFabricOptions options_;
  std::shared_ptr<VerbsDevice> device_;
  std::atomic<uint32_t> gone_count_{0}, next_vector_{0};
  UniqueFd nudge_;
  std::atomic<bool> stop_{false}, links_changed_{true};
  std::thread watcher_;

  mutable std::mutex mutex_;
  absl::btree_map<ServerId, std::shared_ptr<VerbsLink>> links_;  // the latest of each server
  uint32_t links_added_ = 0;
  uint32_t last_sequence_ = 0;
  absl::flat_hash_map<uint32_t, Waiter> waiters_;
  absl::flat_hash_set<std::shared_ptr<VerbsMailbox>> mailboxes_;
};

}  // namespace pando

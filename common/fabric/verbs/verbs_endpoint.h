// An endpoint of the verbs fabric: a queue pair for each memory server that it has posted to, one
// completion queue, and calls through the client's control connections. Belongs to one thread
// (fabric.h); Wake() is for others.
//
// Invariants:
//   1. A queue pair is asked for when the first chain to its server is posted; the chain, and those
//      behind it, wait for it in the endpoint, and the thread does not: the server is asked by
//      message, and the kernel's look for its address is another thread's.
//   2. Chains that are posted while other coroutines are ready are told to the NIC together: when
//      one is posted with nobody else ready, or the endpoint is polled, or waits.
//   3. What Poll() costs depends on the chains in flight, not on the number of servers.
//   4. Each life of a server has a target of its own: what was posted to one, or is still being
//      connected, ends there. A target is used for another one only when nothing of it is left.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ticks.h"
#include "common/fabric/fabric.h"
#include "common/fabric/link/call_list.h"
#include "common/fabric/server_index.h"
#include "common/fabric/verbs/chain_queue.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/thread_domain.h"
#include "common/fabric/verbs/verbs_client.h"

namespace pando {

class VerbsEndpoint final : public Endpoint, private CallList::Connections {
 public:
  // Connects no queue pair yet.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Open(std::shared_ptr<VerbsClient> client,
                                                        uint32_t packet_bytes,
                                                        uint16_t compute_server,
                                                        uint32_t incarnation);
  ~VerbsEndpoint() override;

  size_t Poll() override;
  size_t in_flight() const override { return calls_.size() + chains_; }
  absl::StatusOr<LocalBuffer> AllocateBuffer(size_t bytes) override;
  void Wait(int64_t until_ns) override;
  void AdoptServers(uint32_t added) override;
  void Wake() override { mailbox_->sleeper().Wake(); }
  void WakeAt(int64_t) override {}
  void set_runner(std::function<void()>) override {}
  const Clock& clock() const override;
  uint64_t random_seed() override;

  const VerbsCounters& counters() const { return counters_; }
  // For tests: as if a work request to this server had failed.
  void BreakQueuePair(ServerId server);

 protected:
  void DoPost(Chain* chain) override;
  void DoCall(PendingCall* call) override;

 private:
  enum class State {
    kUnused,   // no queue pair, and nobody wants one
    kClosed,   // to be opened, at retry_ns
    kOpening,  // the server was asked for a queue pair, or it is being connected
    kConnected,
    kRefused,  // for good: `refusal` says why
    kGone,
  };
  // What one queue pair needs of the endpoint.
  struct Room {
    ibv_cq* completions = nullptr;
    LocalBuffer results;
  };
  // One life of one server.
  struct Target {
    uint16_t index = 0;  // in targets_
    std::shared_ptr<VerbsLink> link;
    State state = State::kUnused;
    bool replaced = false;   // another life of the server has a target
    bool busy = false;       // in busy_
    bool unsettled = false;  // in unsettled_
    std::unique_ptr<ChainQueue> queue;
    Room room;               // from the first queue pair on
    QueuePair fresh;         // kOpening: waits for the server's
    std::thread connecting;  // kOpening: connects `fresh`, then writes to the mailbox
    uint32_t sequence = 0;   // kOpening: of the request
    uint32_t handle = 0;     // the server's name for its queue pair; 0: none yet
    bool was_used = false;   // there was a connected queue pair
    int64_t retry_ns = 0, retry_delay_ns = 0;
    absl::Status refusal;

    // Chains wait, as nothing was posted before that they could be confused with (rule L5).
    bool connects_first() const {
      return !was_used &&
             (state == State::kUnused || state == State::kClosed || state == State::kOpening);
    }
  };

  VerbsEndpoint(std::shared_ptr<VerbsClient> client, uint32_t packet_bytes, uint16_t compute_server,
                uint32_t incarnation);
  absl::Status Init();
  absl::Status InitChannel();
  // A completion queue, and results, for so many queue pairs more.
  absl::Status AddRooms(uint32_t count);
  absl::Status TakeRoom(Target* target);
  // nullptr: not connected to it.
  Target* TargetOf(ServerId server) {
    const int index = index_.Of(server);
    return index == ServerIndex::kNone ? nullptr : &targets_[static_cast<size_t>(index)];
  }
  // The server's chains go there from now on.
  void AddTarget(std::shared_ptr<VerbsLink> link);
  // One of which nothing is left, or a new one.
  Target* UnusedTarget();

  // verbs_endpoint_connect.cpp: the life of the queue pairs.
  void SetState(Target* target, State state);
  void OpenQueuePair(Target* target);
  void OnOpenReply(Target* target, Reply* reply);
  // Starts the thread that does.
  absl::Status ConnectFresh(Target* target, const Reply& reply);
  void OnConnected(Target* target, const absl::Status& connected);
  void RetryLater(Target* target, const absl::Status& why);
  void CheckTargets();
  void CheckGone();
  void CheckUnsettled();
  // Chains that have waited long enough for the first queue pair.
  void FailLate(Target* target, int64_t now_ns);
  // Destroys the queue pair; its chains are done. `failing`: the verb of the oldest one that it
  // broke at, if that is known.
  void Break(Target* target, State next, std::optional<size_t> failing, std::string reason);

  absl::Status WhyNot(const Target& target, const Chain& chain) const;
  int64_t NowNs() const { return clock_.NowNs(); }
  void Complete(Chain* chain, absl::Status status, int64_t now_ns);
  void Fetch();
  void Handle(const ibv_wc& completion, int64_t now_ns);
  // Rings the doorbell for what waits; `now_ns`: no later than that.
  void Pump(Target* target, int64_t now_ns);
  void PumpAll();
  void MarkBusy(Target* target);
  // Calls visit(target) for each that has chains.
  template <typename Visit>
  void ForEachBusy(Visit visit);
  absl::StatusOr<uint32_t> SendRequest(ServerId server, std::string_view request) override;
  void ForgetRequest(uint32_t sequence) override { client_->Forget(sequence); }
  void TakeReplies();
  int64_t NextDueNs(int64_t until_ns);
  void Sleep(int64_t until_ns);
  // Breaks queue pairs whose completions are overdue.
  void CheckStalls();
  // Queue pairs that were asked for and are not needed any more.
  void CloseUnwanted(const std::vector<Reply>& replies);

  const std::shared_ptr<VerbsClient> client_;
  const std::shared_ptr<Mailbox> mailbox_;
  const uint32_t packet_bytes_;
  const uint16_t compute_server_;
  const uint32_t incarnation_;
  const int64_t first_wait_ns_;  // for a server's first queue pair, where the chain does not say
  VerbsCounters counters_;
  const Clock& clock_ = CountedClock();
  uint32_t depth_ = 0;
  std::vector<RegisteredMemory> buffers_;  // outlive the queue pairs
  ThreadDomain domain_;
  CompletionChannelHandle channel_;
  // Rarely more than one: more servers have come than it had room for.
  std::vector<CompletionQueueHandle> completions_;
  std::vector<Room> rooms_;  // free ones
  std::unique_ptr<ChainQueue::List> list_;
  std::deque<Target> targets_;  // do not move
  ServerIndex index_;           // of the latest target of each server
  uint32_t adopted_ = 0;        // servers added to the fabric that are known here
  std::vector<Target*> busy_;   // that may have chains: visited by ForEachBusy()
  std::vector<Target*> unsettled_;
  uint32_t gone_seen_ = 0;     // VerbsClient::gone_count()
  bool unrung_ = false;        // chains wait for a doorbell
  std::vector<ibv_wc> ready_;  // fetched, not handled yet
  size_t chains_ = 0;          // posted and not done
  bool alone_doorbells_ = false;
  uint32_t polls_ = 0;
  CallList calls_{this, kVerbsBodyBytesMax};
};

}  // namespace pando

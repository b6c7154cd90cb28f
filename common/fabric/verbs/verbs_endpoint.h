// An endpoint of the verbs fabric: a queue pair a memory server, one completion queue, and calls
// through the client's control connections. Belongs to one thread (fabric.h); Wake() is for others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/call_list.h"
#include "common/fabric/fabric.h"
#include "common/fabric/verbs/chain_queue.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/verbs_client.h"

namespace pando {

class VerbsEndpoint final : public Endpoint, private CallList::Connections {
 public:
  // Connects a queue pair to every server that is there.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Open(std::shared_ptr<VerbsClient> client,
                                                        uint32_t packet_bytes,
                                                        uint16_t compute_server,
                                                        uint32_t incarnation);
  ~VerbsEndpoint() override;

  size_t Poll() override;
  size_t in_flight() const override { return calls_.size() + chains_; }
  absl::StatusOr<LocalBuffer> AllocateBuffer(size_t bytes) override;
  void Wait(int64_t until_ns) override;
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
    kClosed,   // to be opened, at retry_ns
    kOpening,  // the server was asked for a queue pair
    kConnected,
    kRefused,  // for good: `refusal` says why
    kGone,
  };
  struct Target {
    VerbsLink* link = nullptr;
    State state = State::kClosed;
    std::unique_ptr<ChainQueue> queue;
    QueuePair fresh;        // kOpening: waits for the server's
    uint32_t sequence = 0;  // kOpening: of the request
    uint32_t handle = 0;    // the server's name for its queue pair; 0: none yet
    int64_t retry_ns = 0, retry_delay_ns = 0;
    absl::Status refusal;
  };

  VerbsEndpoint(std::shared_ptr<VerbsClient> client, uint32_t packet_bytes, uint16_t compute_server,
                uint32_t incarnation);
  absl::Status Init();
  absl::Status AwaitQueuePairs();

  // verbs_endpoint_connect.cpp: the life of the queue pairs.
  void OpenQueuePair(Target* target);
  void OnOpenReply(Target* target, VerbsMailbox::Reply* reply);
  absl::Status ConnectFresh(Target* target, const VerbsMailbox::Reply& reply);
  void RetryLater(Target* target, const absl::Status& why);
  void CheckTargets();
  // Destroys the queue pair; its chains are done.
  void Break(Target* target, State next, size_t verb, const std::string& reason);

  absl::Status WhyNot(const Target& target, const Chain& chain) const;
  void Complete(Chain* chain, absl::Status status);
  void Fetch();
  void Handle(const ibv_wc& completion);
  void Pump(Target* target);
  absl::StatusOr<uint32_t> SendRequest(ServerId server, std::string_view request) override;
  void ForgetRequest(uint32_t sequence) override { client_->Forget(sequence); }
  void TakeReplies();
  int64_t NextDueNs(int64_t until_ns) const;
  void Sleep(int64_t until_ns);
  // Breaks queue pairs whose completions are overdue.
  void CheckStalls();
  // Queue pairs that were asked for and are not needed any more.
  void CloseUnwanted(const std::vector<VerbsMailbox::Reply>& replies);

  const std::shared_ptr<VerbsClient> client_;
  const std::shared_ptr<VerbsMailbox> mailbox_;
  const uint32_t packet_bytes_;
  const uint16_t compute_server_;
  const uint32_t incarnation_;
  VerbsCounters counters_;
  uint32_t depth_ = 0;
  std::vector<RegisteredMemory> buffers_;  // outlive the queue pairs
  CompletionChannelHandle channel_;
  CompletionQueueHandle completions_;
  std::vector<Target> targets_;  // by link
  std::vector<ibv_wc> ready_;    // fetched, not handled yet
  size_t chains_ = 0;            // posted and not done
  uint32_t polls_ = 0;
  CallList calls_{this, kVerbsBodyBytesMax};
};

}  // namespace pando

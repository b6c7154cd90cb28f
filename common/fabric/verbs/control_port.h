// The TCP side of a verbs server: control connections (link_server.h, with its invariants), and the
// queue pairs of each. It knows no device: what it needs of one is QueuePairHost, and tests have
// one that is none.
//
// Thread safety: Serve() runs on one thread and calls the handler there. Stop() may be called from
// any thread and from a signal handler; the getters are thread-safe; CutOff() belongs to the thread
// of Serve(), while the handler's OnTimer() or OnPeerGone() runs: it may end other connections.
//
// Invariants:
//   1. As VerbsServer's 1 to 5 (verbs_server.h), of which this is the part that deals with peers.
//   2. Queue pairs are connected on other threads, and a peer is reported gone after its last
//      attempt, too, is over and destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/auth/cluster_secret.h"
#include "common/base/rate_limited_log.h"
#include "common/base/unique_fd.h"
#include "common/fabric/link/link_server.h"
#include "common/fabric/server.h"
#include "common/fabric/verbs/queue_pair_opener.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_connection.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {

// What the port needs of the device.
class QueuePairHost {
 public:
  virtual ~QueuePairHost() = default;
  // Made and connected. Blocks, for a second or so; any thread, several at a time.
  // ResourceExhausted, Unavailable.
  virtual ServedPairOr OpenQueuePair(const QueuePairAddress& remote) = 0;
  // After queue pairs were destroyed: returns when nothing of them is in flight any more. The
  // thread of Serve().
  virtual absl::Status AwaitQuiet() = 0;
};

class ControlPort final : private VerbsHost, private LinkServer {
 public:
  struct Options {
    ServerId server_id = 1;
    uint32_t endpoints_max = 4096;
    uint32_t connections_max = 1024;  // VerbsServerOptions says what each means
    int64_t hello_timeout_ms = 2'000;
    int64_t identity_timeout_ms = 30'000;
    int silence_ms = 10'000;
    std::shared_ptr<const ClusterSecret> secret;
    Strangers::Limits strangers = {};
  };
  // Statuses as ListenTcp(). `device` outlives this.
  static absl::StatusOr<std::unique_ptr<ControlPort>> Listen(const Options& options,
                                                             const HostPort& address,
                                                             QueuePairHost* device);
  ~ControlPort() override { Close(); }

  // With the port that the kernel chose.
  const HostPort& bound() const { return bound_; }
  size_t queue_pairs() const { return queue_pairs_.load(std::memory_order_acquire); }

  // What clients are told. Before Serve().
  void Describe(const VerbsHelloReply& hello, const VerbsMemory& memory) {
    hello_ = hello;
    described_ = memory;
  }
  // Once. Then every queue pair is destroyed and every connection closed; peers still connected are
  // not reported gone.
  absl::Status Serve(ControlHandler* handler);
  using LinkServer::Stop;
  // As PeerFence::CutOff().
  bool CutOff(PeerId peer);

 private:
  ControlPort(const Options& options, QueuePairHost* device);
  const VerbsHelloReply& hello() const override { return hello_; }
  const VerbsMemory& described_memory() const override { return described_; }
  const ClusterSecret* secret() const override { return options_.secret.get(); }
  ControlHandler* handler() override { return LinkServer::handler(); }
  absl::Status BeginOpen(const VerbsConnection& connection,
                         const QueuePairAddress& remote) override;
  void OnQueuePairsClosed(size_t count) override {
    queue_pairs_.fetch_sub(count, std::memory_order_acq_rel);
  }
  absl::Status AwaitQuiet() override;
  RateLimitedLog& open_log() override { return open_log_; }

  void Welcome(UniqueFd socket) override;
  void OnClosed(ServedLink* connection) override;
  // Queue pairs that were connected, or were not.
  void OnOwnEvent() override;
  void AfterTurn() override { ReportGone(); }
  int64_t NextTurnNs() const override;

  // Reports whom nothing is in flight of any more.
  void ReportGone();
  // nullptr: there is none any more.
  VerbsConnection* ConnectionOf(PeerId peer) const {
    return static_cast<VerbsConnection*>(Find(peer));
  }
  void Close();

  const Options options_;
  QueuePairHost* const device_;
  HostPort bound_;
  UniqueFd opened_;
  VerbsHelloReply hello_;
  VerbsMemory described_;
  std::atomic<size_t> queue_pairs_{0};  // with those that are being connected
  int64_t quiet_again_ns_ = 0;
  std::vector<PeerId> leaving_;          // cut off or closed, and not reported gone yet
  absl::flat_hash_set<PeerId> opening_;  // whose queue pair is being connected
  RateLimitedLog open_log_, quiet_log_;
  std::optional<QueuePairOpener> opener_;
};

}  // namespace pando

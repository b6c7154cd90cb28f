// One client's connection as the memory server sees it (served_link.h, with its invariants): hello,
// proof, then requests; and the queue pairs it owns. Not thread-safe.
//
// One more invariant:
//   One queue pair at a time is connected, by others; calls are answered meanwhile, and a second
//   request of this kind waits, with all that is behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/auth/mutual_proof.h"
#include "common/base/rate_limited_log.h"
#include "common/base/unique_fd.h"
#include "common/fabric/link/served_link.h"
#include "common/fabric/server.h"
#include "common/fabric/verbs/queue_pair_opener.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {

class VerbsConnection;

// What connections need of their server.
class VerbsHost {
 public:
  virtual ~VerbsHost() = default;
  virtual const VerbsHelloReply& hello() const = 0;
  virtual const VerbsMemory& described_memory() const = 0;
  // nullptr: the cluster has none.
  virtual const ClusterSecret* secret() const = 0;
  virtual ControlHandler* handler() = 0;
  // Makes a queue pair of this server's and connects it to the client's, without waiting for it:
  // OnOpened() of the connection follows. An error (ResourceExhausted, Unavailable): it does not.
  virtual absl::Status BeginOpen(const VerbsConnection& connection,
                                 const QueuePairAddress& remote) = 0;
  virtual void OnQueuePairsClosed(size_t count) = 0;
  // After queue pairs were destroyed: returns when nothing of them is in flight any more.
  virtual absl::Status AwaitQuiet() = 0;
  // For those who get no queue pair: each of their sessions asks again and again.
  virtual RateLimitedLog& open_log() = 0;
};

class VerbsConnection final : public ServedLink {
 public:
  // `origin`: OriginOfTcp().
  VerbsConnection(PeerId peer, UniqueFd socket, std::string name, std::string origin,
                  VerbsHost* host)
      : ServedLink(peer, std::move(socket), std::move(name), std::move(origin)), host_(host) {}
  ~VerbsConnection() override { DestroyQueuePairs(); }

  // OnOpened() is something new, too.
  absl::Status OnReady() override;
  absl::Status Refuse(const absl::Status& status) override;
  bool wants_write() const override { return !out_.empty(); }
  // Nothing is read until OnOpened().
  bool is_held() const override { return held_.has_value(); }
  bool has_more() const override { return has_more_; }

  // What came of VerbsHost::BeginOpen(). OnReady() has to follow.
  void OnOpened(ServedPairOr opened);
  // No further queue pair from now on; those that there are are destroyed.
  void CutOff();
  void DestroyQueuePairs();
  bool cut_off() const { return cut_off_; }

 private:
  absl::Status Flush();
  absl::Status HandleFrame(const VerbsFrame& frame);
  absl::Status Hello(const VerbsFrame& frame);
  absl::Status CheckProof(const VerbsFrame& frame);
  absl::Status Welcome();
  absl::Status Open(const VerbsFrame& frame);
  absl::Status BeginOpen(const VerbsOpen& request);
  void ReplyToOpen(const absl::StatusOr<VerbsOpenReply>& reply);
  absl::Status Close(const VerbsFrame& frame);
  absl::Status Call(const VerbsFrame& frame);
  void Reply(VerbsFrameType type, uint32_t sequence, std::string_view body) {
    out_ += EncodeVerbsFrame(type, sequence, body);
  }

  VerbsHost* const host_;
  std::optional<ServerProof> proof_;  // after the hello, where there is a secret
  bool cut_off_ = false;
  bool has_more_ = false;
  std::optional<uint32_t> opening_;  // sequence of the request for the queue pair being connected
  uint16_t opening_for_ = 0;         // compute server, for the log
  std::optional<VerbsFrame> held_;   // the next such request
  VerbsFrameReader reader_;
  std::string out_;
  uint32_t last_handle_ = 0;
  absl::flat_hash_map<uint32_t, std::unique_ptr<ServedPair>> pairs_;
};

}  // namespace pando

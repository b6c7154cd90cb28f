// One client's connection as the memory server sees it: hello, proof, then requests, answered one
// at a time; and the queue pairs it owns. Not thread-safe.
//
// Invariants:
//   1. At most the replies to one frame wait to be sent; until they are gone nothing further is
//   handled.
//   2. A connection that sends what is no frame, or frames out of order, is closed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/auth/mutual_proof.h"
#include "common/base/unique_fd.h"
#include "common/fabric/server.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/verbs_frame.h"

namespace pando {

// What connections need of their server.
class VerbsHost {
 public:
  virtual ~VerbsHost() = default;
  virtual const VerbsHelloReply& hello() const = 0;
  virtual const VerbsMemory& described_memory() const = 0;
  // nullptr: the cluster has none.
  virtual const ClusterSecret* secret() const = 0;
  virtual ControlHandler* handler() = 0;
  // A queue pair of this server's, connected to the client's. ResourceExhausted, Unavailable.
  virtual absl::StatusOr<QueuePair> OpenQueuePair(const QueuePairAddress& remote) = 0;
  virtual void OnQueuePairsClosed(size_t count) = 0;
  // After queue pairs were destroyed: returns when nothing of them is in flight any more.
  virtual absl::Status AwaitQuiet() = 0;
};

class VerbsConnection {
 public:
  VerbsConnection(PeerId peer, UniqueFd socket, std::string name, int64_t hello_by_ns,
                  VerbsHost* host)
      : peer_(peer),
        socket_(std::move(socket)),
        name_(std::move(name)),
        hello_by_ns_(hello_by_ns),
        host_(host) {}
  ~VerbsConnection() { DestroyQueuePairs(); }
  VerbsConnection(const VerbsConnection&) = delete;
  VerbsConnection& operator=(const VerbsConnection&) = delete;

  // The socket can be read or written, or has_more(). Connects one queue pair at most, as that may
  // take a second. An error: close it (Cancelled: the client did).
  absl::Status OnReady();
  // Received bytes have not been looked at yet: others first, then OnReady() again.
  bool has_more() const { return has_more_; }
  // No further queue pair from now on; those that there are are destroyed.
  void CutOff();
  void DestroyQueuePairs();

  PeerId peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  const std::string& name() const { return name_; }
  int64_t hello_by_ns() const { return hello_by_ns_; }
  bool introduced() const { return introduced_; }
  bool cut_off() const { return cut_off_; }
  bool wants_write() const { return !out_.empty(); }

  bool watches_write = false;  // the server's note

 private:
  absl::Status Flush();
  absl::Status HandleFrame(const VerbsFrame& frame);
  absl::Status Hello(const VerbsFrame& frame);
  absl::Status CheckProof(const VerbsFrame& frame);
  absl::Status Welcome();
  absl::Status Open(const VerbsFrame& frame);
  absl::StatusOr<VerbsOpenReply> OpenFor(const VerbsOpen& request);
  absl::Status Close(const VerbsFrame& frame);
  absl::Status Call(const VerbsFrame& frame);
  void Reply(VerbsFrameType type, uint32_t sequence, std::string_view body) {
    out_ += EncodeVerbsFrame(type, sequence, body);
  }
  // Best effort: tells the client why, then the caller closes.
  absl::Status Refuse(const absl::Status& status);

  const PeerId peer_;
  const UniqueFd socket_;
  const std::string name_;
  const int64_t hello_by_ns_;
  VerbsHost* const host_;
  std::optional<ServerProof> proof_;  // after the hello, where there is a secret
  bool introduced_ = false, cut_off_ = false, has_more_ = false;
  VerbsFrameReader reader_;
  std::string out_;
  uint32_t last_handle_ = 0;
  int64_t complain_again_ns_ = 0;
  absl::flat_hash_map<uint32_t, QueuePair> pairs_;
};

}  // namespace pando

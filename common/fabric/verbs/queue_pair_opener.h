// Connects queue pairs on threads of its own: on RoCE the kernel looks for a peer's hardware
// address for up to a second, and who names addresses that nobody answers for must hold up nobody.
//
// Start(), Withdraw() and TakeDone() belong to one thread, that of the server's loop. Invariants:
//   1. At most kThreadsMax threads; one connection has one attempt at a time (its owner's part).
//   2. Some threads are for addresses that were reached before and for nobody else; of those that
//      were not, attempts of all origins take turns.
//   3. An address takes kThreadsOfAddress threads at most, and one that was not reached is tried
//      again only after a growing pause (unreachable_peers.h).
//   4. What waits for a thread has an owner that still wants it: a caller that asks and goes leaves
//      behind what is under way, and nothing else.
//   5. Destruction waits for the attempts that are under way: seconds at most.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/fabric/verbs/queue_pair.h"
#include "common/fabric/verbs/unreachable_peers.h"

namespace pando {

// A queue pair at the server, connected to a client's. Destroyed on the thread of the server's
// loop.
class ServedPair {
 public:
  virtual ~ServedPair() = default;
  virtual QueuePairAddress address() const = 0;
};
using ServedPairOr = absl::StatusOr<std::unique_ptr<ServedPair>>;

class QueuePairOpener {
 public:
  static constexpr int kThreadsMax = 32;
  static constexpr int kThreadsForKnown = 4;  // and for nobody else
  static constexpr int kThreadsOfAddress = 8;
  static constexpr size_t kKnownMax = 4096;  // more are forgotten

  struct Request {
    PeerId peer = 0;
    std::string origin;  // whom the connection comes from
    QueuePairAddress remote;
  };
  struct Result {
    PeerId peer = 0;
    ServedPairOr pair;
  };
  // Blocks; any thread, several at a time.
  using Open = std::function<ServedPairOr(const Request& request)>;

  // `wake` is called, by any thread, when TakeDone() has something.
  QueuePairOpener(Open open, std::function<void()> wake)
      : open_(std::move(open)), wake_(std::move(wake)) {}
  ~QueuePairOpener();
  QueuePairOpener(const QueuePairOpener&) = delete;
  QueuePairOpener& operator=(const QueuePairOpener&) = delete;

  // A Result follows. None, and Unavailable: this address could not be reached a moment ago;
  // ResourceExhausted: there is no thread.
  absl::Status Start(Request request);
  // What has not begun for this peer does not begin any more: its Result, Cancelled, is there at
  // once.
  void Withdraw(PeerId peer);
  std::vector<Result> TakeDone();

 private:
  using Gid = UnreachablePeers::Gid;
  void Run();
  absl::Status StartThread();
  // Under the mutex. False: nothing may begin now.
  bool TakeNext(Request* request, bool* known);
  bool MayBegin(const Request& request) const;

  const Open open_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<Request> known_;                                    // addresses reached before
  absl::btree_map<std::string, std::deque<Request>> strangers_;  // by origin
  std::string last_origin_;
  int idle_ = 0, running_strangers_ = 0;
  size_t queued_ = 0;
  absl::flat_hash_map<Gid, int> running_;
  absl::flat_hash_set<Gid> reached_;
  UnreachablePeers unreachable_;
  std::vector<Result> done_;
  std::vector<std::thread> threads_;
};

}  // namespace pando

// The memory servers that a client works with, and which life of each. Servers come, go and come
// back: somebody who looks for them (compute/client/member_watch.h) publishes them here, and each
// session takes them up in its own thread, between two chains (SessionContext::AdoptServers()).
//
// Thread safety: any thread.
// Invariants:
//   1. A server is published when this client is introduced there, with all its open trees, and
//      when trees that have lost something by its new life say so (TreeFate). Nothing reaches a
//      server before.
//   2. A view never changes. Generations ascend, and a session's never goes back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/remote_address.h"

namespace pando {

// Whether a tree has lost what it had on a memory server. Thread-safe.
class TreeFate {
 public:
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // What its operations end in. Ok: nothing is lost. DataLoss; FailedPrecondition: it was dropped.
  absl::Status status() const;
  // For ever; the first reason stays.
  void Lose(absl::Status why);

 private:
  mutable std::mutex mutex_;
  absl::Status why_;
  std::atomic<bool> lost_{false};
};

class Membership {
 public:
  struct Member {
    ServerId id = 0;
    uint64_t life = 0;
    uint64_t since = 0;  // the generation that brought this life
  };
  struct View {
    uint64_t generation = 0;
    uint32_t added = 0;           // servers added to the fabric so far (Fabric::AddServer())
    std::vector<Member> members;  // by ascending id; also those that are gone
    const Member* Find(ServerId server) const;  // nullptr: not one of them
  };

  Membership();

  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::shared_ptr<const View> view() const;
  std::vector<ServerId> Ids() const;
  // A server more, or another life of one. `added`: as of the fabric.
  void Publish(ServerId server, uint64_t life, uint32_t added);

  // Somebody needs a server that is not here: asks for a look at once. Returns the look's number;
  // 0: nobody looks.
  uint64_t AskForLook();
  // Whether that look has ended: whom it has found is published.
  bool HasLooked(uint64_t look) const { return ended_.load(std::memory_order_acquire) >= look; }

  // --- For the member watch.
  void StartLooking();
  // Waits until a look is asked for, or `pause_ms`. False: StopLooking() was called.
  bool AwaitLook(int64_t pause_ms);
  void EndLook() { ended_.fetch_add(1, std::memory_order_acq_rel); }
  // Nobody looks any more.
  void StopLooking();

 private:
  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::shared_ptr<const View> view_;
  std::atomic<uint64_t> generation_{0};
  bool looking_ = false, wanted_ = false;
  uint64_t begun_ = 0;
  std::atomic<uint64_t> ended_{0};
};

}  // namespace pando

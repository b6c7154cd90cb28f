// The thread that waits for what comes over a client's links.
//
// Thread safety: Nudge() from any thread; the rest from the owner's. The owner outlives the watcher
// or calls Stop() before what its callbacks use is gone.
#pragma once

#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"

namespace pando {

class LinkWatcher {
 public:
  // Called on the watcher's thread, in turn.
  class Owner {
   public:
    // Appends what is waited for from now on; negative descriptors are skipped.
    virtual void AppendWatched(std::vector<pollfd>* polled) = 0;
    // What was appended, from `polled[first]` on, with what came.
    virtual void OnPolled(const std::vector<pollfd>& polled, size_t first) = 0;

   protected:
    ~Owner() = default;
  };

  ~LinkWatcher() { Stop(); }

  absl::Status Start(const char* name, Owner* owner);
  // Returns when the thread has ended. Not from that thread.
  void Stop();
  // Has AppendWatched() called again.
  void Nudge();

 private:
  void Run(Owner* owner);

  UniqueFd nudge_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pando

// What clusters of peers have in common whose echo is a process of its own: time that passes by
// itself, and a process that may be killed and stopped. For tests.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/fabric/peer_conformance.h"
#include "common/fabric/shm/shm_test_helper.h"

namespace pando {

// Sleeps until done() holds. False: it does not within 20 s.
bool AwaitPeers(const std::function<bool()>& done);

class ProcessPeerCluster : public PeerCluster {
 public:
  bool threads_allowed() const override { return true; }
  bool RunUntil(const std::function<bool()>& done) override { return AwaitPeers(done); }
  void RunFor(int64_t ns) override;
  void KillEcho() override { echo_->Kill(SIGKILL); }
  void PauseEcho(bool paused) override;

 protected:
  // The helper's process; arguments as HelperProcess takes them.
  template <typename... Arguments>
  void Echo(Arguments&&... arguments) {
    echo_ = std::make_unique<HelperProcess>(std::forward<Arguments>(arguments)...);
    EXPECT_TRUE(echo_->ready());
  }

 private:
  std::unique_ptr<HelperProcess> echo_;
};

}  // namespace pando

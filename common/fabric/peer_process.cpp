#include "common/fabric/peer_process.h"

#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "common/base/clock.h"

namespace pando {

bool AwaitPeers(const std::function<bool()>& done) {
  const int64_t until_ns = RealClock().NowNs() + 20 * kSecondNs;
  while (!done()) {
    if (RealClock().NowNs() > until_ns) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void ProcessPeerCluster::RunFor(int64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

void ProcessPeerCluster::PauseEcho(bool paused) {
  echo_->Signal(paused ? SIGSTOP : SIGCONT);
  int status = 0;  // not before the last of its threads has stopped
  if (!paused) return;
  EXPECT_EQ(waitpid(echo_->pid(), &status, WUNTRACED), echo_->pid());
}

}  // namespace pando

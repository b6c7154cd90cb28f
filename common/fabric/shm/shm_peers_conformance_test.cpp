// Links between compute servers, of this process and of another one, through real sockets.
#include <memory>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/fabric/peer_conformance.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/shm_test_helper.h"

namespace pando {
namespace {

class ShmPeerCluster final : public PeerCluster {
 public:
  Fabric& fabric(int index) override { return memory_.fabric(index); }
  bool threads_allowed() const override { return true; }
  bool RunUntil(const std::function<bool()>& done) override {
    const int64_t until_ns = RealClock().NowNs() + 20 * kSecondNs;
    while (!done()) {
      if (RealClock().NowNs() > until_ns) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  void RunFor(int64_t ns) override { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }
  std::string FreeAddress() override { return directory_.path() + "/nobody"; }

  std::string StartEcho() override {
    const std::string address = directory_.path() + "/echo";
    echo_ = std::make_unique<HelperProcess>(std::vector<std::string>{"peers", address});
    EXPECT_TRUE(echo_->ready());
    return address;
  }
  void KillEcho() override { echo_->Kill(SIGKILL); }
  void PauseEcho(bool paused) override {
    echo_->Signal(paused ? SIGSTOP : SIGCONT);
    int status = 0;  // not before the last of its threads has stopped
    if (!paused) return;
    EXPECT_EQ(waitpid(echo_->pid(), &status, WUNTRACED), echo_->pid());
  }

 private:
  TemporaryDirectory directory_;
  EchoHandler handler_;
  ShmTestCluster memory_{{.servers = 1, .fabrics = kFabrics}, {&handler_}};
  std::unique_ptr<HelperProcess> echo_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Shm, PeerConformance,
                         testing::Values(PeerBackend{
                             "shm", [] { return std::make_unique<ShmPeerCluster>(); }}),
                         PeerBackendName);

}  // namespace pando

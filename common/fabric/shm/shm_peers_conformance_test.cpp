// Links between compute servers, of this process and of another one, through real sockets.
#include <memory>
#include <string>

#include "common/fabric/peer_process.h"
#include "common/fabric/shm/shm_test_cluster.h"

namespace pando {
namespace {

class ShmPeerCluster final : public ProcessPeerCluster {
 public:
  Fabric& fabric(int index) override { return memory_.fabric(index); }
  std::string FreeAddress() override { return directory_.path() + "/nobody"; }

  std::string StartEcho() override {
    const std::string address = directory_.path() + "/echo";
    Echo(std::vector<std::string>{"peers", address});
    return address;
  }

 private:
  TemporaryDirectory directory_;
  EchoHandler handler_;
  ShmTestCluster memory_{{.servers = 1, .fabrics = kFabrics}, {&handler_}};
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Shm, PeerConformance,
                         testing::Values(PeerBackend{
                             "shm", [] { return std::make_unique<ShmPeerCluster>(); }}),
                         PeerBackendName);

}  // namespace pando

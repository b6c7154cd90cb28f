// The other processes of the shm tests. Usage:
//   shm_test_helper peers SOCKET            a compute server that echoes what peers send it
//   shm_test_helper serve SOCKET [FILES]    a memory server, until SIGTERM; with so many
//   descriptors shm_test_helper trace SOCKET SCENARIO   posts one chain between two SIGSTOPs,
//   traced by its parent shm_test_helper hammer SOCKET THREADS   WRITEs without end, each thread in
//   memory of its own shm_test_helper hold SOCKET             connects with an endpoint, then
//   sleeps
// Prints one line once it is ready.
#include "common/fabric/shm/shm_test_helper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/peer_echo.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_peers.h"
#include "common/fabric/shm/shm_server.h"

namespace pando {
namespace {

class Silent : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view request) override { return std::string(request); }
  void OnPeerGone(PeerId) override {}
};

void Ready() {
  puts("ready");
  fflush(stdout);
}

ShmServer* server_to_stop = nullptr;

int Serve(const std::string& path, int files, ServerId id = 1) {
  if (files > 0) {
    const rlimit limit = {static_cast<rlim_t>(files), static_cast<rlim_t>(files)};
    PANDO_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ShmServerOptions options;
  options.socket_path = path;
  options.server_id = id;
  auto server = ShmServer::Create(options);
  PANDO_CHECK(server.ok()) << server.status();
  server_to_stop = server->get();
  signal(SIGTERM, [](int) { server_to_stop->Stop(); });
  Silent handler;
  Ready();
  return (*server)->Serve(&handler).ok() ? 0 : 1;
}

std::shared_ptr<Fabric> Connect(const std::string& path) {
  auto fabric = ConnectShm({{1, path}});
  PANDO_CHECK(fabric.ok()) << fabric.status();
  return *std::move(fabric);
}

int Trace(const std::string& path, int scenario) {
  auto fabric = Connect(path);
  auto endpoint = *fabric->Connect(1, 1);
  const LocalBuffer buffer = *endpoint->AllocateBuffer(KillScenario::kBytesMax);
  std::memset(buffer.data, KillScenario::kNewByte, buffer.bytes);
  Chain chain(1);
  for (const KillScenario::Target& target : KillScenario::Get(scenario)) {
    chain.Write(target.space, target.offset, buffer.Slice(0, target.bytes));
  }
  Ready();
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return KillScenario::kMayNotTrace;
  raise(SIGSTOP);
  endpoint->Post(&chain);
  raise(SIGSTOP);
  _exit(chain.ok() ? 0 : 1);
}

int Hammer(const std::string& path, int threads) {
  auto fabric = Connect(path);
  std::vector<std::thread> writers;
  for (int i = 0; i < threads; ++i) {
    writers.emplace_back([&fabric, i] {
      auto endpoint = *fabric->Connect(1, 1);
      const LocalBuffer buffer = *endpoint->AllocateBuffer(HammerArea::kBytes);
      Chain chain(1);
      for (int round = 0;; ++round) {
        std::memset(buffer.data, round, buffer.bytes);
        chain.Reset(1);
        chain.Write(MemorySpace::kMain, HammerArea::First(i), buffer);
        chain.Write(MemorySpace::kMain, HammerArea::Second(i), buffer);
        endpoint->Post(&chain);
        PANDO_CHECK(chain.ok()) << chain.status();
      }
    });
  }
  Ready();
  for (std::thread& writer : writers) writer.join();
  return 0;
}

int Hold(const std::string& path) {
  auto fabric = Connect(path);
  auto endpoint = *fabric->Connect(1, 1);
  Ready();
  for (;;) pause();
}

int Peers(const std::string& path) {
  PeerEcho echo;
  PeerOptions options;
  options.identity = {9, 9};
  options.acceptor = &echo;
  options.address = path;
  const auto port = OpenShmPeers(options);
  PANDO_CHECK(port.ok()) << port.status();
  Ready();
  for (;;) pause();
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string mode = argv[1], path = argv[2];
  const int number = argc > 3 ? atoi(argv[3]) : 0;
  if (mode == "serve") return pando::Serve(path, number);
  if (mode == "serve_second") return pando::Serve(path, 0, 2);
  if (mode == "trace") return pando::Trace(path, number);
  if (mode == "hammer") return pando::Hammer(path, number);
  if (mode == "hold") return pando::Hold(path);
  if (mode == "peers") return pando::Peers(path);
  return 2;
}

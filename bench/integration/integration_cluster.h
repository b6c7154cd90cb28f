// A cluster as users run it, in one process: servers with the real memory server behind them on
// threads of their own, found through a registry. Tests use it through the public API alone.
// $PANDO_TEST_FABRIC names the transport: shm (the default) or verbs.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/sanitizer.h"
#include "common/base/system_random.h"
#include "common/base/temporary_directory.h"
#include "common/fabric/server.h"
#include "common/registry/id_mark.h"
#include "common/registry/registry.h"
#include "common/wire/control.h"
#include "memory/memory_server.h"
#include "memory/server_fabric.h"
#include "pando/client.h"

namespace pando {

// A memory server is stopped (SIGSTOP) at a call, the first of its kind, and goes on.
class Halt {
 public:
  // `done`: once it has executed the call, before it answers.
  Halt(ControlOpcode opcode, bool done) : opcode_(opcode), done_(done) {}
  void GoOn() {
    std::lock_guard lock(mutex_);
    goes_on_ = true;
    changed_.notify_all();
  }
  // False: nobody has made such a call.
  bool AwaitReached(std::chrono::seconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return reached_; });
  }

  // --- The server's side.
  bool IsFor(std::string_view request, bool done) const {
    ControlHeader header;
    if (request.size() < sizeof(header)) return false;
    std::memcpy(&header, request.data(), sizeof(header));
    return done == done_ && header.opcode == static_cast<uint16_t>(opcode_);
  }
  void Reach() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return goes_on_; });
  }

 private:
  const ControlOpcode opcode_;
  const bool done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false, goes_on_ = false;
};

class IntegrationCluster {
 public:
  struct Options {
    int memory_servers = 2;
    uint64_t main_bytes = uint64_t{64} << 20;
    uint64_t lock_words = 4096;
    uint32_t chunk_bytes = 256 << 10;
    std::string registry;  // empty: a directory of its own
    std::string fabric = default_fabric();
    bool needs_crc = false;     // lines carry checksums also where the fabric does not need them
    uint32_t packet_bytes = 0;  // 0: the fabric's
    uint32_t connections_max = 1024;
  };

  // What the suite runs on.
  static std::string default_fabric() {
    const char* const name = getenv("PANDO_TEST_FABRIC");
    return name == nullptr ? "shm" : name;
  }

  // Sanitized builds look for something else, and slowly; RDMA in software takes its time, too.
  // Tests of capacity do less then.
  static bool is_slow() { return kSanitized || default_fabric() != "shm"; }
  // Long tests of one session are not for ThreadSanitizer: what races shows in those of several.
  static constexpr bool kWithOneSession = !kThreadSanitized;

  IntegrationCluster() : IntegrationCluster(Options{}) {}
  explicit IntegrationCluster(const Options& options) : options_(options) {
    registry_name_ = options.registry.empty() ? directory_.path() : options.registry;
    // Where sockets go if the registry is no directory.
    if (!options.registry.empty()) setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
    auto registry = OpenRegistry(registry_name_);
    PANDO_CHECK_OK(registry.status());
    registry_ = *std::move(registry);
    StartAll();
  }
  ~IntegrationCluster() { StopAll(); }
  IntegrationCluster(const IntegrationCluster&) = delete;
  IntegrationCluster& operator=(const IntegrationCluster&) = delete;

  const std::string& registry() const { return registry_name_; }
  ClientOptions ClientDefaults() const {
    ClientOptions options;
    options.registry = registry_name_;
    options.fabric = options_.fabric;
    options.memory_servers_min = options_.memory_servers;
    return options;
  }
  // A compute server.
  std::unique_ptr<Client> NewClient() { return NewClient(ClientDefaults()); }
  std::unique_ptr<Client> NewClient(const ClientOptions& options) {
    auto client = Client::Connect(options);
    PANDO_CHECK_OK(client.status());
    return *std::move(client);
  }

  // Memory of dropped trees rests for a second: creates as soon as there is some.
  absl::StatusOr<std::unique_ptr<Tree>> CreateTreeWhenFree(Client& client,
                                                           const std::string& name) {
    while (true) {
      auto tree = client.CreateTree(name, {});
      if (!absl::IsResourceExhausted(tree.status())) return tree;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  ServerMemory memory(int server) { return servers_[static_cast<size_t>(server - 1)]->memory(); }
  uint64_t lock_words() const { return options_.lock_words; }

  // Clients must be gone, or see Unavailable.
  void StopAll() { servers_.clear(); }
  void StartAll() {
    for (int i = 1; i <= options_.memory_servers; ++i) Start(i);
  }
  // One server, also one more than there were: from 1 on. It begins empty.
  void Start(int server, std::shared_ptr<Halt> halt = nullptr) {
    if (servers_.size() < static_cast<size_t>(server)) servers_.resize(static_cast<size_t>(server));
    servers_[static_cast<size_t>(server - 1)] = std::make_unique<Server>(
        options_, server, registry_name_, registry_.get(), std::move(halt));
  }
  void Stop(int server) { servers_[static_cast<size_t>(server - 1)].reset(); }
  // Until the lock is given up the server answers no call, as one that is stopped (SIGSTOP); its
  // memory is there.
  std::unique_lock<std::mutex> Silence(int server) {
    return servers_[static_cast<size_t>(server - 1)]->Silence();
  }

 private:
  // Passes everything on to another handler, while it is open.
  class Gate final : public ControlHandler {
   public:
    Gate(ControlHandler* behind, std::shared_ptr<Halt> halt)
        : behind_(*behind), halt_(std::move(halt)) {}
    std::string Handle(PeerId peer, std::string_view request) override {
      std::lock_guard lock(mutex_);
      if (halt_ != nullptr && halt_->IsFor(request, /*done=*/false)) halt_->Reach();
      std::string reply = behind_.Handle(peer, request);
      if (halt_ != nullptr && halt_->IsFor(request, /*done=*/true)) halt_->Reach();
      return reply;
    }
    bool IsKnown(PeerId peer) const override { return behind_.IsKnown(peer); }
    void OnPeerGone(PeerId peer) override { behind_.OnPeerGone(peer); }
    int64_t OnTimer(int64_t now_ns) override { return behind_.OnTimer(now_ns); }
    std::unique_lock<std::mutex> Close() { return std::unique_lock(mutex_); }

   private:
    ControlHandler& behind_;
    const std::shared_ptr<Halt> halt_;
    std::mutex mutex_;
  };

  class Server {
   public:
    Server(const Options& options, int number, const std::string& registry_name, Registry* registry,
           std::shared_ptr<Halt> halt) {
      auto mark = OpenIdMark(registry_name);
      PANDO_CHECK_OK(mark.status());
      id_mark_ = *std::move(mark);
      const auto first_id = id_mark_->Load();
      PANDO_CHECK_OK(first_id.status());
      const auto id = static_cast<ServerId>(number);
      auto path = registry->SocketPath(id);
      PANDO_CHECK_OK(path.status());
      auto server = memory::ServerFabric::Create({.fabric = options.fabric,
                                                  .server_id = id,
                                                  .main_bytes = options.main_bytes,
                                                  .lock_bytes = options.lock_words * 8,
                                                  .packet_bytes = options.packet_bytes,
                                                  .connections_max = options.connections_max,
                                                  .socket_path = *path});
      PANDO_CHECK_OK(server.status());
      server_ = *std::move(server);
      const bool leases = server_->fence() != nullptr;
      auto key_path = registry->IdentityKeyPath(options.fabric);
      PANDO_CHECK_OK(key_path.status());
      auto key = FindIdentityKey(nullptr, *key_path);
      PANDO_CHECK_OK(key.status());
      auto handler = memory::MemoryServer::Create(
          server_->memory(), {.server_id = id,
                              .is_catalog = number == 1,
                              .chunk_bytes = options.chunk_bytes,
                              .packet_bytes = server_->packet_bytes(),
                              .needs_crc = options.needs_crc || server_->needs_crc(),
                              .first_id = first_id->value_or(1),
                              .keep_id_mark = [this](uint32_t id) { return id_mark_->Store(id); },
                              .life = std::max<uint64_t>(SystemRandom(), 1),
                              .lease_ns = leases ? kLeaseNs : 0,
                              .fence = server_->fence(),
                              .identity_key = *key});
      PANDO_CHECK_OK(handler.status());
      handler_ = *std::move(handler);
      gate_ = std::make_unique<Gate>(handler_.get(), std::move(halt));
      thread_ = std::thread([this] { PANDO_CHECK_OK(server_->Serve(gate_.get())); });
      auto announcement = registry->Announce(
          {.id = id, .address = server_->address(), .fabric = options.fabric, .host = ""});
      PANDO_CHECK_OK(announcement.status());
      announcement_ = *std::move(announcement);
    }
    ~Server() {
      announcement_.reset();
      server_->Stop();
      thread_.join();
    }
    ServerMemory memory() { return server_->memory(); }
    std::unique_lock<std::mutex> Silence() { return gate_->Close(); }

   private:
    // Long: on a machine with one processor a session may have to wait for its turn.
    static constexpr int64_t kLeaseNs = 20 * kSecondNs;
    std::unique_ptr<IdMark> id_mark_;
    std::unique_ptr<memory::ServerFabric> server_;
    std::unique_ptr<memory::MemoryServer> handler_;
    std::unique_ptr<Gate> gate_;
    std::thread thread_;
    std::unique_ptr<Announcement> announcement_;
  };

  const Options options_;
  const TemporaryDirectory directory_;
  std::string registry_name_;
  std::unique_ptr<Registry> registry_;
  std::vector<std::unique_ptr<Server>> servers_;
};

// For the assertions below.
inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}
inline testing::AssertionResult HasCode(const absl::Status& status, absl::StatusCode code) {
  if (status.code() == code) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << status << ", expected " << absl::StatusCodeToString(code) << ". ";
}

// Keys in the order of their numbers, below 900,000.
inline std::string NumberedKey(uint64_t n) { return "k" + std::to_string(100'000 + n); }

// A cluster, and one session of one client on one tree.
class OneTreeTest : public testing::Test {
 protected:
  OneTreeTest() = default;
  explicit OneTreeTest(const IntegrationCluster::Options& options) : cluster_(options) {}

  void SetUp() override {
    client_ = cluster_.NewClient();
    auto tree = client_->CreateTree("t", {});
    ASSERT_TRUE(tree.ok()) << tree.status();
    tree_ = *std::move(tree);
    auto session = client_->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

}  // namespace pando

// Of a Status or a StatusOr; the status is printed.
#define ASSERT_OK(expression) \
  ASSERT_TRUE(pando::HasCode(pando::StatusOf(expression), absl::StatusCode::kOk))
#define EXPECT_OK(expression) \
  EXPECT_TRUE(pando::HasCode(pando::StatusOf(expression), absl::StatusCode::kOk))
#define EXPECT_CODE(expression, name) \
  EXPECT_TRUE(pando::HasCode(pando::StatusOf(expression), absl::StatusCode::k##name))

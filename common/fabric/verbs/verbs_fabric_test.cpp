// What the verbs fabric promises beyond the suite: doorbells and completions, broken queue pairs,
// fencing, secrets, bad peers, teardown. Needs an RDMA device.
#include "common/fabric/verbs/verbs_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "common/fabric/chain_list.h"
#include "common/fabric/recoverable.h"
#include "common/fabric/verbs/fake_device_memory.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/thread_domain.h"
#include "common/fabric/verbs/verbs_frame.h"
#include "common/fabric/verbs/verbs_holdings.h"
#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {
namespace {

using testing::HasSubstr;

class VerbsFabricTest : public VerbsDeviceTest {
 protected:
  void Start(VerbsServerOptions options = {}) {
    options.main_bytes = 1 << 20;
    server_ = std::make_unique<VerbsServerThread>(options, &handler_);
  }
  std::shared_ptr<Fabric> Connect(const VerbsFabricOptions& options = {}) {
    auto fabric = ConnectVerbs({server_->location()}, options);
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return fabric.ok() ? *std::move(fabric) : nullptr;
  }
  static void Finish(Endpoint& endpoint, const Chain& chain) {
    while (!chain.done()) {
      if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
    }
  }
  static absl::Status Add(Endpoint& endpoint, uint64_t offset = 0) {
    Chain chain(1);
    chain.FetchAdd(MemorySpace::kMain, offset, 1);
    endpoint.Post(&chain);
    Finish(endpoint, chain);
    return chain.status();
  }
  static absl::Status Call(Endpoint& endpoint, std::string* reply) {
    PendingCall call;
    call.server = 1;
    call.request = "hello";
    endpoint.Call(&call);
    while (!call.done) {
      if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
    }
    *reply = call.reply;
    return call.status;
  }
  // Until the server has confirmed; how many chains failed meanwhile.
  static int AwaitReconnect(Endpoint& endpoint) {
    int failures = 0;
    for (absl::Status status = Add(endpoint, 64); !status.ok(); status = Add(endpoint, 64)) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      endpoint.Wait(endpoint.clock().NowNs() + kMillisecondNs);
      if (++failures > 100'000) break;
    }
    return failures;
  }
  uint64_t Word(uint64_t offset) {
    return reinterpret_cast<const uint64_t*>(server_->server().memory().main.data())[offset / 8];
  }

  EchoHandler handler_;
  std::unique_ptr<VerbsServerThread> server_;
};

TEST_F(VerbsFabricTest, AChainIsOneDoorbellAndOneCompletion) {
  Start();
  auto endpoint = *Connect({.alone_doorbells = false})->Connect(1, 1);
  const LocalBuffer buffer = *endpoint->AllocateBuffer(4096);
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  for (int i = 0; i < 10; ++i) {
    Chain chain(1);
    chain.CompareSwap(MemorySpace::kLocks, 0, 0, 0);
    chain.Read(MemorySpace::kMain, 0, buffer.Slice(0, 1024));
    chain.Write(MemorySpace::kMain, 2048, buffer.Slice(0, 64)).fence = true;
    chain.Write(MemorySpace::kMain, 4096, buffer.Slice(0, 1024));
    endpoint->Post(&chain);
    Finish(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
  }
  EXPECT_EQ(counters.doorbells, 10u);
  EXPECT_EQ(counters.completions, 10u);
  EXPECT_EQ(counters.work_requests, endpoint->meter().verbs());
  EXPECT_EQ(counters.doorbells, endpoint->meter().chains);
  EXPECT_EQ(counters.inlined, 10u) << "the small WRITEs, and no others";
  EXPECT_EQ(counters.failures + counters.broken, 0u);
}

// As on a NIC: chain_list.h.
TEST_F(VerbsFabricTest, AShortChainThatIsAloneHasADoorbellForEachVerb) {
  Start();
  auto endpoint = *Connect({.alone_doorbells = true})->Connect(1, 1);
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  uint64_t expected = 0, doorbells = 0;
  for (uint32_t verbs = 1; verbs <= kAloneVerbsMax + 1; ++verbs) {
    Chain chain(1);
    for (uint32_t i = 0; i < verbs; ++i) chain.FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(&chain);
    Finish(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    for (uint32_t i = 0; i < verbs; ++i) EXPECT_EQ(chain.verb(i).old_value, expected++);
    EXPECT_EQ(counters.doorbells, doorbells += verbs <= kAloneVerbsMax ? verbs : 1);
    EXPECT_EQ(counters.completions, verbs);
  }
}

TEST_F(VerbsFabricTest, MoreChainsThanFitWaitTheirTurn) {
  Start();
  auto endpoint = *Connect({.work_requests = 16})->Connect(1, 1);
  constexpr int kChains = 100;
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < kChains; ++i) {
    chains.push_back(std::make_unique<Chain>(1));
    for (int verb = 0; verb < 5; ++verb) chains.back()->FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(chains.back().get());
  }
  EXPECT_GT(endpoint->in_flight(), 3u);
  uint64_t expected = 0;
  for (const auto& chain : chains) {
    Finish(*endpoint, *chain);
    ASSERT_TRUE(chain->ok()) << chain->status();
    for (int verb = 0; verb < 5; ++verb) EXPECT_EQ(chain->verb(verb).old_value, expected++);
  }
  EXPECT_EQ(endpoint->in_flight(), 0u);
  EXPECT_EQ(VerbsCountersOf(*endpoint).completions, 100u);
  EXPECT_LE(VerbsCountersOf(*endpoint).doorbells, 100u);
}

TEST_F(VerbsFabricTest, QueuePairsAreMadeWhenFirstUsed) {
  EchoHandler other_handler;
  Start();
  VerbsServerThread other({.server_id = 2, .main_bytes = 1 << 20}, &other_handler);
  auto fabric = *ConnectVerbs({server_->location(), other.location()});
  auto endpoint = *fabric->Connect(1, 1);
  std::string reply;
  ASSERT_TRUE(Call(*endpoint, &reply).ok());
  EXPECT_EQ(server_->server().queue_pairs() + other.server().queue_pairs(), 0u)
      << "calls need none";
  ASSERT_TRUE(Add(*endpoint).ok());
  EXPECT_EQ(server_->server().queue_pairs(), 1u);
  EXPECT_EQ(other.server().queue_pairs(), 0u);
  ASSERT_TRUE(Add(*endpoint).ok());
  EXPECT_EQ(server_->server().queue_pairs(), 1u);
  endpoint.reset();
  while (server_->server().queue_pairs() > 0) std::this_thread::yield();
}

// The first chain waits for the server, the session's thread does not, and nothing happens late.
TEST_F(VerbsFabricTest, TheFirstChainWaitsAsLongAsItMay) {
  Start();
  auto fabric = Connect();
  auto endpoint = *fabric->Connect(1, 1);
  server_->handler().SetPaused(true);  // by the call the server is stuck
  PendingCall call;
  call.server = 1;
  call.request = "hello";
  endpoint->Call(&call);
  const int64_t start_ns = endpoint->clock().NowNs();
  Chain hasty(1), patient(1), endless(1);
  for (Chain* chain : {&hasty, &patient, &endless}) chain->FetchAdd(MemorySpace::kMain, 0, 1);
  hasty.LimitWait(kNeverNs, 50 * kMillisecondNs);
  patient.LimitWait(start_ns + 100 * kMillisecondNs, kNeverNs);
  for (Chain* chain : {&hasty, &patient, &endless}) endpoint->Post(chain);
  EXPECT_LT(endpoint->clock().NowNs() - start_ns, 40 * kMillisecondNs);
  Finish(*endpoint, hasty);
  EXPECT_TRUE(absl::IsDeadlineExceeded(hasty.status())) << hasty.status();
  EXPECT_THAT(std::string(hasty.status().message()), HasSubstr("server 1"));
  EXPECT_FALSE(patient.done());
  Finish(*endpoint, patient);
  EXPECT_TRUE(absl::IsDeadlineExceeded(patient.status())) << patient.status();
  EXPECT_GE(endpoint->clock().NowNs() - start_ns, 100 * kMillisecondNs);
  EXPECT_LT(endpoint->clock().NowNs() - start_ns, kSecondNs);
  server_->handler().SetPaused(false);
  Finish(*endpoint, endless);
  EXPECT_TRUE(endless.ok()) << endless.status();
  EXPECT_GT(endless.started_ns(), endless.posted_ns());
  EXPECT_EQ(Word(0), 1u) << "what ended before has not happened";
  while (!call.done) {
    if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
  }
}

TEST_F(VerbsFabricTest, ChainsOfOneTurnAreOneDoorbell) {
  Start();
  auto endpoint = *Connect()->Connect(1, 1);
  ASSERT_TRUE(Add(*endpoint, 64).ok());
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  const uint64_t before = counters.doorbells;
  std::vector<std::unique_ptr<Chain>> chains;
  const auto post = [&](int verbs) {
    chains.push_back(std::make_unique<Chain>(1));
    for (int i = 0; i < verbs; ++i) chains.back()->FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(chains.back().get());
  };
  endpoint->set_overlap(true);
  for (int i = 0; i < 3; ++i) post(2);
  EXPECT_EQ(counters.doorbells, before) << "others have something to post";
  endpoint->set_overlap(false);
  post(1);
  EXPECT_EQ(counters.doorbells, before + 1) << "the last one waits for nobody";
  endpoint->set_overlap(true);
  post(1);
  endpoint->Poll();
  EXPECT_EQ(counters.doorbells, before + 2);
  for (int i = 0; i < 3; ++i) post(16);  // more than a list takes
  EXPECT_EQ(counters.doorbells, before + 3) << "full";
  uint64_t expected = 0;
  for (const auto& chain : chains) {
    Finish(*endpoint, *chain);
    ASSERT_TRUE(chain->ok()) << chain->status();
    for (const Verb& verb : chain->verbs()) EXPECT_EQ(verb.old_value, expected++);
  }
  EXPECT_EQ(counters.completions, chains.size() + 1);
}

// Rule L5: what was before the failing chain of a list is done, what was behind it may be.
TEST_F(VerbsFabricTest, AListBreaksAtTheFailingChain) {
  Start();
  constexpr size_t kChains = 4;
  auto endpoint = *Connect()->Connect(1, 1);
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  const LocalBuffer buffer = *endpoint->AllocateBuffer(64 * kChains);
  LocalBuffer foreign = *endpoint->AllocateBuffer(64);
  foreign.key ^= 0x5500;
  ASSERT_TRUE(Add(*endpoint, 64).ok());
  for (size_t at = 0; at < 3 * kChains; ++at) {
    const size_t failing = at / 3, failing_verb = at % 3;
    SCOPED_TRACE(testing::Message() << "verb " << failing_verb << " of chain " << failing);
    const uint64_t found = Word(0), doorbells = counters.doorbells, failures = counters.failures;
    std::vector<std::unique_ptr<Chain>> chains;
    endpoint->set_overlap(true);
    for (size_t i = 0; i < kChains; ++i) {
      Chain& chain = *chains.emplace_back(std::make_unique<Chain>(1));
      const auto fail_at = [&](size_t verb) {
        if (i == failing && verb == failing_verb) chain.Read(MemorySpace::kMain, 128, foreign);
      };
      fail_at(0);
      chain.FetchAdd(MemorySpace::kMain, 0, 1);
      fail_at(1);
      chain.Read(MemorySpace::kMain, 0, buffer.Slice(64 * static_cast<uint32_t>(i), 64));
      fail_at(2);
      endpoint->Post(&chain);
    }
    endpoint->set_overlap(false);
    for (const auto& chain : chains) Finish(*endpoint, *chain);
    EXPECT_EQ(counters.doorbells, doorbells + 1);
    EXPECT_EQ(counters.failures, failures + 1);
    for (size_t i = 0; i < kChains; ++i) {
      const absl::Status& status = chains[i]->status();
      EXPECT_EQ(status.ok(), i < failing) << i << ": " << status;
      EXPECT_EQ(absl::IsUnavailable(status), i >= failing) << i << ": " << status;
      EXPECT_EQ(IsRecoverable(status), i >= failing) << i << ": " << status;
      if (i > failing) {
        EXPECT_THAT(std::string(status.message()), HasSubstr("a chain before it failed"));
      }
    }
    EXPECT_THAT(std::string(chains[failing]->status().message()),
                HasSubstr("READ of 64 bytes at main+128: "));
    // The buffers are the session's again.
    std::memset(buffer.data, 0x5a, buffer.bytes);
    AwaitReconnect(*endpoint);
    for (uint32_t i = 0; i < buffer.bytes; ++i) ASSERT_EQ(buffer.data[i], std::byte{0x5a});
    EXPECT_GE(Word(0), found + failing + (failing_verb > 0 ? 1 : 0));
    EXPECT_LE(Word(0), found + kChains);
  }
}

// As a provider that knows thread domains: software devices do not.
class FakeThreadDomains final : public ThreadDomainCalls {
 public:
  ibv_td* Allocate(const VerbsDevice& device) override {
    ++domains;
    return new ibv_td{device.context()};
  }
  void Free(ibv_td* domain) override {
    --domains;
    delete domain;
  }
  ibv_pd* AllocateParent(const VerbsDevice& device, ibv_td*) override {
    if (fail_parent) return nullptr;
    ++parents;
    return device.pd();
  }
  void FreeParent(ibv_pd*) override { --parents; }

  bool fail_parent = false;
  int domains = 0, parents = 0;
};

TEST_F(VerbsFabricTest, EachSessionHasAThreadDomainWhereThereIsOne) {
  Start();
  FakeThreadDomains domains;
  for (const bool fail_parent : {false, true}) {
    domains.fail_parent = fail_parent;
    auto fabric = Connect({.thread_domain_calls = &domains});
    auto endpoint = *fabric->Connect(1, 1), another = *fabric->Connect(1, 1);
    EXPECT_EQ(domains.domains, 2);
    EXPECT_EQ(domains.parents, fail_parent ? 0 : 2);
    EXPECT_TRUE(Add(*endpoint).ok());
    EXPECT_TRUE(Add(*another).ok());
    endpoint.reset();
    another.reset();
    EXPECT_EQ(domains.domains + domains.parents, 0);
  }
}

TEST_F(VerbsFabricTest, ABrokenQueuePairIsReplacedAfterTheServersConfirmation) {
  Start();
  auto endpoint = *Connect()->Connect(1, 1);
  ASSERT_TRUE(Add(*endpoint, 64).ok());
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Chain>> chains;
    for (int i = 0; i < 5; ++i) {
      chains.push_back(std::make_unique<Chain>(1));
      chains.back()->FetchAdd(MemorySpace::kMain, 0, 1);
      endpoint->Post(chains.back().get());
    }
    server_->handler().SetPaused(true);  // calls only: queue pairs are the server's own business
    BreakVerbsQueuePair(endpoint.get(), 1);
    server_->handler().SetPaused(false);
    for (const auto& chain : chains) {
      ASSERT_TRUE(chain->done());
      EXPECT_TRUE(absl::IsUnavailable(chain->status())) << chain->status();
      EXPECT_THAT(std::string(chain->status().message()),
                  testing::AllOf(HasSubstr("server 1"), HasSubstr("FAA of 8 bytes at main+0")));
    }
    AwaitReconnect(*endpoint);
    // Nothing of the old queue pair moves any more.
    const uint64_t confirmed = Word(0);
    ASSERT_TRUE(Add(*endpoint).ok());
    EXPECT_EQ(Word(0), confirmed + 1);
  }
  EXPECT_EQ(VerbsCountersOf(*endpoint).broken, 20u);
  EXPECT_EQ(VerbsCountersOf(*endpoint).reconnects, 20u);
  EXPECT_EQ(server_->server().queue_pairs(), 1u);
}

// Rule L5: what a chain that failed may have done is over once the next one succeeds, also while
// others write.
TEST_F(VerbsFabricTest, ReconnectUnderContentionLosesNothing) {
  Start();
  constexpr int kThreads = 3, kRounds = 200;
  auto fabric = Connect();
  std::atomic<uint64_t> sure{0}, unsure{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto endpoint = *fabric->Connect(static_cast<uint16_t>(t + 1), 1);
      for (int i = 0; i < kRounds; ++i) {
        Chain chain(1);
        chain.FetchAdd(MemorySpace::kMain, 0, 1);
        endpoint->Post(&chain);
        if (i % 10 == t) BreakVerbsQueuePair(endpoint.get(), 1);
        Finish(*endpoint, chain);
        ++(chain.ok() ? sure : unsure);
        if (!chain.ok()) AwaitReconnect(*endpoint);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sure + unsure, static_cast<uint64_t>(kThreads * kRounds));
  EXPECT_GE(Word(0), sure.load());
  EXPECT_LE(Word(0), sure + unsure);
}

TEST_F(VerbsFabricTest, AWrongKeyBreaksAChainAndNotTheProcess) {
  Start();
  auto endpoint = *Connect()->Connect(1, 1);
  const LocalBuffer buffer = *endpoint->AllocateBuffer(64);
  LocalBuffer foreign = buffer;
  foreign.key ^= 0x5500;
  Chain chain(1);
  chain.FetchAdd(MemorySpace::kMain, 0, 1);
  chain.Read(MemorySpace::kMain, 128, foreign);
  endpoint->Post(&chain);
  Finish(*endpoint, chain);
  EXPECT_TRUE(absl::IsUnavailable(chain.status())) << chain.status();
  EXPECT_THAT(std::string(chain.status().message()), HasSubstr("READ of 64 bytes at main+128"));
  EXPECT_GT(VerbsCountersOf(*endpoint).failures, 0u);
  AwaitReconnect(*endpoint);
  EXPECT_TRUE(Add(*endpoint).ok());
}

TEST_F(VerbsFabricTest, TheCutOffReachesNothingAndIsToldSo) {
  // CutOff() belongs to the server's thread: a call asks for it.
  class Cutter : public EchoHandler {
   public:
    std::string Handle(PeerId peer, std::string_view request) override {
      if (request == "cut") fence->CutOff(peer);
      return EchoHandler::Handle(peer, request);
    }
    PeerFence* fence = nullptr;
  } cutter;
  VerbsServerThread server({.main_bytes = 1 << 20}, &cutter);
  cutter.fence = &server.server();
  auto fabric = *ConnectVerbs({server.location()});
  auto other_fabric = *ConnectVerbs({server.location()});
  auto endpoint = *fabric->Connect(1, 1);
  auto other = *other_fabric->Connect(2, 1);
  ASSERT_TRUE(Add(*endpoint).ok());
  PendingCall call;
  call.server = 1;
  call.request = "cut";
  endpoint->Call(&call);
  while (!call.done) {
    if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
  }
  ASSERT_TRUE(call.status.ok()) << call.status << ": its calls are still answered";
  while (cutter.gone().empty()) std::this_thread::yield();
  const auto* const word = reinterpret_cast<const uint64_t*>(server.server().memory().main.data());
  const uint64_t found = word[0];
  const int64_t start_ns = endpoint->clock().NowNs();
  absl::Status status = Add(*endpoint);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  // The refusal arrives a moment later, and stays.
  while (status.message().find("cut off") == absl::string_view::npos) {
    ASSERT_LT(endpoint->clock().NowNs() - start_ns, 30 * kSecondNs);
    endpoint->Wait(endpoint->clock().NowNs() + kMillisecondNs);
    status = Add(*endpoint);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
  EXPECT_EQ(word[0], found);
  auto another = *fabric->Connect(1, 1);  // gets no queue pair either
  status = Add(*another);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cut off"));
  another.reset();
  EXPECT_TRUE(Add(*other).ok());
  EXPECT_EQ(word[0], found + 1);
  std::string reply;
  EXPECT_TRUE(Call(*endpoint, &reply).ok());
  endpoint.reset();
  fabric.reset();
  EXPECT_TRUE(Call(*other, &reply).ok());
  while (cutter.gone().size() < 2) std::this_thread::yield();
  EXPECT_EQ(cutter.gone()[0], cutter.gone()[1]) << "cut off, then its connection ended";
}

std::shared_ptr<const ClusterSecret> Secret(std::string_view bytes) {
  auto secret = ClusterSecret::FromBytes(bytes);
  PANDO_CHECK_OK(secret.status());
  return std::make_shared<const ClusterSecret>(*std::move(secret));
}

TEST_F(VerbsFabricTest, WhoDoesNotKnowTheSecretGetsNothing) {
  const auto ours = Secret("sixteen bytes, or more");
  Start({.secret = ours});
  EXPECT_NE(Connect({.secret = ours}), nullptr);
  for (const auto& other : {decltype(ours)(), Secret("sixteen other bytes")}) {
    const auto fabric = ConnectVerbs({server_->location()}, {.secret = other});
    EXPECT_TRUE(absl::IsPermissionDenied(fabric.status())) << fabric.status();
  }
  EXPECT_EQ(server_->server().queue_pairs(), 0u);
  Start();
  const auto fabric = ConnectVerbs({server_->location()}, {.secret = ours});
  EXPECT_TRUE(absl::IsPermissionDenied(fabric.status())) << fabric.status();
}

TEST_F(VerbsFabricTest, BadPeersAreRefusedAndHarmNobody) {
  Start({.hello_timeout_ms = 200});
  const auto address = ParseHostPort(server_->location().address);
  ASSERT_TRUE(address.ok());
  VerbsFrameHeader newer;
  newer.start.version = 9;
  const std::string hello =
      EncodeVerbsFrame(VerbsFrameType::kHello, 0, EncodeBody<VerbsFeatures>({}));
  const std::string cases[] = {
      "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n",
      std::string(reinterpret_cast<const char*>(&newer), sizeof(newer)),
      EncodeVerbsFrame(VerbsFrameType::kOpen, 1, EncodeBody<VerbsOpen>({})),  // before the hello
      hello + hello,
      hello + EncodeVerbsFrame(VerbsFrameType::kOpen, 1, "short"),
      hello + EncodeVerbsFrame(VerbsFrameType::kOpen, 1, EncodeBody<VerbsOpen>({})),
      EncodeVerbsFrame(VerbsFrameType::kHello, 0, EncodeBody<VerbsFeatures>({.incompatible = 4})),
      "",  // says nothing, until it is closed
  };
  for (const std::string& sent : cases) {
    const auto socket = ConnectTcp(*address, RealClock().NowNs() + kSecondNs);
    ASSERT_TRUE(socket.ok()) << socket.status();
    std::string bytes = sent, received;
    SendTcp(socket->get(), &bytes);
    while (ReceiveTcp(socket->get(), &received) != TcpResult::kGone) std::this_thread::yield();
    EXPECT_FALSE(received.empty()) << "a reason is told";
  }
  EXPECT_TRUE(Add(**Connect()->Connect(1, 1)).ok());
}

TEST_F(VerbsFabricTest, WrongServersAreNamed) {
  Start();
  ServerLocation location = server_->location();
  location.id = 7;
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectVerbs({location}).status()));
  const auto twice = ConnectVerbs({server_->location(), server_->location()});
  EXPECT_TRUE(absl::IsInvalidArgument(twice.status())) << twice.status();
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectVerbs({}).status()));
  location = server_->location();
  location.address = "/a/path";
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectVerbs({location}).status()));
  server_->Stop();
  const auto nobody = ConnectVerbs({server_->location()});
  EXPECT_TRUE(absl::IsUnavailable(nobody.status())) << nobody.status();
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("server 1"));
}

TEST_F(VerbsFabricTest, OptionsThatCannotWorkAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(VerbsServer::Create({.main_bytes = 100}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(VerbsServer::Create({.lock_bytes = 8}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(VerbsServer::Create({.packet_bytes = 8192}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(VerbsServer::Create({.listen = "nowhere"}).status()));
  EXPECT_TRUE(absl::IsNotFound(VerbsServer::Create({.device = {.device = "none"}}).status()));
  EXPECT_TRUE(absl::IsNotFound(VerbsServer::Create({.device = {.gid_index = 200}}).status()));
  Start();
  EXPECT_TRUE(
      absl::IsAlreadyExists(VerbsServer::Create({.listen = server_->location().address}).status()));
}

TEST_F(VerbsFabricTest, AServerThatIsGoneForOneFabricAnswersAnew) {
  Start();
  auto fabric = Connect();
  auto endpoint = *fabric->Connect(1, 1);
  ASSERT_TRUE(Add(*endpoint).ok());
  BreakVerbsConnection(fabric.get(), 1);
  while (Add(*endpoint).ok()) std::this_thread::yield();
  EXPECT_THAT(std::string(Add(*endpoint).message()), HasSubstr("is gone"));
  std::string reply;
  EXPECT_TRUE(absl::IsUnavailable(Call(*endpoint, &reply)));
  const auto anew = fabric->CallAnew(1, "hello");
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(*anew, HasSubstr("hello"));
  EXPECT_TRUE(absl::IsUnavailable(fabric->CallAnew(9, "hello").status()));
  server_->Stop();
  const absl::Status nobody = fabric->CallAnew(1, "hello").status();
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
}

TEST_F(VerbsFabricTest, ConnectingAHundredTimesLeaksNothing) {
  Start();
  Holdings first;
  for (int i = 0; i < 100; ++i) {
    {
      auto fabric = Connect();
      auto endpoint = *fabric->Connect(1, 1), another = *fabric->Connect(1, 1);
      ASSERT_TRUE(endpoint->AllocateBuffer(4096).ok());
      EXPECT_TRUE(Add(*endpoint).ok());
      EXPECT_TRUE(Add(*another).ok());
      if (i % 3 == 0) BreakVerbsQueuePair(endpoint.get(), 1);  // gone while it is opened anew
    }
    while (handler_.gone().size() <= static_cast<size_t>(i)) std::this_thread::yield();
    EXPECT_EQ(server_->server().queue_pairs(), 0u);
    if (i == 2) first = Holdings::Now();
  }
  const Holdings last = Holdings::Now();
  EXPECT_EQ(last.descriptors, first.descriptors);
  EXPECT_EQ(last.mappings, first.mappings);
  EXPECT_EQ(last.pinned_bytes, first.pinned_bytes);
  EXPECT_EQ(Word(0), 200u);
}

TEST_F(VerbsFabricTest, AServerStartsAgainWhereTheLastOneWas) {
  Start();
  const std::string address = server_->location().address;
  auto fabric = Connect();
  auto endpoint = *fabric->Connect(1, 1);
  server_.reset();
  Start({.listen = address});
  EXPECT_EQ(server_->location().address, address);
  // The old life's clients are not the new one's.
  const int64_t start_ns = endpoint->clock().NowNs();
  absl::Status status = Add(*endpoint);
  while (status.message().find("is gone") == absl::string_view::npos) {
    ASSERT_LT(endpoint->clock().NowNs() - start_ns, 30 * kSecondNs);
    EXPECT_FALSE(status.ok());
    endpoint->Wait(endpoint->clock().NowNs() + kMillisecondNs);
    status = Add(*endpoint);
  }
  EXPECT_EQ(Word(0), 0u);
  EXPECT_TRUE(Add(**Connect()->Connect(1, 1)).ok());
}

}  // namespace
}  // namespace pando

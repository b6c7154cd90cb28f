// What the verbs fabric promises beyond the suite: broken queue pairs, fencing, secrets, bad peers,
// teardown. verbs_chains_test.cpp has its chains. Needs an RDMA device.
#include "common/fabric/verbs/verbs_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_fabric_test_util.h"
#include "common/fabric/verbs/verbs_frame.h"
#include "common/fabric/verbs/verbs_holdings.h"

namespace pando {
namespace {

using testing::HasSubstr;

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
  const auto anew = fabric->CallOnFreshConnection(1, "hello");
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(*anew, HasSubstr("hello"));
  EXPECT_TRUE(absl::IsUnavailable(fabric->CallOnFreshConnection(9, "hello").status()));
  server_->Stop();
  const absl::Status nobody = fabric->CallOnFreshConnection(1, "hello").status();
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
      if (i % 3 == 0) BreakVerbsQueuePair(endpoint.get(), 1);  // gone while it is opened again
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

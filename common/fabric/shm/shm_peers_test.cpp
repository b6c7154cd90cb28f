// Ports against peers that do not behave, and their sockets.
#include "common/fabric/shm/shm_peers.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "common/base/bystander.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/fabric/body.h"
#include "common/fabric/link/peer_hello.h"
#include "common/fabric/peer_process.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_stranger.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/shm_test_helper.h"
#include "common/fabric/shm/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

class ShmPeersTest : public testing::Test {
 protected:
  ShmPeersTest() {
    options_.identity = {1, 7};
    options_.acceptor = &server_;
    options_.address = directory_.path() + "/peer";
    options_.hello_timeout_ms = 300;
  }
  void Start() {
    auto port = OpenShmPeers(options_);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
  }
  std::unique_ptr<PeerPort> OpenOther(PeerIdentity identity = {2, 7}) {
    PeerOptions other;
    other.identity = identity;
    other.hello_timeout_ms = 300;
    return *OpenShmPeers(other);
  }
  UniqueFd Dial() { return DialAsStranger(options_.address); }
  static std::string Hello(const PeerHello& hello = MakePeerHello({3, 4})) {
    return EncodeShmFrame(ShmFrameType::kPeerHello, 0, EncodeBody(hello));
  }
  UniqueFd DialAndGreet() {
    UniqueFd socket = Dial();
    EXPECT_EQ(SendMessage(socket.get(), Hello()), SendResult::kSent);
    const std::optional<std::string> answer = Hear(socket);
    EXPECT_TRUE(answer.has_value());
    return socket;
  }
  // A peer like any other finds the port well.
  void ExpectPortIsWell() {
    PeerRecorder client;  // outlives the port
    // Links of the test may be taken later than this one, although they were asked for before.
    constexpr PeerIdentity kWell = {9, 1};
    const auto other = OpenOther(kWell);
    auto link = other->Connect(options_.address, &client);
    // Among very many strangers one may be told to connect again.
    EXPECT_TRUE(AwaitPeers([&] {
      if (absl::IsUnavailable(link.status())) link = other->Connect(options_.address, &client);
      return link.ok();
    }));
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE(AwaitPeers([&] { return client.writable(*link) > 0; })) << client.of(*link).why;
    ASSERT_EQ((*link)->TrySend("well?"), PeerSend::kSent);
    std::shared_ptr<PeerLink> server;
    ASSERT_TRUE(AwaitPeers([&] {
      for (const auto& one : server_.accepted()) {
        if (one->other() == kWell) server = one;
      }
      return server != nullptr;
    }));
    ASSERT_TRUE(AwaitPeers([&] { return server_.messages(server) == 1; }));
    EXPECT_EQ(server->TrySend("well"), PeerSend::kSent);
    ASSERT_TRUE(AwaitPeers([&] { return client.messages(*link) == 1; }));
  }

  const Bystander bystander_;
  TemporaryDirectory directory_;
  PeerOptions options_;
  PeerRecorder server_;
  std::unique_ptr<PeerPort> port_;
};

TEST_F(ShmPeersTest, TheSocketIsTheOwnersOnlyAndGoesWithThePort) {
  Start();
  ExpectOwnersOnly(options_.address);
  port_.reset();
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "its lock's file goes, too";
}

TEST_F(ShmPeersTest, ADeadPortsSocketIsReplacedAndNothingElseIs) {
  {
    HelperProcess dead({"peers", options_.address});
    ASSERT_TRUE(dead.ready());
  }
  ASSERT_TRUE(std::filesystem::exists(options_.address)) << "it was killed";
  Start();
  ExpectPortIsWell();
  port_.reset();
  std::ofstream(options_.address) << "somebody's file";
  EXPECT_TRUE(absl::IsAlreadyExists(OpenShmPeers(options_).status()));
  EXPECT_EQ(std::filesystem::file_size(options_.address), 15u);
}

TEST_F(ShmPeersTest, AddressesThatAreNoneAreRefused) {
  options_.address = "";
  EXPECT_TRUE(absl::IsInvalidArgument(OpenShmPeers(options_).status()));
  options_.address = directory_.path() + "/" + std::string(100, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(OpenShmPeers(options_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenOther()->Connect(options_.address, &server_).status()));
}

TEST_F(ShmPeersTest, AFabricsPortsLieBesideItsMemoryServer) {
  EchoHandler handler;
  ShmTestCluster cluster({.servers = 1, .fabrics = 2}, {&handler});
  options_.address = "";
  const auto first = cluster.fabric(0).OpenPeers(options_);
  const auto second = cluster.fabric(1).OpenPeers(options_);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_NE((*first)->address(), (*second)->address());
  const std::string server = cluster.server(1).location().address;
  EXPECT_EQ(std::filesystem::path((*first)->address()).parent_path(),
            std::filesystem::path(server).parent_path());
}

// --- Strangers.

TEST_F(ShmPeersTest, GarbageCostsItsSenderTheLinkAndNobodyElse) {
  Start();
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const UniqueFd socket = Dial();
    std::string junk(1 + random.Uniform(300), '\0');
    for (char& byte : junk) byte = static_cast<char>(random.Next());
    if (i % 3 == 0) junk = Hello().substr(0, 1 + random.Uniform(40));
    if (i % 3 == 1) {
      junk = Hello();
      junk[random.Uniform(20)] ^= static_cast<char>(1 + random.Uniform(255));
    }
    ASSERT_EQ(SendMessage(socket.get(), junk), SendResult::kSent);
    const std::optional<std::string> answer = Hear(socket);
    if (!answer.has_value()) continue;
    const auto frame = ParseShmFrame(*answer);
    ASSERT_TRUE(frame.ok()) << frame.status();
    // What was changed may not have mattered (a sequence number).
    if (frame->type != ShmFrameType::kPeerHelloReply) {
      EXPECT_FALSE(Hear(socket).has_value());
    }
  }
  ExpectPortIsWell();
}

TEST_F(ShmPeersTest, EachMistakeOfAHelloIsNamed) {
  Start();
  const auto refusal = [this](const std::string& bytes) {
    const UniqueFd socket = Dial();
    EXPECT_EQ(SendMessage(socket.get(), bytes), SendResult::kSent);
    return HearRefusal(socket);
  };
  PeerHello future = MakePeerHello({1, 1});
  future.incompatible = 4;
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal(Hello(future))));
  std::string version = Hello();
  version[4] ^= 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal(version)));
  EXPECT_TRUE(absl::IsDataLoss(refusal(EncodeShmFrame(ShmFrameType::kPeerHello, 0, "short"))));
  EXPECT_TRUE(absl::IsDataLoss(refusal(std::string(kPeerMessageBytesMax + 1, 'x'))));
  // A client of memory servers, which has the wrong socket.
  const absl::Status wrong = refusal(EncodeShmFrame(ShmFrameType::kHello, 0, {}));
  EXPECT_TRUE(absl::IsDataLoss(wrong));
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("memory server"));
  EXPECT_TRUE(server_.accepted().empty());
}

TEST_F(ShmPeersTest, WhoDoesNotIntroduceHimselfIsClosed) {
  Start();
  const UniqueFd silent = Dial();
  const int64_t began_ns = RealClock().NowNs();
  const absl::Status why = HearRefusal(silent);
  EXPECT_TRUE(absl::IsUnavailable(why)) << why;
  EXPECT_GE(RealClock().NowNs() - began_ns, 250 * kMillisecondNs);
  EXPECT_LT(RealClock().NowNs() - began_ns, bystander_.Bound(2 * kSecondNs));
  ExpectPortIsWell();
}

TEST_F(ShmPeersTest, StrangersAreBoundedAndANewcomerGetsIn) {
  options_.hello_timeout_ms = 30'000;
  Start();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(Dial());
  ExpectPortIsWell();
  // This process has more than its share: its first ones have gone.
  ASSERT_TRUE(AwaitPeers([&] {
    pollfd first = {silent.front().get(), POLLIN, 0};
    return poll(&first, 1, 0) == 1;
  }));
}

// --- Those who have introduced themselves.

TEST_F(ShmPeersTest, WhatIsTooLongForAMessageEndsTheLink) {
  Start();
  const UniqueFd socket = DialAndGreet();
  ASSERT_TRUE(AwaitPeers([&] { return server_.accepted().size() == 1; }));
  const auto link = server_.accepted().at(0);
  EXPECT_EQ(link->other(), (PeerIdentity{3, 4}));
  ASSERT_EQ(SendMessage(socket.get(), std::string(kPeerMessageBytesMax, 'x')), SendResult::kSent);
  ASSERT_TRUE(AwaitPeers([&] { return server_.messages(link) == 1; }));
  ASSERT_EQ(SendMessage(socket.get(), std::string(kPeerMessageBytesMax + 1, 'x')),
            SendResult::kSent);
  EXPECT_FALSE(Hear(socket).has_value());
  ASSERT_TRUE(AwaitPeers([&] { return server_.broken(link) == 1; }));
  EXPECT_TRUE(absl::IsDataLoss(server_.of(link).why)) << server_.of(link).why;
  EXPECT_EQ(server_.messages(link), 1u);
  ExpectPortIsWell();
}

TEST_F(ShmPeersTest, DescriptorsThatArePassedAreClosed) {
  Start();
  const UniqueFd socket = DialAndGreet();
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  ASSERT_TRUE(AwaitPeers([&] { return server_.accepted().size() == 1; }));
  const auto before = descriptors();
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(SendMessage(socket.get(), "take this", socket.get()), SendResult::kSent);
    ASSERT_TRUE(AwaitPeers(
        [&] { return server_.messages(server_.accepted().at(0)) == static_cast<size_t>(i + 1); }));
  }
  EXPECT_EQ(descriptors(), before);
}

// A peer that reads nothing fills its own link, and nothing else.
TEST_F(ShmPeersTest, WhoDoesNotReadIsFullAndHoldsUpNobody) {
  Start();
  const UniqueFd greedy = DialAndGreet();
  ASSERT_TRUE(AwaitPeers([&] { return server_.accepted().size() == 1; }));
  const auto link = server_.accepted().at(0);
  int sent = 0;
  while (link->TrySend(std::string(4096, 'x')) == PeerSend::kSent) ASSERT_LT(++sent, 10'000);
  EXPECT_EQ(link->TrySend("x"), PeerSend::kFull);
  ExpectPortIsWell();
  ASSERT_EQ(SendMessage(greedy.get(), "but it is heard"), SendResult::kSent);
  ASSERT_TRUE(AwaitPeers([&] { return server_.messages(link) == 1; }));
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(Hear(greedy).has_value());
  ASSERT_TRUE(AwaitPeers([&] { return server_.writable(link) > 0; }));
}

// It does not close its end: nothing that is read says so.
TEST_F(ShmPeersTest, WhoTakesNothingAnyMoreIsReportedBroken) {
  Start();
  const UniqueFd deaf = DialAndGreet();
  ASSERT_TRUE(AwaitPeers([&] { return server_.accepted().size() == 1; }));
  const auto link = server_.accepted().at(0);
  // What it has said before is heard, however much that is.
  constexpr int kSaid = 100;
  for (int i = 0; i < kSaid; ++i) ASSERT_EQ(SendMessage(deaf.get(), "said"), SendResult::kSent);
  ASSERT_EQ(shutdown(deaf.get(), SHUT_RD), 0);
  ASSERT_TRUE(AwaitPeers([&] { return link->TrySend("x") == PeerSend::kBroken; }));
  ASSERT_TRUE(AwaitPeers([&] { return server_.broken(link) == 1; }));
  EXPECT_EQ(server_.messages(link), static_cast<size_t>(kSaid));
  EXPECT_TRUE(absl::IsUnavailable(server_.of(link).why)) << server_.of(link).why;
  ExpectPortIsWell();
}

// --- The other side: who connects where something else listens.

// Accepts one connection, reads a message, and answers as the test says.
class FalseListener {
 public:
  FalseListener(const std::string& path, std::string answer)
      : listener_(*ListenAt(path)), thread_([this, answer = std::move(answer)] {
          if (!WaitReadable(listener_.socket.get(), RealClock().NowNs() + 10 * kSecondNs)) return;
          UniqueFd socket(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
          Hear(socket);
          SendMessage(socket.get(), answer);
          Hear(socket);
        }) {}
  ~FalseListener() { thread_.join(); }

 private:
  static void Hear(const UniqueFd& socket) {
    std::byte buffer[64];
    size_t bytes;
    if (WaitReadable(socket.get(), RealClock().NowNs() + 10 * kSecondNs)) {
      ReceiveMessage(socket.get(), buffer, &bytes);
    }
  }

  UnixListener listener_;
  std::thread thread_;
};

TEST_F(ShmPeersTest, WhatAnswersAndIsNoPeerEndsTheLink) {
  const auto other = OpenOther();
  const auto answer = [&](const std::string& bytes) {
    const std::string path = directory_.path() + "/false";
    std::filesystem::remove(path);
    FalseListener listener(path, bytes);
    PeerRecorder client;
    const auto link = other->Connect(path, &client);
    EXPECT_TRUE(link.ok()) << link.status();
    EXPECT_TRUE(AwaitPeers([&] { return client.broken(*link) == 1; }));
    EXPECT_EQ(client.writable(*link), 0);
    return client.of(*link).why;
  };
  const auto error = [](const absl::Status& status) {
    return EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(status));
  };
  EXPECT_TRUE(absl::IsDataLoss(answer("garbage")));
  EXPECT_TRUE(absl::IsDataLoss(answer(EncodeShmFrame(ShmFrameType::kHelloReply, 0, "x"))));
  EXPECT_TRUE(absl::IsDataLoss(answer(Hello())));
  EXPECT_TRUE(absl::IsDataLoss(answer(std::string(kPeerMessageBytesMax + 1, 'x'))));
  EXPECT_TRUE(absl::IsPermissionDenied(answer(error(absl::PermissionDeniedError("no")))));
  EXPECT_TRUE(absl::IsDataLoss(answer(error(absl::CancelledError("not a reason")))));
  EXPECT_TRUE(absl::IsDataLoss(answer(EncodeShmFrame(ShmFrameType::kError, 0, ""))));
}

TEST_F(ShmPeersTest, AMemoryServerIsNoPeerAndSaysSo) {
  ShmServerOptions memory;
  memory.socket_path = directory_.path() + "/memory";
  memory.main_bytes = 1 << 20;
  EchoHandler handler;
  ShmServerThread thread(memory, &handler);
  PeerRecorder client;
  const auto other = OpenOther();
  const auto link = other->Connect(memory.socket_path, &client);
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE(AwaitPeers([&] { return client.broken(*link) == 1; }));
  EXPECT_TRUE(absl::IsDataLoss(client.of(*link).why)) << client.of(*link).why;
}

// A member that dials many at once pushes none of them out.
TEST_F(ShmPeersTest, ManyLinksMayBeMadeAtOnce) {
  constexpr int kLinks = 600;
  Start();
  PeerRecorder client;
  const auto other = OpenOther();
  std::vector<std::shared_ptr<PeerLink>> links;
  while (links.size() < kLinks) {
    const auto link = other->Connect(options_.address, &client);
    // The kernel keeps a hundred for who has not accepted them yet.
    if (!link.ok()) {
      ASSERT_TRUE(absl::IsUnavailable(link.status())) << link.status();
      usleep(500);
      continue;
    }
    links.push_back(*link);
  }
  for (const auto& link : links) {
    ASSERT_TRUE(AwaitPeers([&] { return client.writable(link) > 0 || client.broken(link) > 0; }));
    ASSERT_EQ(client.broken(link), 0) << client.of(link).why;
  }
  port_.reset();
  EXPECT_EQ(server_.broken_links(), kLinks);
  ASSERT_TRUE(AwaitPeers([&] { return client.broken_links() == kLinks; }));
}

// Links that end while others send on them: nothing is used that is gone.
TEST_F(ShmPeersTest, LinksEndWhileThreadsSendOnThem) {
  Start();
  PeerRecorder client;
  const auto other = OpenOther();
  std::vector<std::shared_ptr<PeerLink>> links;  // so that none has the address of another
  for (int round = 0; round < 20; ++round) {
    const auto link = other->Connect(options_.address, &client);
    ASSERT_TRUE(link.ok()) << link.status();
    links.push_back(*link);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        for (int n = 0; (*link)->TrySend(std::string(512, 'x')) != PeerSend::kBroken; ++n) {
          if (i == 0 && n == 200) (*link)->Close();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(AwaitPeers([&] { return client.broken(*link) == 1; }));
  }
  ExpectPortIsWell();
}

}  // namespace
}  // namespace pando

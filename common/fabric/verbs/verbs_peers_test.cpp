// Links between compute servers over RDMA: the conformance suite, the secret, and peers that do not
// behave.
#include "common/fabric/verbs/verbs_peers.h"

#include <arpa/inet.h>

#include <thread>

#include "common/base/random.h"
#include "common/fabric/body.h"
#include "common/fabric/link/peer_hello.h"
#include "common/fabric/peer_process.h"
#include "common/fabric/shm/shm_test_helper.h"
#include "common/fabric/verbs/speaker_test_util.h"
#include "common/fabric/verbs/verbs_peer_room.h"
#include "common/fabric/verbs/verbs_test_cluster.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

class VerbsPeerCluster final : public ProcessPeerCluster {
 public:
  Fabric& fabric(int index) override { return memory_.fabric(index); }
  std::string FreeAddress() override {
    const auto server = ParseHostPort(memory_.server(1).location().address);
    return ListenTcp({server->host, "0"})->bound.ToString();
  }

  std::string StartEcho() override {
    const std::string address = FreeAddress();
    Echo(std::vector<std::string>{address}, "verbs_test_helper");
    return address;
  }

 private:
  EchoHandler handler_;
  VerbsTestCluster memory_{{.servers = 1, .fabrics = kFabrics}, {&handler_}};
};

std::shared_ptr<const ClusterSecret> PeerSecret(std::string_view bytes) {
  return std::make_shared<const ClusterSecret>(*ClusterSecret::FromBytes(bytes));
}

class VerbsPeersTest : public VerbsDeviceTest {
 protected:
  void Start(std::shared_ptr<const ClusterSecret> secret = nullptr) {
    device_ = *VerbsDevice::Open({});
    PeerOptions options;
    options.identity = {1, 7};
    options.acceptor = &server_;
    options.address = "127.0.0.1:0";
    options.hello_timeout_ms = 500;
    auto port = OpenVerbsPeers(device_, {.secret = std::move(secret)}, options);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
  }
  // Why a link of another port's ended, or what became of one.
  absl::Status Connect(std::shared_ptr<const ClusterSecret> secret) {
    PeerRecorder client;  // outlives the port
    PeerOptions options;
    options.identity = {2, 7};
    const auto other = OpenVerbsPeers(device_, {.secret = std::move(secret)}, options);
    EXPECT_TRUE(other.ok()) << other.status();
    const auto link = (*other)->Connect(port_->address(), &client);
    if (!link.ok()) return link.status();
    EXPECT_TRUE(AwaitPeers([&] { return client.writable(*link) > 0 || client.broken(*link) > 0; }));
    if (client.broken(*link) > 0) return client.of(*link).why;
    EXPECT_EQ((*link)->TrySend("well?"), PeerSend::kSent);
    const auto well = [&] {
      for (const auto& one : server_.accepted()) {
        if (one->other() == PeerIdentity{2, 7} && server_.messages(one) == 1) return true;
      }
      return false;
    };
    return AwaitPeers(well) ? absl::OkStatus() : absl::DeadlineExceededError("nothing came");
  }
  HostPort port() const { return *ParseHostPort(port_->address()); }
  static std::string Hello(bool proof = false) {
    PeerHello hello = MakePeerHello({3, 4});
    hello.compatible = proof ? kVerbsCompatibleProof : 0;
    return EncodeBody(hello);
  }

  std::shared_ptr<VerbsDevice> device_;
  PeerRecorder server_;
  std::unique_ptr<PeerPort> port_;
};

TEST_F(VerbsPeersTest, WhereThereIsASecretBothHaveToKnowIt) {
  Start(PeerSecret("sixteen bytes, or more"));
  EXPECT_TRUE(Connect(PeerSecret("sixteen bytes, or more")).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Connect(PeerSecret("sixteen others, or more"))));
  EXPECT_TRUE(absl::IsPermissionDenied(Connect(nullptr)));
  EXPECT_EQ(server_.accepted().size(), 1u);
  port_.reset();
  Start();
  EXPECT_TRUE(Connect(nullptr).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Connect(PeerSecret("sixteen bytes, or more"))));
}

TEST_F(VerbsPeersTest, NobodyGetsAQueuePairBeforeTheProof) {
  Start(PeerSecret("sixteen bytes, or more"));
  QueuePairAddress address = {.number = 1, .mtu_bytes = 1024, .responder_depth = 1};
  for (const bool claims : {false, true}) {
    Speaker mallory(port());
    mallory.Say(VerbsFrameType::kPeerHello, 0, Hello(claims));
    mallory.Say(VerbsFrameType::kPeerOpen, 0, EncodeBody(address));
    EXPECT_TRUE(absl::IsPermissionDenied(mallory.HearTheEnd())) << claims;
  }
  EXPECT_TRUE(server_.accepted().empty());
}

TEST_F(VerbsPeersTest, GarbageCostsItsSenderTheLinkAndNobodyElse) {
  Start();
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    Speaker mallory(port());
    if (i % 2 == 0) mallory.Say(VerbsFrameType::kPeerHello, 0, Hello());
    std::string junk(100 + random.Uniform(300), '\0');
    for (char& byte : junk) byte = static_cast<char>(random.Next());
    mallory.Say(junk);
    EXPECT_TRUE(absl::IsDataLoss(mallory.HearTheEnd()));
  }
  for (const auto type : {VerbsFrameType::kHello, VerbsFrameType::kPeerOpen,
                          VerbsFrameType::kPeerReady, VerbsFrameType::kError}) {
    Speaker mallory(port());
    mallory.Say(type, 0, "");
    EXPECT_TRUE(absl::IsDataLoss(mallory.HearTheEnd()));
  }
  PeerHello future = MakePeerHello({1, 1});
  future.incompatible = 8;
  Speaker newer(port());
  newer.Say(VerbsFrameType::kPeerHello, 0, EncodeBody(future));
  EXPECT_TRUE(absl::IsFailedPrecondition(newer.HearTheEnd()));
  EXPECT_TRUE(Connect(nullptr).ok());
}

TEST_F(VerbsPeersTest, WhoDoesNotGoOnIsClosed) {
  Start();
  Speaker silent(port()), halfway(port());
  halfway.Say(VerbsFrameType::kPeerHello, 0, Hello());
  EXPECT_TRUE(absl::IsUnavailable(silent.HearTheEnd()));
  EXPECT_TRUE(absl::IsUnavailable(halfway.HearTheEnd()));
  EXPECT_TRUE(Connect(nullptr).ok());
}

TEST_F(VerbsPeersTest, AnAddressThatNobodyHasGetsNoLink) {
  Start();
  Speaker mallory(port());
  mallory.Say(VerbsFrameType::kPeerHello, 0, Hello());
  QueuePairAddress impossible = {.number = 0, .mtu_bytes = 1024, .responder_depth = 1};
  mallory.Say(VerbsFrameType::kPeerOpen, 0, EncodeBody(impossible));
  EXPECT_TRUE(absl::IsDataLoss(mallory.HearTheEnd()));
  EXPECT_TRUE(server_.accepted().empty());
}

// A peer that has a queue pair, and sends what it likes.
class RawPeer {
 public:
  RawPeer(std::shared_ptr<VerbsDevice> device, const HostPort& port) : speaker_(port) {
    channel_.reset(ibv_create_comp_channel(device->context()));
    room_ = *PeerRoom::Create(device, channel_.get());
    PeerPlace place(room_);
    EXPECT_TRUE(room_->Provide().ok());
    QueuePair pair = *PeerPair::Make(*device, *room_);
    speaker_.Say(VerbsFrameType::kPeerHello, 0, EncodeBody(MakePeerHello({3, 4})));
    EXPECT_EQ(speaker_.Hear()->type, VerbsFrameType::kPeerHelloReply);
    speaker_.Say(VerbsFrameType::kPeerOpen, 0, EncodeBody(pair.address()));
    const auto reply = speaker_.Hear();
    EXPECT_EQ(reply->type, VerbsFrameType::kPeerOpenReply);
    const auto remote = ParseBody<QueuePairAddress>(reply->body, "address");
    pair_ = *PeerPair::Connect(*device, std::move(place), std::move(pair), *remote);
    speaker_.Say(VerbsFrameType::kPeerReady, 0, "");
  }
  PeerPair& pair() { return *pair_; }
  Speaker& speaker() { return speaker_; }

 private:
  Speaker speaker_;
  CompletionChannelHandle channel_;
  std::shared_ptr<PeerRoom> room_;
  std::unique_ptr<PeerPair> pair_;
};

TEST_F(VerbsPeersTest, WhatNoPeerSendsEndsTheLink) {
  Start();
  struct Case {
    const char* what;
    std::string message;
    uint32_t credit;
  };
  for (const Case& wrong : {Case{"credit for nothing", "x", 1}, Case{"much credit", "", UINT32_MAX},
                            Case{"nothing at all", "", 0}}) {
    SCOPED_TRACE(wrong.what);
    const size_t before = server_.accepted().size();
    RawPeer mallory(device_, port());
    ASSERT_EQ(mallory.pair().Post(0, "lawful", 0), 0);
    ASSERT_TRUE(AwaitPeers([&] {
      return server_.accepted().size() > before &&
             server_.messages(server_.accepted().at(before)) == 1;
    }));
    const auto link = server_.accepted().at(before);
    ASSERT_EQ(mallory.pair().Post(1, wrong.message, wrong.credit), 0);
    ASSERT_TRUE(AwaitPeers([&] { return server_.broken(link) == 1; }));
    EXPECT_TRUE(absl::IsDataLoss(server_.of(link).why)) << server_.of(link).why;
    EXPECT_EQ(server_.messages(link), 1u);
    EXPECT_FALSE(mallory.speaker().Hear().has_value()) << "its connection is closed";
  }
  EXPECT_TRUE(Connect(nullptr).ok());
}

// Frames after the link is open, and a peer that only goes.
TEST_F(VerbsPeersTest, TheControlConnectionEndsTheLink) {
  Start();
  {
    RawPeer talker(device_, port());
    ASSERT_TRUE(AwaitPeers([&] { return server_.accepted().size() == 1; }));
    talker.speaker().Say(VerbsFrameType::kPeerReady, 0, "");
    ASSERT_TRUE(AwaitPeers([&] { return server_.broken(server_.accepted().at(0)) == 1; }));
    EXPECT_TRUE(absl::IsDataLoss(server_.of(server_.accepted().at(0)).why));
  }
  RawPeer leaver(device_, port());
  ASSERT_TRUE(AwaitPeers([&] { return server_.accepted().size() == 2; }));
  leaver.speaker().Hush();
  ASSERT_TRUE(AwaitPeers([&] { return server_.broken(server_.accepted().at(1)) == 1; }));
  EXPECT_TRUE(absl::IsUnavailable(server_.of(server_.accepted().at(1)).why));
}

// More links than one room has places for, again and again: queue pairs and buffers come back.
TEST_F(VerbsPeersTest, RoomsFillAndEmpty) {
  constexpr int kLinks = PeerRoom::kLinksMax + 8;
  Start();
  PeerOptions options;
  options.identity = {2, 7};
  options.hello_timeout_ms = 20'000;
  for (int round = 0; round < 2; ++round) {
    PeerRecorder client;
    const auto other = *OpenVerbsPeers(device_, {}, options);
    std::vector<std::shared_ptr<PeerLink>> links;
    for (int i = 0; i < kLinks; ++i) {
      links.push_back(*other->Connect(port_->address(), &client));
      ASSERT_TRUE(
          AwaitPeers([&] { return client.writable(links[i]) > 0 || client.broken(links[i]) > 0; }));
      ASSERT_EQ(client.broken(links[i]), 0) << client.of(links[i]).why;
      ASSERT_EQ(links[i]->TrySend("hello"), PeerSend::kSent);
    }
    ASSERT_TRUE(AwaitPeers([&] {
      size_t count = 0;
      for (const auto& link : server_.accepted()) count += server_.messages(link);
      return count == static_cast<size_t>((round + 1) * kLinks);
    }));
  }
  ASSERT_TRUE(AwaitPeers([&] { return server_.broken_links() == 2 * kLinks; }));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Verbs, PeerConformance,
                         testing::Values(PeerBackend{
                             "verbs", [] { return std::make_unique<VerbsPeerCluster>(); },
                             WhyNoVerbs}),
                         PeerBackendName);

}  // namespace pando

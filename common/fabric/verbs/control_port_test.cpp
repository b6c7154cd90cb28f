// The control connections of a memory server over RDMA against clients that do not behave, with a
// lawful one at work beside them. The memory server is real, and so is TCP; queue pairs are none.
#include "common/fabric/verbs/control_port.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <thread>
#include <vector>

#include "common/base/bystander.h"
#include "common/base/log_hook.h"
#include "common/fabric/verbs/address_test_util.h"
#include "common/fabric/verbs/service_address.h"
#include "common/fabric/verbs/speaker_test_util.h"
#include "memory/test_support.h"

namespace pando {
namespace {

constexpr int64_t kResolveNs = kSecondNs;  // what the kernel takes where nobody answers

constexpr uint8_t kOurs = 1, kNobodys = 66;

// Nobody answers in network 66.
class FakeDevice : public QueuePairHost {
 public:
  class Pair : public ServedPair {
   public:
    Pair(const QueuePairAddress& address, std::atomic<int>* alive)
        : address_(address), alive_(alive) {
      ++*alive_;
    }
    ~Pair() override { --*alive_; }
    QueuePairAddress address() const override { return address_; }

   private:
    const QueuePairAddress address_;
    std::atomic<int>* const alive_;
  };
  ServedPairOr OpenQueuePair(const QueuePairAddress& remote) override {
    ++begun;
    if (remote.gid[10] == kNobodys) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kResolveNs));
      return absl::UnavailableError("a queue pair cannot find its peer (is the GID right?)");
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(slow_ns));
    return std::make_unique<Pair>(remote, &alive);
  }
  absl::Status AwaitQuiet() override { return absl::OkStatus(); }

  std::atomic<int> alive{0}, begun{0};
  std::atomic<int64_t> slow_ns{0};
};

// The memory server, with time that each call takes.
class SlowHandler : public ControlHandler {
 public:
  explicit SlowHandler(ControlHandler* server) : server_(server) {}
  std::string Handle(PeerId peer, std::string_view request) override {
    std::this_thread::sleep_for(std::chrono::nanoseconds(call_ns));
    return server_->Handle(peer, request);
  }
  bool IsKnown(PeerId peer) const override { return server_->IsKnown(peer); }
  void OnPeerGone(PeerId peer) override { server_->OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_->OnTimer(now_ns); }

  std::atomic<int64_t> call_ns{0};

 private:
  ControlHandler* const server_;
};

class ControlPortTest : public testing::Test, private PeerFence {
 protected:
  ~ControlPortTest() override { Finish(); }
  void Start(ControlPort::Options options, int64_t lease_ns = 0) {
    auto port = ControlPort::Listen(options, {"127.0.0.1", "0"}, &device_);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
    port_->Describe({.server_id = 1}, {.main_bytes = 4096, .packet_bytes = 1024});
    secret_ = options.secret;
    auto server =
        memory::MemoryServer::Create(memory_.memory(), {.lease_ns = lease_ns, .fence = this});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    handler_ = std::make_unique<SlowHandler>(server_.get());
    serving_ = std::thread([this] { EXPECT_TRUE(port_->Serve(handler_.get()).ok()); });
  }
  void Finish() {
    if (working_.joinable()) StopWork();
    if (!serving_.joinable()) return;
    port_->Stop();
    serving_.join();
  }
  bool CutOff(PeerId peer) override { return port_->CutOff(peer); }

  // A lawful client that connects, joins, has a queue pair, calls, and leaves: again and again from
  // its own host, with one client that stays.
  void StartWork(uint8_t host = 9) {
    work_is_over_ = false;
    rounds_ = 0;
    working_ = std::thread([this, host] {
      Begin();
      Speaker anna(port_->bound(), host);
      Timed(anna.Greet(secret_.get()), "greet");
      Timed(anna.Join().ok(), "join");
      Timed(anna.OpenPair(FakeAddress(kOurs, host)).ok(), "pair");
      while (!work_is_over_) {
        Begin();
        Timed(anna.Call(ControlOpcode::kPing).ok(), "ping");
        Speaker newcomer(port_->bound(), host);
        Timed(newcomer.Greet(secret_.get()), "newcomer's greeting");
        Timed(newcomer.Join().ok(), "newcomer's join");
        const auto pair = newcomer.OpenPair(FakeAddress(kOurs, host));
        Timed(pair.ok(), "newcomer's pair");
        if (pair.ok()) newcomer.ClosePair(*pair);
        Timed(newcomer.Call(ControlOpcode::kLeave).ok(), "newcomer's leave");
        ++rounds_;
      }
    });
    while (rounds_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // No operation failed, none took a second.
  void StopWork() {
    const int enough = rounds_ + 3;
    while (rounds_ < enough) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    work_is_over_ = true;
    working_.join();
    EXPECT_LT(slowest_ns_, bystander_.Bound(kSecondNs));
  }
  void Begin() { begun_ns_ = RealClock().NowNs(); }
  void Timed(bool ok, const char* what) {
    EXPECT_TRUE(ok) << what;
    const int64_t now_ns = RealClock().NowNs();
    slowest_ns_ = std::max(slowest_ns_, now_ns - begun_ns_);
    begun_ns_ = now_ns;
  }
  uint64_t Count(const std::string& name) {
    Speaker asker(port_->bound());
    EXPECT_TRUE(asker.Greet(secret_.get()));
    const auto counters = ParseCounters(*asker.Call(ControlOpcode::kStats));
    for (const auto& [counter, value] : *counters) {
      if (counter == name) return value;
    }
    return 0;
  }

  const Bystander bystander_;
  FakeDevice device_;
  memory::PlainMemory memory_;
  std::shared_ptr<const ClusterSecret> secret_;
  std::unique_ptr<ControlPort> port_;
  std::unique_ptr<memory::MemoryServer> server_;
  std::unique_ptr<SlowHandler> handler_;
  std::thread serving_, working_;
  std::atomic<bool> work_is_over_{false};
  std::atomic<int> rounds_{0};
  int64_t begun_ns_ = 0, slowest_ns_ = 0;  // the worker's
};

TEST_F(ControlPortTest, AddressesThatNobodyAnswersForHoldUpNobody) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  StartWork();
  std::vector<std::unique_ptr<Speaker>> hostile;
  for (int i = 0; i < 60; ++i) {
    hostile.push_back(std::make_unique<Speaker>(port_->bound()));
    ASSERT_TRUE(hostile.back()->Greet());
  }
  for (const int count : {20, 60}) {
    for (int i = 0; i < count; ++i) {
      hostile[static_cast<size_t>(i)]->AskForPair(FakeAddress(kNobodys, 100 * count + i));
    }
    // Also one whose address was never seen, in the middle of it: he needs a thread of the few, or
    // waits for one.
    const int64_t begun_ns = RealClock().NowNs();
    Speaker bert(port_->bound(), 20);
    EXPECT_TRUE(bert.Greet());
    EXPECT_TRUE(bert.Join().ok());
    EXPECT_LT(RealClock().NowNs() - begun_ns, bystander_.Bound(kSecondNs / 2))
        << "before his queue pair";
    EXPECT_TRUE(bert.OpenPair(FakeAddress(kOurs, count)).ok());
    EXPECT_LT(RealClock().NowNs() - begun_ns,
              bystander_.Bound(kSecondNs + (count > 20 ? kResolveNs : 0)))
        << "it is his turn next";
    for (int i = 0; i < count; ++i) {
      const std::optional<VerbsFrame> frame = hostile[static_cast<size_t>(i)]->Hear();
      ASSERT_TRUE(frame.has_value());
      EXPECT_EQ(frame->type, VerbsFrameType::kError);
    }
  }
  StopWork();
}

TEST_F(ControlPortTest, SilentConnectionsLockNobodyOutWithASecretToo) {
  const auto secret =
      std::make_shared<const ClusterSecret>(*ClusterSecret::FromBytes("sixteen bytes, or more"));
  ASSERT_NO_FATAL_FAILURE(Start(
      {.hello_timeout_ms = 60'000, .secret = secret, .strangers = {.max = 128, .origin_max = 64}}));
  for (const uint8_t host : {uint8_t{9}, uint8_t{1}}) {  // from another host, and from the same
    std::vector<std::unique_ptr<Speaker>> silent;
    for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Speaker>(port_->bound()));
    StartWork(host);
    // A newcomer of that host is pushed out by 64 that come after him.
    const int pause_ms = host == 1 ? 30 : 1;
    for (int i = 0; i < 600 / (pause_ms + 2); ++i) {
      silent[static_cast<size_t>(i)] = std::make_unique<Speaker>(port_->bound());
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
    StopWork();
  }
}

TEST_F(ControlPortTest, ASecretThatOneSideAloneHasIsRefusedAtOnce) {
  const auto secret =
      std::make_shared<const ClusterSecret>(*ClusterSecret::FromBytes("sixteen bytes, or more"));
  for (const bool server_has_one : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(
        Start({.hello_timeout_ms = 60'000, .secret = server_has_one ? secret : nullptr}));
    Speaker bert(port_->bound());
    bert.Say(VerbsFrameType::kHello, 0,
             EncodeBody<VerbsFeatures>({.compatible = server_has_one ? 0 : kVerbsCompatibleProof}));
    const std::optional<VerbsFrame> hello = bert.Hear(), refusal = bert.Hear();
    ASSERT_TRUE(hello.has_value() && refusal.has_value());
    EXPECT_EQ(hello->type, VerbsFrameType::kHelloReply);
    ASSERT_EQ(refusal->type, VerbsFrameType::kError);
    EXPECT_TRUE(absl::IsPermissionDenied(ParseStatus(refusal->body)));
    EXPECT_FALSE(bert.Hear().has_value());
    Finish();
  }
}

TEST_F(ControlPortTest, IdlersTakeNoClientsPlaceAndEndWithTheirTime) {
  ASSERT_NO_FATAL_FAILURE(Start({.connections_max = 8, .identity_timeout_ms = 1'500}));
  StartWork();
  std::vector<std::unique_ptr<Speaker>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<Speaker>(port_->bound()));
    ASSERT_TRUE(idle.back()->Greet());
    if (i > 0) continue;
    EXPECT_TRUE(idle[0]->Call(ControlOpcode::kPing).ok()) << "to talk is not to have an identity";
    for (int pair = 0; pair < 4; ++pair) {
      EXPECT_TRUE(idle[0]->OpenPair(FakeAddress(kOurs, pair)).ok());
    }
    EXPECT_TRUE(absl::IsResourceExhausted(idle[0]->OpenPair(FakeAddress(kOurs, 5)).status()));
  }
  for (const auto& speaker : idle) {
    EXPECT_TRUE(absl::IsUnavailable(speaker->HearTheEnd()));
  }
  StopWork();
  // A client that has left, or was cut off, is idle as well.
  Speaker bert(port_->bound());
  ASSERT_TRUE(bert.Greet() && bert.Join().ok() && bert.Call(ControlOpcode::kLeave).ok());
  EXPECT_TRUE(absl::IsUnavailable(bert.HearTheEnd()));
}

TEST_F(ControlPortTest, WhoIsCutOffIsToldAndThenEnds) {
  ASSERT_NO_FATAL_FAILURE(Start({.identity_timeout_ms = 600}, 400 * kMillisecondNs));
  Speaker anna(port_->bound());
  ASSERT_TRUE(anna.Greet() && anna.Join().ok());
  ASSERT_TRUE(anna.OpenPair(FakeAddress(kOurs, 1)).ok());
  while (device_.alive != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(anna.Call(ControlOpcode::kPing).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(anna.OpenPair(FakeAddress(kOurs, 1)).status()));
  EXPECT_TRUE(absl::IsUnavailable(anna.HearTheEnd()));
  EXPECT_EQ(Count("clients_dead"), 1u);
}

TEST_F(ControlPortTest, GarbageFillsNoLogAndHoldsUpNobody) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  StartWork();
  std::atomic<int64_t> lines{0};
  SetLogHook([&](const LogLine&) { ++lines; });
  const int64_t begun_ns = RealClock().NowNs();
  const std::string hello =
      EncodeVerbsFrame(VerbsFrameType::kHello, 0, EncodeBody<VerbsFeatures>({}));
  for (int i = 0; i < 1'500; ++i) {
    Speaker hostile(port_->bound());
    switch (i % 4) {
      case 0:
        hostile.Say("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n");
        break;
      case 1:
        hostile.Say(hello + hello);
        break;
      case 2:
        hostile.Say(hello + EncodeVerbsFrame(VerbsFrameType::kOpen, 1, EncodeBody<VerbsOpen>({})));
        break;
      case 3:
        break;  // gone at once
    }
    if (i % 4 != 3) {
      EXPECT_FALSE(hostile.HearTheEnd().ok());
    }
  }
  StopWork();
  SetLogHook({});
  const int64_t seconds = 1 + (RealClock().NowNs() - begun_ns) / kSecondNs;
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines, 12 * (1 + seconds));
}

// Several seconds of them are there at once.
TEST_F(ControlPortTest, CallsBehindOneAnotherHoldUpNobody) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  constexpr int kCalls = 2'000;
  Speaker hostile(port_->bound());
  ASSERT_TRUE(hostile.Greet());
  std::string calls;
  for (uint32_t sequence = 1; sequence <= kCalls; ++sequence) {
    ControlHeader header;
    header.opcode = static_cast<uint16_t>(ControlOpcode::kPing);
    header.sequence = sequence;
    calls += EncodeVerbsFrame(VerbsFrameType::kCall, sequence, EncodeMessage(header, ""));
  }
  handler_->call_ns = 2 * kMillisecondNs;
  Begin();
  hostile.Say(calls);
  Speaker anna(port_->bound());
  Timed(anna.Greet(), "greet");
  Timed(anna.Call(ControlOpcode::kPing).ok(), "ping");
  EXPECT_LT(slowest_ns_, bystander_.Bound(kSecondNs));
  handler_->call_ns = 0;
  for (uint32_t sequence = 1; sequence <= kCalls; ++sequence) {
    const std::optional<VerbsFrame> frame = hostile.Hear();
    ASSERT_TRUE(frame.has_value());
    ASSERT_EQ(frame->sequence, sequence);
  }
}

TEST_F(ControlPortTest, WhoEndsWhileHisQueuePairIsConnectedIsGoneAfterIt) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  device_.slow_ns = 300 * kMillisecondNs;
  {
    Speaker anna(port_->bound());
    ASSERT_TRUE(anna.Greet() && anna.Join().ok());
    anna.AskForPair(FakeAddress(kOurs, 1));
    ASSERT_TRUE(anna.Call(ControlOpcode::kPing).ok()) << "calls are answered meanwhile";
    // One that has not begun would not be waited for.
    while (device_.begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    anna.AskForPair(FakeAddress(kOurs, 1));  // and this one waits
  }
  // Not yet: something of the one that is being made could be in flight.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(Count("deaths"), 0u);
  while (Count("deaths") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(port_->queue_pairs(), 0u);
  EXPECT_EQ(device_.alive, 0);
}

// Of his attempts those remain that have begun: he takes no queue pairs from others, and his end is
// reported without them. With one processor the server may take in 16 newcomers one after the other
// before it looks whose end has come, so that three times as many count besides.
TEST_F(ControlPortTest, WhoAsksAndGoesLeavesNothingBehind) {
  ASSERT_NO_FATAL_FAILURE(Start({.endpoints_max = QueuePairOpener::kThreadsMax + 3 * 16 + 16}));
  StartWork();
  constexpr int kHostile = 300;
  for (int i = 0; i < kHostile; ++i) {
    Speaker hostile(port_->bound());
    ASSERT_TRUE(hostile.Greet());
    hostile.AskForPair(FakeAddress(kNobodys, i));
    ASSERT_TRUE(hostile.Call(ControlOpcode::kPing).ok());
    hostile.AskForPair(FakeAddress(kNobodys, kHostile + 1 + i));  // nothing is read any more
  }
  {
    Speaker bert(port_->bound());  // from the host of the hostile ones
    ASSERT_TRUE(bert.Greet() && bert.Join().ok());
    bert.AskForPair(FakeAddress(kOurs, 3));
    bert.AskForPair(FakeAddress(kNobodys, kHostile));
  }
  const int64_t begun_ns = RealClock().NowNs();
  while (Count("deaths") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LT(RealClock().NowNs() - begun_ns, bystander_.Bound(2 * kResolveNs));
  StopWork();
  EXPECT_LE(port_->queue_pairs(), QueuePairOpener::kThreadsMax + 1u);
}

// What is published leads other hosts here.
TEST_F(ControlPortTest, EveryAddressIsNoneToPublish) {
  GidFacts ipv4 = {.type = GidType::kRoceV2};
  ipv4.gid[10] = ipv4.gid[11] = 0xff;
  ipv4.gid[12] = 10, ipv4.gid[13] = 77, ipv4.gid[15] = 1;
  const GidFacts other = {.gid = {0xfe, 0x80}};
  std::array<char, HOST_NAME_MAX + 1> name = {};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  for (const char* every : {":0", "0.0.0.0:0", "0:0", "[::]:0"}) {
    const auto wanted = AddressToListenAt(every, ipv4);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const auto port = ControlPort::Listen({}, *wanted, &device_);
    if (!port.ok() && wanted->host == "::") continue;  // a host without IPv6
    ASSERT_TRUE(port.ok()) << port.status();
    const HostPort& bound = (*port)->bound();
    EXPECT_EQ(AddressToPublish(bound, ipv4).ToString(), "10.77.0.1:" + bound.port) << every;
    EXPECT_EQ(AddressToPublish(bound, other).ToString(), name.data() + (":" + bound.port)) << every;
  }
  // What is one address of this host's is published as it was given.
  EXPECT_EQ(AddressToPublish({"localhost", "7"}, ipv4).ToString(), "localhost:7");
  EXPECT_EQ(AddressToListenAt("localhost:7", ipv4)->ToString(), "localhost:7");
  EXPECT_EQ(AddressToListenAt("", ipv4)->ToString(), "10.77.0.1:0");
  EXPECT_EQ(AddressToListenAt("", other)->ToString(), ":0");
  EXPECT_TRUE(absl::IsInvalidArgument(AddressToListenAt("nowhere", ipv4).status()));
}

TEST_F(ControlPortTest, RequestsBehindOneAnotherAreAnsweredInOrder) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  Speaker anna(port_->bound());
  ASSERT_TRUE(anna.Greet() && anna.Join().ok());
  device_.slow_ns = 50 * kMillisecondNs;
  for (int i = 0; i < 5; ++i) anna.AskForPair(FakeAddress(kOurs, 1));
  uint32_t last = 0;
  for (int i = 0; i < 5; ++i) {
    const std::optional<VerbsFrame> frame = anna.Hear();
    ASSERT_TRUE(frame.has_value());
    ASSERT_EQ(frame->type, VerbsFrameType::kOpenReply);
    EXPECT_GT(frame->sequence, last);
    last = frame->sequence;
  }
  EXPECT_EQ(port_->queue_pairs(), 5u);
  Finish();
  EXPECT_EQ(device_.alive, 0);
}

}  // namespace
}  // namespace pando

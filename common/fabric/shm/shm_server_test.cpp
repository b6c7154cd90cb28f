// The memory server against clients that do not behave, and its start and stop.
#include "common/fabric/shm/shm_server.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/bystander.h"
#include "common/base/clock.h"
#include "common/base/log_hook.h"
#include "common/base/random.h"
#include "common/fabric/body.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/shm_test_helper.h"
#include "common/fabric/shm/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ShmServerTest : public testing::Test {
 protected:
  ShmServerTest() {
    options_.socket_path = directory_.path() + "/socket";
    options_.main_bytes = 1 << 20;
    options_.endpoints_max = 4;
    options_.connections_max = 8;
    options_.hello_timeout_ms = 300;
  }
  void Start() { thread_ = std::make_unique<ShmServerThread>(options_, &handler_); }

  // A client that says only what the test says.
  UniqueFd Dial() {
    auto socket = ConnectTo(options_.socket_path, RealClock().NowNs() + kSecondNs);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return socket.ok() ? *std::move(socket) : UniqueFd();
  }
  // What the server answers; nothing: it has closed the connection.
  std::optional<std::string> Hear(const UniqueFd& socket) {
    EXPECT_TRUE(WaitReadable(socket.get(), RealClock().NowNs() + 10 * kSecondNs));
    std::vector<std::byte> buffer(kShmFrameBytesMax);
    size_t bytes = 0;
    if (ReceiveMessage(socket.get(), buffer, &bytes) != ReceiveResult::kMessage) return {};
    return std::string(reinterpret_cast<const char*>(buffer.data()), bytes);
  }
  UniqueFd DialAndGreet() {
    UniqueFd socket = Dial();
    SendMessage(socket.get(), EncodeShmFrame(ShmFrameType::kHello, 0, {}));
    EXPECT_TRUE(Hear(socket).has_value());
    return socket;
  }
  // The connection is closed, after at most one error that says why.
  absl::Status HearRefusal(const UniqueFd& socket) {
    const std::optional<std::string> answer = Hear(socket);
    if (!answer.has_value()) return absl::CancelledError("closed");
    const auto frame = ParseShmFrame(*answer);
    EXPECT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(frame->type, ShmFrameType::kError);
    EXPECT_FALSE(Hear(socket).has_value());
    return ParseStatus(frame->body);
  }

  // A client like any other finds the server well.
  void ExpectServerIsWell() {
    auto fabric = ConnectShm({{1, options_.socket_path}});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    auto endpoint = (*fabric)->Connect(1, 1);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(Work(endpoint->get()), "echo:well?");
  }
  // A verb and a call; the reply.
  static std::string Work(Endpoint* endpoint) {
    Chain chain(1);
    chain.FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(&chain);
    EXPECT_TRUE(chain.ok()) << chain.status();
    PendingCall call;
    call.server = 1;
    call.request = "well?";
    call.deadline_ns = RealClock().NowNs() + 10 * kSecondNs;
    endpoint->Call(&call);
    while (!call.done) {
      endpoint->Wait(call.deadline_ns);
      endpoint->Poll();
    }
    EXPECT_TRUE(call.status.ok()) << call.status;
    return call.reply;
  }

  const Bystander bystander_;
  TemporaryDirectory directory_;
  ShmServerOptions options_;
  EchoHandler handler_;
  std::unique_ptr<ShmServerThread> thread_;
};

TEST_F(ShmServerTest, OptionsAreChecked) {
  const auto code = [](ShmServerOptions options) {
    return ShmServer::Create(options).status().code();
  };
  auto bad = options_;
  bad.main_bytes = 100;
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = options_;
  bad.connections_max = 0;
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = options_;
  bad.socket_path = "";
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad.socket_path = directory_.path() + "/no/such/directory";
  EXPECT_EQ(code(bad), absl::StatusCode::kNotFound);
  bad.socket_path = directory_.path() + "/" + std::string(100, 'x');
  const auto server = ShmServer::Create(bad);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), AllOf(HasSubstr("107"), HasSubstr("xxx")));
}

TEST_F(ShmServerTest, TheSocketIsTheOwnersOnly) {
  Start();
  struct stat file;
  ASSERT_EQ(stat(options_.socket_path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  thread_.reset();
  EXPECT_NE(stat(options_.socket_path.c_str(), &file), 0) << "removed";
}

TEST_F(ShmServerTest, ASocketHasOneServer) {
  Start();
  EXPECT_EQ(ShmServer::Create(options_).status().code(), absl::StatusCode::kAlreadyExists);
  ExpectServerIsWell();
}

TEST_F(ShmServerTest, ADeadServersSocketIsReplacedAndNothingElseIs) {
  { auto dead = ListenAt(options_.socket_path); }  // the file stays
  Start();
  ExpectServerIsWell();
  thread_.reset();
  std::ofstream(options_.socket_path) << "somebody's file";
  EXPECT_EQ(ShmServer::Create(options_).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(options_.socket_path), 15u);
}

TEST_F(ShmServerTest, StartsStopsAndStartsAgain) {
  for (int i = 0; i < 3; ++i) {
    Start();
    ExpectServerIsWell();
    thread_.reset();
  }
}

TEST_F(ShmServerTest, ServesOnce) {
  auto server = ShmServer::Create(options_);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Stop();  // before it serves: it does not even begin
  EXPECT_TRUE((*server)->Serve(&handler_).ok());
  EXPECT_EQ((*server)->Serve(&handler_).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShmServerTest, AServerThatNeverServedLeavesNothing) {
  { auto server = ShmServer::Create(options_); }
  EXPECT_FALSE(std::filesystem::exists(options_.socket_path));
}

TEST_F(ShmServerTest, OtherVersionsAreToldBoth) {
  Start();
  const UniqueFd socket = Dial();
  std::string hello = EncodeShmFrame(ShmFrameType::kHello, 0, {});
  hello[4] = 42;
  SendMessage(socket.get(), hello);
  const absl::Status refusal = HearRefusal(socket);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("version 42"), HasSubstr("version 1")));
  ExpectServerIsWell();
}

TEST_F(ShmServerTest, JunkClosesOnlyItsConnection) {
  Start();
  auto good = ConnectShm({{1, options_.socket_path}});
  ASSERT_TRUE(good.ok()) << good.status();
  auto endpoint = *(*good)->Connect(1, 1);
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    const UniqueFd socket = i % 2 == 0 ? Dial() : DialAndGreet();
    std::string junk(1 + random.Uniform(i % 10 == 0 ? kShmFrameBytesMax : 200), '\0');
    for (char& c : junk) c = static_cast<char>(random.Next());
    if (i % 3 == 0) junk.replace(0, 6, EncodeShmFrame(ShmFrameType::kHello, 0, {}), 0, 6);
    ASSERT_EQ(SendMessage(socket.get(), junk), SendResult::kSent);
    EXPECT_FALSE(HearRefusal(socket).ok());
  }
  EXPECT_TRUE(thread_->server().memory().main.size() == options_.main_bytes);
  Chain chain(1);
  chain.FetchAdd(MemorySpace::kMain, 0, 1);
  endpoint->Post(&chain);
  EXPECT_TRUE(chain.ok()) << chain.status();
  endpoint.reset();
  good->reset();
  ExpectServerIsWell();
}

TEST_F(ShmServerTest, FramesOutOfOrderCloseTheConnection) {
  Start();
  const auto refused = [this](bool greet, ShmFrameType type, std::string_view body) {
    const UniqueFd socket = greet ? DialAndGreet() : Dial();
    SendMessage(socket.get(), EncodeShmFrame(type, 1, body));
    return HearRefusal(socket);
  };
  EXPECT_EQ(refused(false, ShmFrameType::kCall, "x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused(false, ShmFrameType::kOpenSlot, EncodeShmOpenSlot({1, 1})).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused(true, ShmFrameType::kHello, "").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused(true, ShmFrameType::kHelloReply, "").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused(true, ShmFrameType::kOpenSlot, "short").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused(true, ShmFrameType::kCloseSlot, "").code(), absl::StatusCode::kDataLoss);
  // Nobody's slot, or another's.
  auto fabric = ConnectShm({{1, options_.socket_path}});
  auto endpoint = *(*fabric)->Connect(1, 1);
  for (const uint32_t slot : {0u, 1u, 4u, UINT32_MAX}) {
    EXPECT_EQ(refused(true, ShmFrameType::kCloseSlot, EncodeShmSlot(slot)).code(),
              absl::StatusCode::kPermissionDenied);
  }
  endpoint.reset();
  fabric->reset();
  ExpectServerIsWell();
  EXPECT_EQ(handler_.callers().size(), 1u);
}

TEST_F(ShmServerTest, OverlongMessagesCloseTheConnection) {
  Start();
  const UniqueFd socket = DialAndGreet();
  ASSERT_EQ(SendMessage(socket.get(), std::string(kShmFrameBytesMax + 1, 'x')), SendResult::kSent);
  EXPECT_EQ(HearRefusal(socket).code(), absl::StatusCode::kDataLoss);
  ExpectServerIsWell();
}

// The server closes while more of the client's messages lie unread: the reason still arrives.
TEST_F(ShmServerTest, TheReasonArrivesWhateverElseWasSent) {
  Start();
  for (int i = 0; i < 50; ++i) {
    const UniqueFd socket = Dial();
    std::string hello = EncodeShmFrame(ShmFrameType::kHello, 0, {});
    hello[4] = 42;
    for (int n = 0; n < 20; ++n) SendMessage(socket.get(), hello);
    EXPECT_EQ(HearRefusal(socket).code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_F(ShmServerTest, SilentConnectionsAreClosed) {
  Start();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(Dial());
  const int64_t start_ns = RealClock().NowNs();
  ExpectServerIsWell();  // they hold nobody up
  for (const UniqueFd& socket : silent) {
    EXPECT_EQ(HearRefusal(socket).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_LT(RealClock().NowNs() - start_ns, bystander_.Bound(10 * kSecondNs));
}

// Of one process, over and over: the oldest go, and a newcomer always gets in.
TEST_F(ShmServerTest, SilentConnectionsKeepNobodyOut) {
  options_.hello_timeout_ms = 60'000;
  Start();
  std::vector<UniqueFd> silent;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 150; ++i) silent.push_back(Dial());
    const int64_t begun_ns = RealClock().NowNs();
    ExpectServerIsWell();
    EXPECT_LT(RealClock().NowNs() - begun_ns, bystander_.Bound(kSecondNs));
  }
  EXPECT_EQ(HearRefusal(silent.front()).code(), absl::StatusCode::kUnavailable);
}

// Nobody is known to this one but who has called.
class AskingHandler : public EchoHandler {
 public:
  bool IsKnown(PeerId peer) const override { return callers().contains(peer); }
};

TEST_F(ShmServerTest, IdlersEndWithTheirTimeAndTakeNoClientsPlace) {
  AskingHandler handler;
  options_.identity_timeout_ms = 500;
  ShmServerThread thread(options_, &handler);
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 60; ++i) idle.push_back(DialAndGreet());
  const int64_t begun_ns = RealClock().NowNs();
  ExpectServerIsWell();
  EXPECT_LT(RealClock().NowNs() - begun_ns, bystander_.Bound(kSecondNs));
  // More endpoints than it takes to join are not theirs.
  int slots = 0;
  for (bool refused = false; !refused; ++slots) {
    SendMessage(idle[0].get(), EncodeShmFrame(ShmFrameType::kOpenSlot, 1, EncodeShmOpenSlot({})));
    const auto frame = Hear(idle[0]);
    ASSERT_TRUE(frame.has_value());
    refused = ParseShmFrame(*frame)->type == ShmFrameType::kError;
  }
  EXPECT_LE(slots, 5);
  for (const UniqueFd& socket : idle) {
    EXPECT_EQ(HearRefusal(socket).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_LT(RealClock().NowNs() - begun_ns, bystander_.Bound(5 * kSecondNs));
}

TEST_F(ShmServerTest, GarbageFillsNoLog) {
  Start();
  std::atomic<int> lines{0};
  SetLogHook([&](const LogLine&) { ++lines; });
  const int64_t begun_ns = RealClock().NowNs();
  for (int i = 0; i < 2'000; ++i) {
    const UniqueFd socket = Dial();
    SendMessage(socket.get(), "garbage");
    EXPECT_FALSE(HearRefusal(socket).ok());
  }
  ExpectServerIsWell();
  SetLogHook({});
  EXPECT_LE(lines, 5 * (2 + (RealClock().NowNs() - begun_ns) / kSecondNs));
  EXPECT_GT(lines, 0);
}

TEST_F(ShmServerTest, DescriptorsNobodyAskedForAreClosed) {
  Start();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  UniqueFd reader(pipe_ends[0]), writer(pipe_ends[1]);
  const UniqueFd socket = Dial();
  SendMessage(socket.get(), EncodeShmFrame(ShmFrameType::kHello, 0, {}), writer.get());
  EXPECT_TRUE(Hear(socket).has_value());
  writer.Reset();
  // With the server's copy closed, too, the pipe is at its end.
  EXPECT_TRUE(WaitReadable(reader.get(), RealClock().NowNs() + 10 * kSecondNs));
  char byte;
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);
}

TEST_F(ShmServerTest, ConnectionsAreBounded) {
  Start();
  std::vector<UniqueFd> sockets;
  for (uint32_t i = 0; i < options_.connections_max; ++i) sockets.push_back(DialAndGreet());
  const UniqueFd one_more = Dial();
  SendMessage(one_more.get(), EncodeShmFrame(ShmFrameType::kHello, 0, {}));
  const absl::Status refusal = HearRefusal(one_more);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("8 clients"), HasSubstr("--connections_max")));
  sockets.clear();
  // Room again, as soon as the server has noticed.
  for (int i = 0; i < 1000 && handler_.gone().size() < options_.connections_max; ++i)
    usleep(10'000);
  ExpectServerIsWell();
}

// The server is another process, with 40 descriptors; each client takes two of them.
TEST_F(ShmServerTest, WithoutDescriptorsNewcomersAreToldWhichLimitAndOthersWorkOn) {
  const HelperProcess server({"serve", options_.socket_path, "40"});
  ASSERT_TRUE(server.ready());
  auto lawful = ConnectShm({{1, options_.socket_path}});
  ASSERT_TRUE(lawful.ok()) << lawful.status();
  auto endpoint = *(*lawful)->Connect(1, 1);
  const auto expect_lawful_is_well = [&] {
    const int64_t start_ns = RealClock().NowNs();
    EXPECT_EQ(Work(endpoint.get()), "well?");
    EXPECT_LT(RealClock().NowNs() - start_ns, bystander_.Bound(kSecondNs));
  };
  const std::string hello = EncodeShmFrame(ShmFrameType::kHello, 0, {});
  std::vector<UniqueFd> clients;
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    UniqueFd socket = Dial();
    SendMessage(socket.get(), hello);
    const int64_t start_ns = RealClock().NowNs();
    const std::optional<std::string> answer = Hear(socket);
    ASSERT_TRUE(answer.has_value());
    EXPECT_LT(RealClock().NowNs() - start_ns, bystander_.Bound(kSecondNs))
        << "nobody is left waiting";
    const auto frame = ParseShmFrame(*answer);
    ASSERT_TRUE(frame.ok()) << frame.status();
    if (frame->type == ShmFrameType::kHelloReply) {
      clients.push_back(std::move(socket));
    } else {
      const absl::Status why = ParseStatus(frame->body);
      EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(why.message()),
                  AllOf(HasSubstr("RLIMIT_NOFILE is 40"), HasSubstr("LimitNOFILE")));
      ++refused;
    }
    expect_lawful_is_well();
  }
  EXPECT_GE(clients.size(), 10u);
  EXPECT_GE(refused, 40);
  // One leaves, one comes.
  clients.pop_back();
  bool let_in = false;
  for (int i = 0; i < 1000 && !let_in; ++i, usleep(10'000)) {
    let_in = ConnectShm({{1, options_.socket_path}}).ok();
  }
  EXPECT_TRUE(let_in);
  expect_lawful_is_well();
}

TEST_F(ShmServerTest, ClientsThatReadNoRepliesHoldUpNobody) {
  Start();
  const UniqueFd greedy = DialAndGreet();
  const std::string call = EncodeShmFrame(ShmFrameType::kCall, 1, std::string(50'000, 'x'));
  // Until neither the server's replies nor further requests fit anywhere.
  for (int full = 0; full < 20;) {
    const SendResult sent = SendMessage(greedy.get(), call);
    ASSERT_NE(sent, SendResult::kGone);
    full = sent == SendResult::kFull ? full + 1 : 0;
    if (sent == SendResult::kFull) usleep(5'000);
  }
  ExpectServerIsWell();
  // It gets everything once it listens.
  int replies = 0;
  while (WaitReadable(greedy.get(), RealClock().NowNs() + 200 * kMillisecondNs)) {
    ASSERT_TRUE(Hear(greedy).has_value());
    ++replies;
  }
  EXPECT_GE(replies, 4);
}

TEST_F(ShmServerTest, EndpointsAreBoundedAndGivenBack) {
  Start();
  auto fabric = ConnectShm({{1, options_.socket_path}});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    for (uint32_t i = 0; i < options_.endpoints_max; ++i) {
      auto endpoint = (*fabric)->Connect(1, 1);
      ASSERT_TRUE(endpoint.ok()) << endpoint.status();
      endpoints.push_back(*std::move(endpoint));
    }
    const auto one_more = (*fabric)->Connect(1, 1);
    EXPECT_EQ(one_more.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(one_more.status().message()),
                AllOf(HasSubstr("server 1"), HasSubstr("all 4"), HasSubstr("--endpoints_max")));
  }
}

TEST_F(ShmServerTest, RepliesThatAreTooLongAreErrors) {
  class Babbler : public ControlHandler {
   public:
    std::string Handle(PeerId, std::string_view) override { return std::string(1 << 20, 'x'); }
    void OnPeerGone(PeerId) override {}
  } babbler;
  ShmServerThread thread(options_, &babbler);
  auto fabric = ConnectShm({{1, options_.socket_path}});
  auto endpoint = *(*fabric)->Connect(1, 1);
  PendingCall call;
  call.server = 1;
  endpoint->Call(&call);
  while (!call.done) {
    endpoint->Wait(kNeverNs);
    endpoint->Poll();
  }
  EXPECT_EQ(call.status.code(), absl::StatusCode::kInternal) << call.status;
}

}  // namespace
}  // namespace pando

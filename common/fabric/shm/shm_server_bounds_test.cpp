// The memory server's bounds: silent and idle connections, descriptors, endpoints, log and replies.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/bystander.h"
#include "common/base/clock.h"
#include "common/base/log_hook.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_server_test_util.h"
#include "common/fabric/shm/shm_test_helper.h"
#include "common/fabric/shm/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
  for (const UniqueFd& socket : idle) {
    EXPECT_EQ(HearRefusal(socket).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_LT(RealClock().NowNs() - begun_ns, bystander_.Bound(5 * kSecondNs));
}

// Its connections that have ended keep their endpoints for as long as it lives, and there are more
// of them than places of clients.
TEST_F(ShmServerTest, OneProcessThatNeverJoinsLocksNobodyOut) {
  AskingHandler handler;
  options_.endpoints_max = 64;  // 16 for one process
  ShmServerThread thread(options_, &handler);
  auto lawful = *ConnectShm({{1, options_.socket_path}});
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int i = 0; i < 10; ++i) {
    endpoints.push_back(*lawful->Connect(1, 1));
    if (i > 0) continue;
    EXPECT_EQ(Work(endpoints[0].get()), "echo:well?");
  }
  int slots = 0;
  for (absl::Status refusal; refusal.ok() && slots < 70;) {
    const UniqueFd socket = DialAndGreet();
    SendMessage(socket.get(), EncodeShmFrame(ShmFrameType::kOpenSlot, 1, EncodeShmOpenSlot({})));
    const auto answer = Hear(socket);
    if (!answer.has_value()) break;
    const auto frame = ParseShmFrame(*answer);
    ASSERT_TRUE(frame.ok()) << frame.status();
    if (frame->type == ShmFrameType::kSlotReply) {
      ++slots;
      continue;
    }
    refusal = ParseStatus(frame->body);
    EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("16 endpoints without an identity"));
  }
  EXPECT_EQ(slots, 16);
  EXPECT_TRUE(lawful->Connect(1, 1).ok()) << "who has joined is not concerned";
  EXPECT_TRUE(HelperProcess({"hold", options_.socket_path}).ready()) << "nor are others";
}

// It is introduced there over one of them, and afterwards.
TEST_F(ShmServerTest, AClientComesToAServersNextLifeWithAllItsEndpoints) {
  options_.endpoints_max = 64;
  AskingHandler handler, next;
  auto thread = std::make_unique<ShmServerThread>(options_, &handler);
  auto fabric = *ConnectShm({{1, options_.socket_path}});
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int i = 0; i < 12; ++i) {
    endpoints.push_back(*fabric->Connect(1, 1));
    if (i > 0) continue;
    EXPECT_EQ(Work(endpoints[0].get()), "echo:well?");
  }
  thread.reset();
  for (int i = 0; i < 2'000 && fabric->IsConnected(1); ++i) usleep(1'000);
  thread = std::make_unique<ShmServerThread>(options_, &next);
  const auto added = fabric->AddServer({1, options_.socket_path});
  EXPECT_TRUE(added.ok()) << added.status();
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

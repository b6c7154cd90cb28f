// The memory server against clients that do not behave, and its start and stop.
// shm_server_bounds_test.cpp has those that are too many, too slow or too silent.
#include "common/fabric/shm/shm_server.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_server_test_util.h"
#include "common/fabric/shm/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
  ExpectOwnersOnly(options_.socket_path);
  thread_.reset();
  EXPECT_FALSE(std::filesystem::exists(options_.socket_path));
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

}  // namespace
}  // namespace pando

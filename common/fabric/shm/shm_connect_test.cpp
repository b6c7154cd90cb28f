// The client side: connecting to servers that are not there, silent or bad.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/fabric/body.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Answers the first client's hello with whatever the test says, then keeps the connection for a
// while.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(int socket)> answer) {
    path_ = directory_.path() + "/socket";
    listener_ = std::move(ListenAt(path_)->socket);
    thread_ = std::thread([this, answer = std::move(answer)] {
      if (!WaitReadable(listener_.get(), RealClock().NowNs() + 10 * kSecondNs)) return;
      UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
      std::vector<std::byte> hello(kShmFrameBytesMax);
      size_t bytes = 0;
      WaitReadable(socket.get(), RealClock().NowNs() + 10 * kSecondNs);
      ReceiveMessage(socket.get(), hello, &bytes);
      answer(socket.get());
      WaitReadable(socket.get(), RealClock().NowNs() + 10 * kSecondNs);  // until the client leaves
    });
  }
  ~FakeServer() { thread_.join(); }
  absl::Status Connect(ServerId id = 1) { return Fabric(id, 300).status(); }
  absl::StatusOr<std::shared_ptr<pando::Fabric>> Fabric(ServerId id, int64_t timeout_ms) {
    return ConnectShm({{id, path_}}, {.connect_timeout_ms = timeout_ms});
  }

 private:
  TemporaryDirectory directory_;
  std::string path_;
  UniqueFd listener_;
  std::thread thread_;
};

ShmGeometry SmallGeometry() { return *ShmGeometry::Create(1 << 20, 4096, 1024, 4); }

UniqueFd Memory(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("fake", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_TRUE(seals == 0 || fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

std::string HelloReply(ServerId id) {
  return EncodeShmFrame(ShmFrameType::kHelloReply, 0, EncodeShmHelloReply({id, SmallGeometry()}));
}

TEST(ShmConnect, NobodyThere) {
  TemporaryDirectory directory;
  const auto fabric = ConnectShm({{4, directory.path() + "/nobody"}}, {.connect_timeout_ms = 50});
  EXPECT_EQ(fabric.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(fabric.status().message()),
              AllOf(HasSubstr("server 4"), HasSubstr("/nobody")));
  { auto dead = ListenAt(directory.path() + "/dead"); }
  EXPECT_EQ(ConnectShm({{4, directory.path() + "/dead"}}).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(ConnectShm({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ConnectShm({{1, directory.path() + std::string(200, 'x')}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShmConnect, AServerThatDoesNotAnswerIsUnavailable) {
  FakeServer server([](int) {});
  const int64_t start_ns = RealClock().NowNs();
  const absl::Status status = server.Connect();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_LT(RealClock().NowNs() - start_ns, 5 * kSecondNs);
}

TEST(ShmConnect, AnotherVersionIsNamed) {
  FakeServer server([](int socket) {
    std::string reply = HelloReply(1);
    reply[4] = 77;
    SendMessage(socket, reply);
  });
  const absl::Status status = server.Connect();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("version 77"), HasSubstr("version 1"), HasSubstr("server 1")));
}

TEST(ShmConnect, TheServersReasonIsPassedOn) {
  FakeServer server([](int socket) {
    const absl::Status why = absl::ResourceExhaustedError("the house is full");
    SendMessage(socket, EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(why)));
  });
  const absl::Status status = server.Connect();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the house is full"));
}

TEST(ShmConnect, BadAnswersAreDataLoss) {
  const int seals = F_SEAL_SHRINK;
  const std::vector<std::function<void(int)>> answers = {
      [](int socket) { SendMessage(socket, "junk"); },
      [](int socket) { SendMessage(socket, std::string(kShmFrameBytesMax + 1, 'x')); },
      [](int socket) { SendMessage(socket, EncodeShmFrame(ShmFrameType::kCallReply, 0, "x")); },
      [](int socket) { SendMessage(socket, EncodeShmFrame(ShmFrameType::kHelloReply, 0, "x")); },
      [](int socket) { SendMessage(socket, HelloReply(1)); },  // no memory
      [](int socket) {
        SendMessage(socket, HelloReply(1), Memory(SmallGeometry().total_bytes(), 0).get());
      },
      [=](int socket) { SendMessage(socket, HelloReply(1), Memory(4096, seals).get()); },
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    FakeServer server(answers[i]);
    const absl::Status status = server.Connect();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << ": " << status;
  }
}

// Answers the hello, and what it is asked for a slot of as `answer(sequence)` has it.
void AnswerSlot(int socket, const std::function<std::string(uint32_t)>& answer) {
  SendMessage(socket, HelloReply(1), Memory(SmallGeometry().total_bytes(), F_SEAL_SHRINK).get());
  std::vector<std::byte> frame(kShmFrameBytesMax);
  size_t bytes = 0;
  WaitReadable(socket, RealClock().NowNs() + 10 * kSecondNs);
  ReceiveMessage(socket, frame, &bytes);
  const auto parsed = ParseShmFrame({reinterpret_cast<const char*>(frame.data()), bytes});
  if (parsed.ok()) SendMessage(socket, answer(parsed->sequence));
}

// As one that dies at that moment, and whose end the watcher has not seen yet.
TEST(ShmConnect, WhoGivesNoSlotAnswersNoChain) {
  FakeServer server([](int socket) {
    AnswerSlot(socket, [](uint32_t sequence) {
      return EncodeShmFrame(ShmFrameType::kError, sequence,
                            EncodeStatus(absl::UnavailableError("it is about to end")));
    });
  });
  const auto fabric = server.Fabric(1, 1'000);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  const auto endpoint = (*fabric)->Connect(1, 1);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  Chain chain(1);
  chain.Write(MemorySpace::kMain, 0, *(*endpoint)->AllocateBuffer(64));
  (*endpoint)->Post(&chain);
  EXPECT_EQ(chain.status().code(), absl::StatusCode::kUnavailable) << chain.status();
}

// However little time was left for the first handshake.
TEST(ShmConnect, LaterHandshakesHaveASecond) {
  FakeServer server([](int socket) {
    AnswerSlot(socket, [](uint32_t sequence) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return EncodeShmFrame(ShmFrameType::kSlotReply, sequence, EncodeShmSlot(0));
    });
  });
  const auto fabric = server.Fabric(1, 50);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  const auto endpoint = (*fabric)->Connect(1, 1);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
}

TEST(ShmConnect, AServerOfAnotherIdIsRefused) {
  FakeServer server([](int socket) {
    SendMessage(socket, HelloReply(9), Memory(SmallGeometry().total_bytes(), F_SEAL_SHRINK).get());
  });
  const absl::Status status = server.Connect(3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("server 3"), HasSubstr("server 9")));
}

TEST(ShmConnect, AServerThatTurnsBadIsGone) {
  FakeServer server([](int socket) {
    SendMessage(socket, HelloReply(1), Memory(SmallGeometry().total_bytes(), F_SEAL_SHRINK).get());
    WaitReadable(socket, RealClock().NowNs() + 10 * kSecondNs);  // for a slot
    SendMessage(socket, "not what I asked for");
  });
  // The fabric stands; its endpoints find a server that cannot be used.
  EXPECT_TRUE(server.Connect().ok());
}

}  // namespace
}  // namespace pando

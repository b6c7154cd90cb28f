// A cluster as users run it, with clients that do not behave beside a lawful one at work: none of
// its operations fails or takes a second.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "bench/integration/lawful_work.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/unique_fd.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/unix_socket.h"
#include "common/wire/control.h"

namespace pando {
namespace {

// Says what the test says to a memory server of fabric shm.
class HostileClient {
 public:
  explicit HostileClient(const std::string& path) {
    auto socket = ConnectTo(path, RealClock().NowNs() + 10 * kSecondNs);
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (socket.ok()) socket_ = *std::move(socket);
  }
  bool Say(std::string_view bytes) {
    for (;;) {
      const SendResult sent = SendMessage(socket_.get(), bytes);
      if (sent != SendResult::kFull) return sent == SendResult::kSent;
      std::this_thread::yield();
    }
  }
  void Greet() { Say(EncodeShmFrame(ShmFrameType::kHello, 0, {})), Hear(); }
  bool Hear() {
    if (!WaitReadable(socket_.get(), RealClock().NowNs() + 10 * kSecondNs)) return false;
    return ReceiveMessage(socket_.get(), buffer_, &bytes_) == ReceiveResult::kMessage;
  }
  // The status of the reply.
  absl::Status Call(ControlOpcode opcode, std::string_view body) {
    ControlHeader header;
    header.opcode = static_cast<uint16_t>(opcode);
    header.sequence = ++sequence_;
    if (!Say(EncodeShmFrame(ShmFrameType::kCall, sequence_, EncodeMessage(header, body))) ||
        !Hear()) {
      return absl::UnavailableError("the connection has ended");
    }
    const auto frame = ParseShmFrame({reinterpret_cast<const char*>(buffer_.data()), bytes_});
    if (!frame.ok()) return frame.status();
    return ParseReply(frame->body, opcode, sequence_).status();
  }

 private:
  UniqueFd socket_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kShmFrameBytesMax);
  size_t bytes_ = 0;
  uint32_t sequence_ = 0;
};

class HostileTest : public testing::Test {
 protected:
  void SetUp() override {
    if (IntegrationCluster::default_fabric() != "shm") {
      GTEST_SKIP() << "speaks the protocol of shm; for verbs there is verbs_hostile_test";
    }
    auto registry = OpenRegistry(cluster_.registry());
    for (const ServerId id : {ServerId{1}, ServerId{2}}) {
      paths_.push_back(*(*registry)->SocketPath(id));
    }
    work_.emplace(&cluster_);
  }

  // Fewer clients than the hostile connections here.
  IntegrationCluster cluster_{{.connections_max = 150}};
  std::vector<std::string> paths_;
  std::optional<LawfulWork> work_;  // ends before the cluster
};

TEST_F(HostileTest, MadeUpIdentities) {
  {
    HostileClient hostile(paths_[1]);
    hostile.Greet();
    for (uint32_t id = 1; id <= UINT16_MAX; ++id) {
      const absl::Status status = hostile.Call(
          ControlOpcode::kAttach, EncodeJoinReply({static_cast<uint16_t>(id), UINT32_MAX}));
      ASSERT_TRUE(absl::IsPermissionDenied(status)) << status;
    }
    for (uint32_t i = 0; i < 5'000; ++i) {
      ASSERT_FALSE(
          hostile.Call(ControlOpcode::kAttach, EncodeJoinReply({7, 100'000'000 + i})).ok());
    }
  }
  HostileClient hostile(paths_[0]);
  hostile.Greet();
  int joined = 0;
  for (int i = 0; i < 1'000; ++i) {
    joined += hostile.Call(ControlOpcode::kJoin, EncodeJoinRequest({1})).ok() ? 1 : 0;
  }
  EXPECT_EQ(joined, 1);
}

TEST_F(HostileTest, SilentConnectionsAndIdlers) {
  std::vector<std::unique_ptr<HostileClient>> held(200);
  for (int round = 0; round < 4; ++round) {
    for (auto& client : held) {
      client = std::make_unique<HostileClient>(paths_[static_cast<size_t>(round) % 2]);
      if (round >= 2) client->Greet();
    }
    work_->AwaitRounds(2);
  }
}

// A server cannot know the lawful before they join, and here more places are taken by silent ones
// than there are: who of the many newcomers is pushed out by those behind him comes again.
TEST_F(HostileTest, ManyNewcomersOfOneProcess) {
  work_.reset();
  std::vector<std::unique_ptr<HostileClient>> silent(300);
  for (auto& client : silent) client = std::make_unique<HostileClient>(paths_[0]);
  constexpr int kNewcomers = 140;
  std::vector<std::unique_ptr<Client>> clients(kNewcomers);
  std::vector<std::thread> threads;
  for (auto& client : clients) {
    threads.emplace_back([&] { client = cluster_.NewClient(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& client : clients) EXPECT_FALSE(client->fenced());
}

TEST_F(HostileTest, GarbageAndConnectionsThatComeAndGo) {
  Random random(5);
  for (int i = 0; i < 4'000; ++i) {
    HostileClient hostile(paths_[static_cast<size_t>(i) % 2]);
    if (i % 3 != 0) hostile.Greet();
    std::string junk(1 + random.Uniform(300), '\0');
    for (char& c : junk) c = static_cast<char>(random.Next());
    const ControlHeader header = {.opcode = static_cast<uint16_t>(random.Uniform(40))};
    hostile.Say(i % 2 == 0 ? junk
                           : EncodeShmFrame(ShmFrameType::kCall, 1, EncodeMessage(header, junk)));
  }
}

}  // namespace
}  // namespace pando

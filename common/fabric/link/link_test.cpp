// Both ends of links, with the plainest of backends: a message is a letter, a sequence and a body.
// Each peer here serves others and asks them, as compute servers will.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/temporary_directory.h"
#include "common/fabric/link/link_client.h"
#include "common/fabric/link/link_server.h"
#include "common/fabric/shm/unix_socket.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

constexpr int64_t kPatienceNs = 10 * kSecondNs;

// kAnswerAs: the server answers as if another request had been sent, which the body names.
enum class Letter : char {
  kHello = 'h',
  kCall,
  kAnswer,
  kOpen,
  kOpened,
  kGiveBack,
  kSilence,
  kAnswerAs
};

std::string Message(Letter letter, uint32_t sequence, std::string_view body) {
  std::string message(1, static_cast<char>(letter));
  message.append(reinterpret_cast<const char*>(&sequence), sizeof(sequence));
  return message.append(body);
}

// What has arrived at a socket, until `take` refuses one.
template <typename Take>
absl::Status ForEachMessage(int socket, const Take& take) {
  std::byte buffer[1024];
  for (;;) {
    size_t bytes = 0;
    const ReceiveResult result = ReceiveMessage(socket, buffer, &bytes);
    if (result == ReceiveResult::kNothing) return absl::OkStatus();
    if (result != ReceiveResult::kMessage) return absl::CancelledError("closed");
    uint32_t sequence;
    std::memcpy(&sequence, buffer + 1, sizeof(sequence));
    const auto* const text = reinterpret_cast<const char*>(buffer);
    const absl::Status status =
        take(static_cast<Letter>(text[0]), sequence, std::string(text + 5, bytes - 5));
    if (!status.ok()) return status;
  }
}

class Connection final : public ServedLink {
 public:
  Connection(PeerId peer, UniqueFd socket, ControlHandler* handler, std::atomic<int>* given_back)
      : ServedLink(peer, std::move(socket), "a test", "here"),
        handler_(handler),
        given_back_(given_back) {}
  absl::Status OnReady() override {
    return ForEachMessage(socket(), [this](Letter letter, uint32_t sequence, std::string body) {
      if (introduced_ == (letter == Letter::kHello)) return absl::DataLossError("out of order");
      introduced_ = true;
      if (letter == Letter::kOpen) Say(Letter::kOpened, sequence, "a thing");
      if (letter == Letter::kGiveBack) ++*given_back_;
      if (letter == Letter::kCall) {
        Say(Letter::kAnswer, sequence, AnswerCall(handler_, body, 1000).value_or("too long"));
      }
      if (letter == Letter::kAnswerAs) {
        Say(Letter::kAnswer, static_cast<uint32_t>(std::stoul(body)), "not mine");
        Say(Letter::kAnswer, sequence, "mine");
      }
      return absl::OkStatus();
    });
  }
  absl::Status Refuse(const absl::Status& status) override { return status; }
  bool wants_write() const override { return false; }

 private:
  void Say(Letter letter, uint32_t sequence, std::string_view body) {
    SendMessage(socket(), Message(letter, sequence, body));
  }

  ControlHandler* const handler_;
  std::atomic<int>* const given_back_;
};

// Serves others.
class Server final : private LinkServer, private ControlHandler {
 public:
  Server(std::string name, const std::string& path) : LinkServer(Limits{}), name_(std::move(name)) {
    EXPECT_TRUE(Open(std::move(ListenAt(path)->socket)).ok());
    thread_ = std::thread([this] { EXPECT_TRUE(Run(this).ok()); });
  }
  ~Server() override { End(); }
  void End() {
    if (!thread_.joinable()) return;
    Stop();
    thread_.join();
    CloseAll();
  }

  std::atomic<int> given_back{0}, gone{0};

 private:
  void Welcome(UniqueFd socket) override {
    Admit(std::make_unique<Connection>(NextPeer(), std::move(socket), handler(), &given_back));
  }
  void OnClosed(ServedLink* connection) override {
    Unwatch(connection);
    if (connection->introduced()) OnPeerGone(connection->peer());
    Erase(connection->peer());
  }
  std::string Handle(PeerId, std::string_view request) override {
    return name_ + " heard " + std::string(request);
  }
  void OnPeerGone(PeerId) override { ++gone; }

  const std::string name_;
  std::thread thread_;
};

struct TestLink : Link {
  using FrameType = Letter;
};

// Asks others.
class Client final : public LinkClient<TestLink> {
 public:
  explicit Client(const std::vector<std::string>& paths) {
    std::vector<std::unique_ptr<TestLink>> links;
    for (const std::string& path : paths) {
      links.push_back(std::make_unique<TestLink>());
      links.back()->location = {static_cast<ServerId>(links.size()), path};
      links.back()->socket = *ConnectTo(path, RealClock().NowNs() + kPatienceNs);
      Transmit(links.back().get(), Letter::kHello, 0, "");
    }
    EXPECT_TRUE(StartWatching("pando-test", std::move(links)).ok());
  }
  ~Client() { StopWatching(); }

 private:
  SendResult Transmit(TestLink* link, Letter letter, uint32_t sequence,
                      std::string_view body) override {
    return SendMessage(link->socket.get(), Message(letter, sequence, body));
  }
  absl::Status Serve(TestLink* link) override {
    return ForEachMessage(
        link->socket.get(), [&](Letter letter, uint32_t sequence, std::string body) {
          const bool opened = letter == Letter::kOpened;
          return Deliver(link, MakeReply(opened ? ReplyKind::kOpened : ReplyKind::kCall, sequence,
                                         std::move(body)));
        });
  }
  absl::Status GiveBack(TestLink* link, std::string_view body) override {
    Transmit(link, Letter::kGiveBack, 0, body);
    return absl::OkStatus();
  }
};

class LinkTest : public testing::Test {
 protected:
  LinkTest() : mailbox_(std::make_shared<Mailbox>()) {
    EXPECT_TRUE(mailbox_->Init().ok());
    for (const char* name : {"ada", "bob"}) {
      paths_.push_back(directory_.path() + "/" + name);
      servers_.push_back(std::make_unique<Server>(name, paths_.back()));
    }
  }
  uint32_t Send(Client* client, ServerId server, Letter letter, std::string_view body) {
    return client->Send(client->LinkTo(server).get(), letter, body, mailbox_).value_or(0);
  }
  // The next reply; fails the test if none comes.
  Reply Next() {
    const int64_t until_ns = RealClock().NowNs() + kPatienceNs;
    while (replies_.empty() && RealClock().NowNs() < until_ns) {
      mailbox_->sleeper().Sleep(until_ns);
      replies_ = mailbox_->TakeAll();
    }
    EXPECT_FALSE(replies_.empty()) << "no reply";
    if (replies_.empty()) return {};
    Reply reply = std::move(replies_.front());
    replies_.erase(replies_.begin());
    return reply;
  }
  template <typename Condition>
  static bool Becomes(const Condition& condition) {
    const int64_t until_ns = RealClock().NowNs() + kPatienceNs;
    while (!condition() && RealClock().NowNs() < until_ns) std::this_thread::yield();
    return condition();
  }

  TemporaryDirectory directory_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<Reply> replies_;
};

TEST_F(LinkTest, PeersServeAndAskEachOther) {
  Client ada({paths_[1]}), bob({paths_[0]});
  Send(&ada, 1, Letter::kCall, "x");
  EXPECT_EQ(Next().body, "bob heard x");
  Send(&bob, 1, Letter::kCall, "y");
  EXPECT_EQ(Next().body, "ada heard y");
}

TEST_F(LinkTest, WhatWaitsForAServerThatGoesIsAnsweredOnce) {
  Client client(paths_);
  client.Attach(mailbox_);
  const uint32_t first = Send(&client, 1, Letter::kSilence, ""),
                 other = Send(&client, 2, Letter::kSilence, "");
  servers_[0]->End();
  const Reply reply = Next();
  EXPECT_EQ(reply.sequence, first);
  EXPECT_TRUE(absl::IsUnavailable(reply.status)) << reply.status;
  EXPECT_EQ(client.gone_count(), 1u);
  EXPECT_FALSE(client.IsConnected(1));
  const auto again = client.Send(client.LinkTo(1).get(), Letter::kCall, "x", mailbox_);
  EXPECT_TRUE(absl::IsUnavailable(again.status())) << again.status();
  // The other link is as it was, and its request still waits.
  Send(&client, 2, Letter::kCall, "x");
  EXPECT_EQ(Next().body, "bob heard x");
  servers_[1]->End();
  EXPECT_EQ(Next().sequence, other);
  client.Detach(mailbox_);
}

TEST_F(LinkTest, ARepliesOwnLinkIsTheOnlyOneItMayComeOver) {
  Client client(paths_);
  const uint32_t silent = Send(&client, 1, Letter::kSilence, "");
  const uint32_t asked = Send(&client, 2, Letter::kAnswerAs, std::to_string(silent));
  const Reply reply = Next();
  EXPECT_EQ(reply.sequence, asked);
  EXPECT_EQ(reply.body, "mine");
  client.Disconnect(1);
  EXPECT_EQ(Next().sequence, silent);
}

TEST_F(LinkTest, WhatNobodyWantsIsGivenBack) {
  Client client(paths_);
  Send(&client, 1, Letter::kOpen, "");
  EXPECT_EQ(Next().kind, ReplyKind::kOpened);
  mailbox_->Close();
  Send(&client, 1, Letter::kOpen, "");
  EXPECT_TRUE(Becomes([&] { return servers_[0]->given_back == 1; }));
}

TEST_F(LinkTest, BothEndsNoticeTheEnd) {
  {
    Client client(paths_);
    Send(&client, 1, Letter::kCall, "x");
    Next();
    client.Disconnect(1);
    EXPECT_TRUE(Becomes([&] { return servers_[0]->gone == 1; }));
    EXPECT_EQ(servers_[1]->gone, 0);
  }
  EXPECT_TRUE(Becomes([&] { return servers_[1]->gone == 1; })) << "a client that ended";
}

TEST(Mailbox, TakesNothingOnceItIsClosed) {
  Mailbox mailbox;
  ASSERT_TRUE(mailbox.Init().ok());
  EXPECT_TRUE(mailbox.Put({.sequence = 1}));
  EXPECT_FALSE(mailbox.empty());
  EXPECT_EQ(mailbox.Close().size(), 1u);
  EXPECT_FALSE(mailbox.Put({.sequence = 2}));
  EXPECT_TRUE(mailbox.TakeAll().empty());
}

TEST(Sleeper, AWakeUpBeforeItSleepsIsNotLost) {
  Sleeper sleeper;
  ASSERT_TRUE(sleeper.Init().ok());
  sleeper.Wake();
  const int64_t begun_ns = RealClock().NowNs();
  sleeper.Sleep(begun_ns + kPatienceNs);
  EXPECT_LT(RealClock().NowNs() - begun_ns, kPatienceNs / 2);
  // And is one: the next sleep lasts.
  const int64_t until_ns = RealClock().NowNs() + 2 * kMillisecondNs;
  while (RealClock().NowNs() < until_ns) sleeper.Sleep(until_ns);
  std::thread other([&sleeper] { sleeper.Wake(); });
  sleeper.Sleep(RealClock().NowNs() + kPatienceNs);
  other.join();
  EXPECT_LT(RealClock().NowNs() - begun_ns, kPatienceNs);
}

}  // namespace
}  // namespace pando

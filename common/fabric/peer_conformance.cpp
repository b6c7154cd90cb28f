#include "common/fabric/peer_conformance.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/random.h"

namespace pando {

TEST_P(PeerConformance, MessagesArriveWholeAndInOrder) {
  const Pair pair = Link();
  const std::vector<std::string> there = PeerTestMessages(300), back = PeerTestMessages(200);
  ASSERT_TRUE(Send(pair.client, client_, there));
  ASSERT_TRUE(Send(pair.server, server_, back));
  ASSERT_TRUE(Await([&] {
    return server_.messages(pair.server) == there.size() &&
           client_.messages(pair.client) == back.size();
  }));
  EXPECT_EQ(server_.of(pair.server).messages, there);
  EXPECT_EQ(client_.of(pair.client).messages, back);
}

TEST_P(PeerConformance, EverySizeArrivesAndNoOtherIsTaken) {
  const Pair pair = Link();
  std::vector<std::string> messages;
  for (const size_t bytes : {1, 2, 7, 8, 63, 64, 65, 511, 1000, 2048, 4095, 4096}) {
    messages.push_back(std::string(bytes, static_cast<char>(bytes)));
  }
  EXPECT_EQ(pair.client->TrySend(""), PeerSend::kRefused);
  EXPECT_EQ(pair.client->TrySend(std::string(kPeerMessageBytesMax + 1, 'x')), PeerSend::kRefused);
  ASSERT_TRUE(Send(pair.client, client_, messages));
  EXPECT_EQ(pair.client->TrySend(std::string(kPeerMessageBytesMax + 1, 'x')), PeerSend::kRefused);
  ASSERT_TRUE(Await([&] { return server_.messages(pair.server) == messages.size(); }));
  EXPECT_EQ(server_.of(pair.server).messages, messages);
  EXPECT_FALSE(pair.client->broken());
}

TEST_P(PeerConformance, WhatSeveralThreadsSendKeepsTheOrderOfEach) {
  if (!cluster_->threads_allowed()) GTEST_SKIP() << "one thread";
  constexpr int kThreads = 4, kEach = 500;
  const Pair pair = Link();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        const std::string message = absl::StrCat(thread, " ", i);
        while (pair.client->TrySend(message) == PeerSend::kFull) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(Await([&] { return server_.messages(pair.server) == kThreads * kEach; }));
  std::vector<int> next(kThreads);
  for (const std::string& message : server_.of(pair.server).messages) {
    const size_t space = message.find(' ');
    const int thread = std::stoi(message.substr(0, space));
    EXPECT_EQ(std::stoi(message.substr(space)), next.at(static_cast<size_t>(thread))++);
  }
}

// --- Promises 2 and 3: breaks.

TEST_P(PeerConformance, ClosingIsSeenByBothEndsOnce) {
  const Pair pair = Link();
  pair.client->Close();
  pair.client->Close();
  EXPECT_TRUE(pair.client->broken());
  EXPECT_EQ(pair.client->TrySend("late"), PeerSend::kBroken);
  AwaitBroken(pair.client, client_);
  AwaitBroken(pair.server, server_);
  EXPECT_TRUE(absl::IsCancelled(client_.of(pair.client).why)) << client_.of(pair.client).why;
  EXPECT_TRUE(absl::IsUnavailable(server_.of(pair.server).why)) << server_.of(pair.server).why;
}

TEST_P(PeerConformance, TheOneWhoTookItMayCloseIt) {
  const Pair pair = Link();
  pair.server->Close();
  AwaitBroken(pair.server, server_);
  AwaitBroken(pair.client, client_);
  EXPECT_TRUE(absl::IsCancelled(server_.of(pair.server).why));
  EXPECT_TRUE(absl::IsUnavailable(client_.of(pair.client).why));
}

TEST_P(PeerConformance, WhatWasSentBeforeItClosedArrivesAsAPrefix) {
  const Pair pair = Link();
  const std::vector<std::string> messages = PeerTestMessages(200, 600);
  for (const std::string& message : messages) {
    if (pair.client->TrySend(message) != PeerSend::kSent) break;
    // The other end sends, too, what nobody reads any more.
    EXPECT_NE(pair.server->TrySend("x"), PeerSend::kRefused);
  }
  pair.client->Close();
  AwaitBroken(pair.client, client_);
  AwaitBroken(pair.server, server_);
  const std::vector<std::string> came = server_.of(pair.server).messages;
  ASSERT_LE(came.size(), messages.size());
  EXPECT_TRUE(std::equal(came.begin(), came.end(), messages.begin()));
}

TEST_P(PeerConformance, OtherLinksOfTheSamePortsStay) {
  const Pair pair = Link();
  const auto other = Connect(*pair.client_port, pair.server_port->address(), &client_);
  pair.client->Close();
  AwaitBroken(pair.client, client_);
  AwaitBroken(pair.server, server_);
  ASSERT_TRUE(Send(other, client_, {"still here"}));
  const auto taken = Taken(1);
  ASSERT_TRUE(Await([&] { return server_.messages(taken) == 1; }));
}

TEST_P(PeerConformance, TheEndOfAPortEndsItsLinks) {
  Pair pair = Link();
  const std::string address = pair.server_port->address();
  pair.server_port.reset();
  EXPECT_EQ(server_.broken(pair.server), 1) << "when the destructor returns";
  EXPECT_TRUE(absl::IsCancelled(server_.of(pair.server).why));
  EXPECT_EQ(pair.server->TrySend("x"), PeerSend::kBroken);
  pair.server->Close();
  AwaitBroken(pair.client, client_);
  EXPECT_TRUE(absl::IsUnavailable(client_.of(pair.client).why));
  // Its address is free.
  PeerOptions options;
  options.acceptor = &server_;
  options.address = address;
  const auto again = cluster_->fabric(0).OpenPeers(options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->address(), address);
  const auto link = Connect(*pair.client_port, address, &client_);
  ASSERT_TRUE(Send(link, client_, {"hello"}));
}

TEST_P(PeerConformance, ThePortOfTheOneWhoConnectedMayGoFirst) {
  Pair pair = Link();
  pair.client_port.reset();
  EXPECT_EQ(client_.broken(pair.client), 1);
  AwaitBroken(pair.server, server_);
  EXPECT_TRUE(absl::IsUnavailable(server_.of(pair.server).why));
}

// --- Promise 4: handlers.

TEST_P(PeerConformance, HandlersMaySendConnectAndClose) {
  auto server_port = Open(0, &server_);
  auto client_port = Open(1);
  std::shared_ptr<PeerLink> second;
  client_.reaction = [&](PeerLink* link, std::string_view message) {
    if (message == "ping") {
      EXPECT_EQ(link->TrySend("pong"), PeerSend::kSent);
    }
    if (message == "again") second = *client_port->Connect(server_port->address(), &client_);
    if (message == "close") link->Close();
  };
  const auto link = Connect(*client_port, server_port->address(), &client_);
  const auto server = Taken(0);
  ASSERT_TRUE(Send(server, server_, {"ping", "again", "close"}));
  // What comes behind "close" is not delivered any more, if it can be sent at all.
  (void)server->TrySend("ping");
  AwaitBroken(link, client_);
  EXPECT_TRUE(absl::IsCancelled(client_.of(link).why));
  EXPECT_EQ(client_.messages(link), 3u);
  EXPECT_LE(server_.messages(server), 1u);
  ASSERT_TRUE(Await([&] { return client_.writable(second) > 0; }));
  ASSERT_TRUE(Send(second, client_, {"hello"}));
  client_port.reset();
  server_port.reset();
}

TEST_P(PeerConformance, WhoIsNotTakenIsTold) {
  server_.Take(0);
  auto server_port = Open(0, &server_);
  auto client_port = Open(1);
  const auto link = client_port->Connect(server_port->address(), &client_);
  ASSERT_TRUE(link.ok()) << link.status();
  AwaitBroken(*link, client_);
  EXPECT_TRUE(absl::IsUnavailable(client_.of(*link).why)) << client_.of(*link).why;
  EXPECT_EQ(server_.broken_links(), 0) << "nobody is told of a link that he has not taken";
}

// --- Promise 5: full links.

TEST_P(PeerConformance, AFullLinkGivesWayAndGoesOn) {
  auto port = Open(1);
  const auto link = Connect(*port, cluster_->StartEcho(), &client_);
  cluster_->PauseEcho(true);
  const std::vector<std::string> messages = PeerTestMessages(3000);
  size_t sent = 0;
  while (sent < messages.size() && link->TrySend(messages[sent]) == PeerSend::kSent) ++sent;
  ASSERT_LT(sent, messages.size()) << "what is under way is bounded";
  EXPECT_GT(sent, 0u);
  cluster_->RunFor(20 * kMillisecondNs);
  EXPECT_FALSE(link->broken()) << "who is stopped is not gone";
  EXPECT_EQ(client_.messages(link), 0u);
  // Another link of the port is not held up.
  auto server_port = Open(0, &server_);
  const auto other = Connect(*port, server_port->address(), &client_);
  ASSERT_TRUE(Send(other, client_, {"hello"}));
  const auto taken = Taken(0);
  ASSERT_TRUE(Await([&] { return server_.messages(taken) == 1; }));

  cluster_->PauseEcho(false);
  ASSERT_TRUE(Await([&] { return client_.writable(link) > 1; }));
  ASSERT_TRUE(
      Send(link, client_, {messages.begin() + static_cast<ptrdiff_t>(sent), messages.end()}));
  ASSERT_TRUE(Await([&] { return client_.messages(link) == messages.size(); }));
  EXPECT_EQ(client_.of(link).messages, messages);
}

// Both ends send without end, and nobody waits for ever.
TEST_P(PeerConformance, TwoWhoFillTheirLinkBothGoOn) {
  auto port = Open(1);
  const auto link = Connect(*port, cluster_->StartEcho(), &client_);
  const std::vector<std::string> messages = PeerTestMessages(3000);
  ASSERT_TRUE(Send(link, client_, messages));
  ASSERT_TRUE(Await([&] { return client_.messages(link) == messages.size(); }));
  EXPECT_EQ(client_.of(link).messages, messages);
}

// --- Promise 6: connecting.

TEST_P(PeerConformance, BothEndsKnowEachOther) {
  const Pair pair = Link();
  EXPECT_EQ(pair.client->other(), (PeerIdentity{1, 7}));
  EXPECT_EQ(pair.server->other(), (PeerIdentity{2, 7}));
}

TEST_P(PeerConformance, WhereNobodyListensIsUnavailable) {
  auto port = Open(1);
  const auto link = port->Connect(cluster_->FreeAddress(), &client_);
  if (link.ok()) {  // it could not be known at once
    AwaitBroken(*link, client_);
    EXPECT_TRUE(absl::IsUnavailable(client_.of(*link).why)) << client_.of(*link).why;
  } else {
    EXPECT_TRUE(absl::IsUnavailable(link.status())) << link.status();
  }
  EXPECT_EQ(port->address(), "");
}

TEST_P(PeerConformance, ATakenAddressIsRefused) {
  const auto port = Open(0, &server_);
  PeerOptions options;
  options.acceptor = &client_;
  options.address = port->address();
  const auto second = cluster_->fabric(1).OpenPeers(options);
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_NE(second.status().message().find(port->address()), std::string::npos);
}

TEST_P(PeerConformance, OptionsAreChecked) {
  PeerOptions options;
  options.hello_timeout_ms = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_->fabric(0).OpenPeers(options).status()));
  options.hello_timeout_ms = 100;
  options.links_max = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_->fabric(0).OpenPeers(options).status()));
}

TEST_P(PeerConformance, NothingIsSentBeforeTheLinkIsOpen) {
  auto server_port = Open(0, &server_);
  auto client_port = Open(1);
  const auto link = client_port->Connect(server_port->address(), &client_);
  ASSERT_TRUE(link.ok()) << link.status();
  while (client_.writable(*link) == 0) {
    const PeerSend sent = (*link)->TrySend("x");
    // It may have been opened meanwhile.
    if (sent == PeerSend::kSent) break;
    ASSERT_EQ(sent, PeerSend::kFull);
    ASSERT_TRUE(Await([&] { return client_.writable(*link) > 0; }));
  }
  EXPECT_EQ((*link)->other(), (PeerIdentity{1, 7}));
}

TEST_P(PeerConformance, WhoDoesNotAnswerInTimeIsUnavailable) {
  const std::string address = cluster_->StartEcho();
  cluster_->PauseEcho(true);
  auto port = Open(1, nullptr, /*hello_timeout_ms=*/100);
  const auto link = port->Connect(address, &client_);
  ASSERT_TRUE(link.ok()) << link.status();
  AwaitBroken(*link, client_);
  EXPECT_TRUE(absl::IsUnavailable(client_.of(*link).why)) << client_.of(*link).why;
  EXPECT_EQ(client_.writable(*link), 0);
  cluster_->PauseEcho(false);
}

TEST_P(PeerConformance, ALinkMayEndBeforeItIsOpen) {
  const std::string address = cluster_->StartEcho();
  cluster_->PauseEcho(true);
  auto port = Open(1);
  const auto closed = port->Connect(address, &client_), left = port->Connect(address, &client_);
  ASSERT_TRUE(closed.ok() && left.ok());
  (*closed)->Close();
  AwaitBroken(*closed, client_);
  EXPECT_TRUE(absl::IsCancelled(client_.of(*closed).why));
  port.reset();
  EXPECT_EQ(client_.broken(*left), 1);
  cluster_->PauseEcho(false);
}

// --- Promise 7: deaths.

TEST_P(PeerConformance, TheDeathOfAProcessIsSeen) {
  auto port = Open(1);
  const auto link = Connect(*port, cluster_->StartEcho(), &client_);
  const std::vector<std::string> messages = PeerTestMessages(500, 200);
  ASSERT_TRUE(Send(link, client_, {messages.begin(), messages.begin() + 200}));
  ASSERT_TRUE(Await([&] { return client_.messages(link) > 0; }));
  cluster_->KillEcho();
  for (size_t i = 200; i < messages.size(); ++i) {
    if (link->TrySend(messages[i]) != PeerSend::kSent) break;
  }
  AwaitBroken(link, client_);
  EXPECT_TRUE(absl::IsUnavailable(client_.of(link).why)) << client_.of(link).why;
  const std::vector<std::string> came = client_.of(link).messages;
  ASSERT_LE(came.size(), messages.size());
  EXPECT_TRUE(std::equal(came.begin(), came.end(), messages.begin())) << "a prefix";
}

TEST_P(PeerConformance, AStoppedProcessMayDie) {
  auto port = Open(1);
  const auto link = Connect(*port, cluster_->StartEcho(), &client_);
  cluster_->PauseEcho(true);
  EXPECT_EQ(link->TrySend("x"), PeerSend::kSent);
  cluster_->KillEcho();
  AwaitBroken(link, client_);
  EXPECT_EQ(client_.messages(link), 0u);
}

// --- Many at once.

TEST_P(PeerConformance, ManyLinksEachWithItsOwnMessages) {
  constexpr int kLinks = 60;
  auto server_port = Open(0, &server_);
  std::unique_ptr<PeerPort> ports[] = {Open(1), Open(2)};
  std::vector<std::shared_ptr<PeerLink>> links;
  for (int i = 0; i < kLinks; ++i) {
    const auto link = ports[i % 2]->Connect(server_port->address(), &client_);
    ASSERT_TRUE(link.ok()) << link.status();
    links.push_back(*link);
  }
  for (int i = 0; i < kLinks; ++i) {
    ASSERT_TRUE(Await([&] { return client_.writable(links[i]) > 0; }));
    for (int n = 0; n < 20; ++n) {
      ASSERT_TRUE(Send(links[i], client_, {absl::StrCat(i, " ", n)}));
    }
  }
  const auto all_came = [&] {
    size_t count = 0;
    for (const auto& link : server_.accepted()) count += server_.messages(link);
    return count == kLinks * 20;
  };
  ASSERT_TRUE(Await(all_came));
  std::set<std::string> seen;
  for (const auto& link : server_.accepted()) {
    const std::vector<std::string> messages = server_.of(link).messages;
    ASSERT_EQ(messages.size(), 20u);
    const std::string number = messages[0].substr(0, messages[0].find(' '));
    for (int n = 0; n < 20; ++n) EXPECT_EQ(messages[n], absl::StrCat(number, " ", n));
    EXPECT_TRUE(seen.insert(number).second);
  }
  server_port.reset();
  EXPECT_EQ(server_.broken_links(), kLinks);
  ASSERT_TRUE(Await([&] { return client_.broken_links() == kLinks; }));
}

TEST_P(PeerConformance, WhoComesWhereAllPlacesAreTakenIsToldAndTheOthersStay) {
  PeerOptions options;
  options.acceptor = &server_;
  options.links_max = 2;
  auto server_port = cluster_->fabric(0).OpenPeers(options);
  ASSERT_TRUE(server_port.ok()) << server_port.status();
  auto port = Open(1);
  const auto first = Connect(*port, (*server_port)->address(), &client_);
  const auto second = Connect(*port, (*server_port)->address(), &client_);
  const auto third = port->Connect((*server_port)->address(), &client_);
  ASSERT_TRUE(third.ok()) << third.status();
  AwaitBroken(*third, client_);
  EXPECT_TRUE(absl::IsResourceExhausted(client_.of(*third).why)) << client_.of(*third).why;
  first->Close();
  AwaitBroken(first, client_);
  ASSERT_TRUE(Await([&] { return server_.broken_links() == 1; }));
  const auto fourth = Connect(*port, (*server_port)->address(), &client_);
  ASSERT_TRUE(Send(fourth, client_, {"hello"}));
  ASSERT_TRUE(Send(second, client_, {"hello"}));
}

TEST_P(PeerConformance, APortMayHaveALinkToItself) {
  auto port = Open(0, &server_);
  const auto link = Connect(*port, port->address(), &client_);
  const auto taken = Taken(0);
  ASSERT_TRUE(Send(link, client_, {"there"}));
  ASSERT_TRUE(Await([&] { return server_.messages(taken) == 1; }));
  ASSERT_TRUE(Send(taken, server_, {"back"}));
  ASSERT_TRUE(Await([&] { return client_.messages(link) == 1; }));
  port.reset();
  EXPECT_EQ(client_.broken(link), 1);
  EXPECT_EQ(server_.broken_links(), 1);
}

}  // namespace pando

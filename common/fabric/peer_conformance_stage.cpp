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

// --- Those who are called.

PeerHandler* PeerRecorder::OnAccepted(const std::shared_ptr<PeerLink>& link) {
  std::lock_guard lock(mutex_);
  if (take_ == 0) return nullptr;
  if (take_ > 0) --take_;
  accepted_.push_back(link);
  records_[link.get()] = {};
  return this;
}

void PeerRecorder::OnMessage(PeerLink* link, std::string_view message) {
  {
    std::lock_guard lock(mutex_);
    Record& record = records_[link];
    record.called_after_broken |= record.broken > 0;
    record.messages.emplace_back(message);
  }
  if (reaction) reaction(link, message);
}

void PeerRecorder::OnWritable(PeerLink* link) {
  std::lock_guard lock(mutex_);
  Record& record = records_[link];
  record.called_after_broken |= record.broken > 0;
  ++record.writable;
}

void PeerRecorder::OnBroken(PeerLink* link, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  Record& record = records_[link];
  ++record.broken;
  record.why = why;
}

PeerRecorder::Record PeerRecorder::Of(PeerLink* link) const {
  std::lock_guard lock(mutex_);
  const auto found = records_.find(link);
  return found == records_.end() ? Record() : found->second;
}

size_t PeerRecorder::messages(const std::shared_ptr<PeerLink>& link) const {
  std::lock_guard lock(mutex_);
  const auto found = records_.find(link.get());
  return found == records_.end() ? 0 : found->second.messages.size();
}

int PeerRecorder::writable(const std::shared_ptr<PeerLink>& link) const {
  std::lock_guard lock(mutex_);
  const auto found = records_.find(link.get());
  return found == records_.end() ? 0 : found->second.writable;
}

int PeerRecorder::broken(const std::shared_ptr<PeerLink>& link) const {
  std::lock_guard lock(mutex_);
  const auto found = records_.find(link.get());
  return found == records_.end() ? 0 : found->second.broken;
}

std::vector<std::shared_ptr<PeerLink>> PeerRecorder::accepted() const {
  std::lock_guard lock(mutex_);
  return accepted_;
}

int PeerRecorder::broken_links() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(records_.begin(), records_.end(),
                                        [](const auto& entry) { return entry.second.broken > 0; }));
}

// --- What tests are made of.

std::vector<std::string> PeerTestMessages(size_t count, size_t bytes_max) {
  Random random(count + bytes_max);
  std::vector<std::string> messages;
  for (size_t i = 0; i < count; ++i) {
    std::string message = absl::StrCat(i, ":");
    const size_t bytes = std::max<size_t>(message.size(), 1 + random.Uniform(bytes_max));
    while (message.size() < bytes) message.push_back(static_cast<char>(random.Next()));
    messages.push_back(std::move(message));
  }
  return messages;
}

std::unique_ptr<PeerPort> PeerConformance::Open(int fabric, PeerAcceptor* acceptor,
                                                int64_t hello_timeout_ms) {
  PeerOptions options;
  options.identity = {static_cast<uint16_t>(fabric + 1), 7};
  options.acceptor = acceptor;
  options.hello_timeout_ms = hello_timeout_ms;
  auto port = cluster_->fabric(fabric).OpenPeers(options);
  PANDO_CHECK(port.ok()) << port.status();
  return *std::move(port);
}

std::shared_ptr<PeerLink> PeerConformance::Connect(PeerPort& port, const std::string& address,
                                                   PeerRecorder* handler) {
  auto link = port.Connect(address, handler);
  PANDO_CHECK(link.ok()) << link.status();
  EXPECT_TRUE(Await([&] { return handler->writable(*link) > 0 || handler->broken(*link) > 0; }));
  EXPECT_EQ(handler->broken(*link), 0) << handler->of(*link).why;
  return *std::move(link);
}

PeerConformance::Pair PeerConformance::Link() {
  Pair pair;
  pair.server_port = Open(0, &server_);
  pair.client_port = Open(1);
  const size_t before = server_.accepted().size();
  pair.client = Connect(*pair.client_port, pair.server_port->address(), &client_);
  pair.server = Taken(before);
  return pair;
}

std::shared_ptr<PeerLink> PeerConformance::Taken(size_t index) {
  PANDO_CHECK(Await([&] { return server_.accepted().size() > index; }));
  return server_.accepted()[index];
}

bool PeerConformance::Send(const std::shared_ptr<PeerLink>& link, PeerRecorder& handler,
                           const std::vector<std::string>& messages, int* full) {
  for (const std::string& message : messages) {
    for (;;) {
      const int before = handler.writable(link);
      const PeerSend sent = link->TrySend(message);
      if (sent == PeerSend::kSent) break;
      EXPECT_NE(sent, PeerSend::kRefused);
      if (sent != PeerSend::kFull) return false;
      if (full != nullptr) ++*full;
      const bool goes_on =
          Await([&] { return handler.writable(link) > before || handler.broken(link) > 0; });
      EXPECT_TRUE(goes_on) << "full for ever";
      if (!goes_on) return false;
    }
  }
  return true;
}

void PeerConformance::AwaitBroken(const std::shared_ptr<PeerLink>& link, PeerRecorder& handler) {
  ASSERT_TRUE(Await([&] { return handler.broken(link) > 0; }));
  EXPECT_TRUE(link->broken());
  EXPECT_EQ(link->TrySend("x"), PeerSend::kBroken);
  cluster_->RunFor(5 * kMillisecondNs);
  const PeerRecorder::Record record = handler.of(link);
  EXPECT_EQ(record.broken, 1) << "told once";
  EXPECT_FALSE(record.called_after_broken);
}

// --- Promise 1: messages.

}  // namespace pando

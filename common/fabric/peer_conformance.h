// The contract of links between compute servers (peer.h), test by test, for every backend.
//
// A backend's test program compiles common/fabric/peer_conformance*.cpp in and instantiates the
// suite:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, PeerConformance,
//                            testing::Values(PeerBackend{"shm", MakeShmPeers}), PeerBackendName);
//
// Tests are written so that threads and a single-threaded simulator can both run them: they wait by
// PeerCluster::RunUntil(), which sleeps or drives events.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/fabric/fabric.h"
#include "common/fabric/peer.h"
#include "common/fabric/peer_echo.h"
#include "gtest/gtest.h"

namespace pando {

// Compute servers of one test.
class PeerCluster {
 public:
  static constexpr int kFabrics = 3;

  virtual ~PeerCluster() = default;

  // `index` in [0, kFabrics). As far as the others can tell each is a process of its own.
  virtual Fabric& fabric(int index) = 0;
  virtual bool threads_allowed() const = 0;
  // Lets the others work until done() holds. False: it does not for a very long while (some 20 s).
  virtual bool RunUntil(const std::function<bool()>& done) = 0;
  virtual void RunFor(int64_t ns) = 0;
  // Nobody has listened there yet.
  virtual std::string FreeAddress() = 0;

  // One more compute server, whose process may be hurt: a port that sends back whatever it is sent
  // (PeerEcho), and its address.
  virtual std::string StartEcho() = 0;
  virtual void KillEcho() = 0;
  // SIGSTOP and SIGCONT.
  virtual void PauseEcho(bool paused) = 0;
};

struct PeerBackend {
  std::string name;
  std::function<std::unique_ptr<PeerCluster>()> make;
  // Why this machine cannot run it; "": it can.
  std::function<std::string()> why_not = {};
};

inline std::string PeerBackendName(const testing::TestParamInfo<PeerBackend>& info) {
  return info.param.name;
}

// Takes every link, and remembers what it was called for. Thread-safe.
class PeerRecorder final : public PeerAcceptor, public PeerHandler {
 public:
  struct Record {
    std::vector<std::string> messages;
    int writable = 0, broken = 0;
    absl::Status why;
    bool called_after_broken = false;
  };

  PeerHandler* OnAccepted(const std::shared_ptr<PeerLink>& link) override;
  void OnMessage(PeerLink* link, std::string_view message) override;
  void OnWritable(PeerLink* link) override;
  void OnBroken(PeerLink* link, const absl::Status& why) override;

  Record of(const std::shared_ptr<PeerLink>& link) const { return Of(link.get()); }
  // As often as needed: without a copy of the messages.
  size_t messages(const std::shared_ptr<PeerLink>& link) const;
  int writable(const std::shared_ptr<PeerLink>& link) const;
  int broken(const std::shared_ptr<PeerLink>& link) const;
  // In the order in which they came.
  std::vector<std::shared_ptr<PeerLink>> accepted() const;
  int broken_links() const;
  // Links to take; the others are refused. -1: all.
  void Take(int links) { take_ = links; }
  // What a call of OnMessage() does besides; set before there are links.
  std::function<void(PeerLink*, std::string_view)> reaction;

 private:
  Record Of(PeerLink* link) const;

  mutable std::mutex mutex_;
  int take_ = -1;
  std::vector<std::shared_ptr<PeerLink>> accepted_;
  std::map<const PeerLink*, Record> records_;
};

class PeerConformance : public testing::TestWithParam<PeerBackend> {
 protected:
  // Two ends of a link between fabrics 0 and 1, and who handles them.
  struct Pair {
    std::unique_ptr<PeerPort> server_port, client_port;
    std::shared_ptr<PeerLink> server, client;
  };

  void SetUp() override {
    const std::string why_not = GetParam().why_not ? GetParam().why_not() : "";
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    cluster_ = GetParam().make();
  }

  // Of compute server `fabric` + 1, incarnation 7.
  std::unique_ptr<PeerPort> Open(int fabric, PeerAcceptor* acceptor = nullptr,
                                 int64_t hello_timeout_ms = 2'000);
  // Connects and waits until it is open.
  std::shared_ptr<PeerLink> Connect(PeerPort& port, const std::string& address,
                                    PeerRecorder* handler);
  // `server_` and `client_` record.
  Pair Link();
  // Sends all of them, however long the link is full. Returns how often it was; false where the
  // link broke.
  bool Send(const std::shared_ptr<PeerLink>& link, PeerRecorder& handler,
            const std::vector<std::string>& messages, int* full = nullptr);
  // The link that `server_` took as the how-manieth, once it has.
  std::shared_ptr<PeerLink> Taken(size_t index);
  void AwaitBroken(const std::shared_ptr<PeerLink>& link, PeerRecorder& handler);
  bool Await(const std::function<bool()>& done) { return cluster_->RunUntil(done); }

  PeerRecorder server_, client_;
  std::unique_ptr<PeerCluster> cluster_;  // goes before those who are called
};

// `count` messages of various lengths that tell each other apart.
std::vector<std::string> PeerTestMessages(size_t count, size_t bytes_max = kPeerMessageBytesMax);

}  // namespace pando

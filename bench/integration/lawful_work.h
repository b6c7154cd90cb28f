// A lawful client at work while others do not behave: none of its operations fails or takes a
// second (on a machine that has a processor for it). One test's; Stop() belongs to the thread that
// made it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "bench/integration/integration_cluster.h"
#include "common/base/bystander.h"
#include "common/base/clock.h"

namespace pando {

class LawfulWork {
 public:
  // Returns when the work has begun. `cluster` outlives this.
  explicit LawfulWork(IntegrationCluster* cluster) : cluster_(cluster) {
    thread_ = std::thread([this] { Work(); });
    AwaitRounds(1);
  }
  ~LawfulWork() { Stop(); }
  LawfulWork(const LawfulWork&) = delete;
  LawfulWork& operator=(const LawfulWork&) = delete;

  // A round: 50 puts and gets of a client that stays, and a newcomer's whole life.
  void AwaitRounds(int more) {
    const int enough = rounds_ + more;
    while (rounds_ < enough) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // After three rounds more.
  void Stop() {
    if (!thread_.joinable()) return;
    AwaitRounds(3);
    over_ = true;
    thread_.join();
    EXPECT_LT(slowest_ns_, bystander_.Bound(kSecondNs)) << slowest_;
  }

 private:
  void Work() {
    const auto client = cluster_->NewClient();
    const auto tree = *client->CreateTree("lawful", {});
    const auto session = *client->NewSession();
    for (int i = 0; !over_; ++i) {
      const std::string key = "key" + std::to_string(i % 1000);
      Timed("put", [&] { return session->Put(*tree, key, key); });
      Timed("get", [&] { return session->Get(*tree, key).status(); });
      if (i % 50 != 0) continue;
      std::unique_ptr<Client> newcomer;
      Timed("connect", [&]() -> absl::Status {
        auto connected = Client::Connect(cluster_->ClientDefaults());
        if (connected.ok()) newcomer = *std::move(connected);
        return connected.status();
      });
      ++rounds_;
      if (newcomer == nullptr) continue;
      Timed("newcomer's get", [&]() -> absl::Status {
        const auto same_tree = newcomer->OpenTree("lawful");
        if (!same_tree.ok()) return same_tree.status();
        const auto its_session = newcomer->NewSession();
        if (!its_session.ok()) return its_session.status();
        return (*its_session)->Get(**same_tree, key).status();
      });
    }
  }
  template <typename Operation>
  void Timed(const char* what, const Operation& operation) {
    const int64_t begun_ns = RealClock().NowNs();
    const absl::Status status = operation();
    const int64_t took_ns = RealClock().NowNs() - begun_ns;
    EXPECT_TRUE(status.ok()) << what << ": " << status;
    if (took_ns <= slowest_ns_) return;
    slowest_ns_ = took_ns;
    slowest_ = what;
  }

  IntegrationCluster* const cluster_;
  const Bystander bystander_;
  std::atomic<bool> over_{false};
  std::atomic<int> rounds_{0};
  int64_t slowest_ns_ = 0;    // the worker's until it has ended
  const char* slowest_ = "";  // likewise
  std::thread thread_;
};

}  // namespace pando

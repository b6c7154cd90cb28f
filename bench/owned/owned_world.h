// A simulated cluster whose clients own keys, die, and are followed by others: for tests of owned
// trees.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/random.h"
#include "compute/client/connect.h"
#include "pando/client.h"

namespace pando {

// A compute server with one session and one owned tree. May be killed; then its handles are closed
// from outside.
class OwnerProcess {
 public:
  OwnerProcess(SimCluster* cluster, const ClientOptions& options, const TreeOptions& tree)
      : world_(cluster->world()), fabric_(world_.NewFabric()) {
    auto client = ConnectOverFabric(options, fabric_);
    PANDO_CHECK_OK(client.status());
    client_ = *std::move(client);
    auto opened = client_->CreateTree("t", tree);
    PANDO_CHECK_OK(opened.status());
    tree_ = *std::move(opened);
    auto session = client_->NewSession();
    PANDO_CHECK_OK(session.status());
    session_ = *std::move(session);
  }

  // So many events from now, between two of them.
  void KillAt(int64_t time_ns) {
    world_.At(time_ns, [this, fabric = fabric_] {
      world_.KillFabric(*fabric);
      killed_ = true;
    });
  }
  bool killed() const { return killed_; }
  Client& client() { return *client_; }
  Session& session() { return *session_; }
  const Tree& tree() const { return *tree_; }
  void CloseTree() {
    session_.reset();
    tree_.reset();
  }
  void Close() {
    CloseTree();
    client_.reset();
  }

 private:
  sim::SimWorld& world_;
  std::shared_ptr<Fabric> fabric_;
  bool killed_ = false;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

// What may be found of a key whose writes are made one after the other: the last state that was
// acknowledged, or one that was tried since.
class KeyTruth {
 public:
  using Value = std::optional<std::string>;  // none: absent

  void Try(const Value& value) { perhaps_.insert(value); }
  void Acknowledge(const Value& value) {
    known_ = value;
    perhaps_.clear();
  }
  bool MayBe(const Value& value) const { return value == known_ || perhaps_.contains(value); }
  // It was read: that is what it is.
  void See(const Value& value) { Acknowledge(value); }
  const Value& known() const { return known_; }
  bool is_certain() const { return perhaps_.empty(); }

 private:
  Value known_;
  std::set<Value> perhaps_;
};

inline KeyTruth::Value Found(const absl::StatusOr<std::string>& got) {
  return got.ok() ? KeyTruth::Value(*got) : std::nullopt;
}

}  // namespace pando

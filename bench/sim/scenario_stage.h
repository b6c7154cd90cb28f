// What the scenarios share that let the production clients do everything themselves: a cluster,
// clients that can be stopped, and a look at what is left in the end.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/cost/sim_cluster.h"
#include "bench/sim/one_client.h"
#include "bench/sim/sim_run.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"

namespace pando {

class Stage {
 public:
  explicit Stage(const SimCluster::Options& options, TreeOptions tree = {})
      : cluster_(options), tree_options_(tree) {}

  // What must be there in the end, and nothing else.
  std::map<std::string, std::string>& contents() { return contents_; }

 protected:
  // Somebody of whom no memory server knows: a lock word with it stays until it is set free.
  static constexpr uint64_t kSomebody = LockWord{777, 5}.Encode();

  sim::SimWorld& world() { return cluster_.world(); }

  OneClient Join(ClientOptions options = {}) {
    OneClient client;
    client.fabric = world().NewFabric();
    options.seed = ++clients_;
    client.client = *ConnectOverFabric(options, client.fabric);
    client.tree = *client.client->CreateTree("t", tree_options_);
    client.session = *client.client->NewSession();
    return client;
  }
  void Put(const OneClient& client, const std::string& key, int64_t timeout_ms = 0) {
    Expect(client.session->Put(*client.tree, key, "v", {.timeout_ms = timeout_ms}), "put");
    contents_[key] = "v";
  }
  void Erase(const OneClient& client, const std::string& key) {
    Expect(client.session->Erase(*client.tree, key), "erase");
    client.session->Run();  // a merge is a task of its own
    contents_.erase(key);
  }
  // Begins a put in a task of the client's; `status` is what comes of it.
  void StartPut(const OneClient& client, const std::string& key, absl::Status* status) {
    *status = absl::UnknownError("it has not ended");
    client.session->Spawn(
        [&client, key, status] { *status = client.session->Put(*client.tree, key, "v"); });
    ImplOf(*client.session).scheduler().endpoint().Wake();
  }
  void RunFor(int64_t ns) { world().RunUntil(world().clock().NowNs() + ns); }

  void Expect(const absl::Status& status, const char* what) {
    if (!status.ok()) Problem(absl::StrCat(what, ": ", status.ToString()));
  }
  void Problem(std::string what) { result_.problems.push_back(std::move(what)); }

  // By somebody who comes last: every one of `gone` is missing, everything else is there, and the
  // tree is whole.
  SimRunResult Conclude(const std::vector<std::string>& gone) {
    const OneClient last = Join();
    for (const auto& [key, value] : contents_) {
      Expect(last.session->Get(*last.tree, key, {.timeout_ms = 50}).status(),
             "a key that is there");
    }
    for (const std::string& key : gone) {
      const absl::Status status = last.session->Get(*last.tree, key, {.timeout_ms = 50}).status();
      if (!absl::IsNotFound(status)) {
        Problem(absl::StrCat("a key that was erased: ", status.ToString()));
      }
    }
    const auto report = last.session->Check(*last.tree, {.quiet_tree = true});
    Expect(report.status(), "check");
    if (report.ok()) {
      for (const std::string& problem : report->problems) Problem(problem);
    }
    result_.operations = contents_.size() + gone.size();
    result_.trace_hash = world().trace_hash();
    return std::move(result_);
  }

  SimCluster cluster_;

 private:
  const TreeOptions tree_options_;
  uint64_t clients_ = 0;
  std::map<std::string, std::string> contents_;
  SimRunResult result_;
};

}  // namespace pando

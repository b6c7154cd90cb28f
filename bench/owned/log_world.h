// One memory server without a handler, and sessions that use its memory: what the log's tests stand
// on.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/epoch.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/core/session_context.h"
#include "compute/log/redo_log.h"

namespace pando {

class LogWorld {
 public:
  static constexpr ServerId kServer = 1, kOther = 2;
  static constexpr uint64_t kLife = 1, kLogAt = 1 << 20, kRegionBytes = 8 << 20;

  struct Member {
    std::shared_ptr<Fabric> fabric;
    std::vector<std::unique_ptr<SessionContext>> sessions;
  };

  explicit LogWorld(const sim::SimOptions& sim) : world_(sim) {
    memory_ = world_.AddServer(kServer, kRegionBytes, 4096);
    membership_.Publish(kServer, kLife, 0);
    world_.AddServer(kOther, kRegionBytes, 4096);
    membership_.Publish(kOther, kLife, 0);
  }

  Member Join(int sessions, int coroutines) {
    Member member{world_.NewFabric(), {}};
    for (int i = 0; i < sessions; ++i) {
      auto endpoint = member.fabric->Connect(++id_, 1);
      PANDO_CHECK_OK(endpoint.status());
      member.sessions.push_back(std::make_unique<SessionContext>(
          *std::move(endpoint), &epochs_, coroutines, world_.options().seed + id_));
      member.sessions.back()->set_membership(&membership_);
    }
    return member;
  }

  static RedoLog::Options OptionsOf(uint64_t ring_bytes, uint32_t batch_bytes_max) {
    RedoLog::Options options;
    options.extent = {kServer, kLife, kLogAt, ring_bytes + kLogRingOffset};
    options.log_id = 77;
    options.epoch = 3;
    options.batch_bytes_max = batch_bytes_max;
    options.times.lock_recovery_poll_ns = 20 * kMicrosecondNs;
    return options;
  }

  static void Spawn(SessionContext& session, int64_t timeout_ns,
                    std::function<void(OperationContext&)> job) {
    session.scheduler().Spawn([&session, timeout_ns, job = std::move(job)] {
      OperationContext context(&session, session.NowNs() + timeout_ns);
      job(context);
    });
    session.endpoint().Wake();
  }
  // Now, and to its end.
  static void Run(SessionContext& session, std::function<void(OperationContext&)> job,
                  int64_t timeout_ns = kSecondNs) {
    Spawn(session, timeout_ns, std::move(job));
    session.scheduler().Drain();
  }
  std::unique_ptr<RedoLog> Create(SessionContext& session, const RedoLog::Options& options) {
    std::unique_ptr<RedoLog> log;
    Run(session, [&](OperationContext& context) {
      auto created = RedoLog::Create(context, options);
      PANDO_CHECK_OK(created.status());
      log = *std::move(created);
    });
    return log;
  }

  sim::SimWorld& world() { return world_; }
  int64_t NowNs() const { return world_.clock().NowNs(); }
  std::byte* Log() { return memory_.main.data() + kLogAt; }
  void Quiet() { world_.RunUntil(NowNs() + 20 * kMillisecondNs); }

 private:
  sim::SimWorld world_;
  ServerMemory memory_;
  Membership membership_;
  EpochDomain epochs_;
  uint16_t id_ = 0;
};

}  // namespace pando

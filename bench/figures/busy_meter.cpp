#include "bench/figures/busy_meter.h"

#include <algorithm>
#include <utility>

#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando::bench {
namespace {

// Without a timing model nobody spends anything.
sim::CpuMeter::Spent SpentBy(const SessionContext& session) {
  const auto* const meter = dynamic_cast<const sim::CpuMeter*>(session.cpu_costs());
  return meter == nullptr ? sim::CpuMeter::Spent() : meter->spent();
}

}  // namespace

BusyMeter::Reading BusyMeter::Read() const {
  Reading reading = {.nics = world_.nic_use(), .held_ns = HeldNs(owners_)};
  for (const SessionContext* const user : users_) reading.users.push_back(SpentBy(*user));
  for (const OwnedServer& owner : owners_) {
    const Member::Sessions sessions = ImplOf(*owner.client).member()->sessions();
    for (const SessionContext* const one : sessions.flushes) {
      reading.flushes.push_back(SpentBy(*one));
    }
    for (const SessionContext* const one : sessions.service) {
      reading.service.push_back(SpentBy(*one));
    }
  }
  return reading;
}

void BusyMeter::Begin(std::vector<const SessionContext*> users, std::vector<OwnedServer> owners) {
  users_ = std::move(users);
  owners_ = std::move(owners);
  begin_ = Read();
}

CaseResult::Busy BusyMeter::End(int64_t span_ns) const {
  CaseResult::Busy busy;
  const Reading end = Read();
  // An error may end the run in its warm-up.
  if (end.nics.size() != begin_.nics.size() || span_ns <= 0) return busy;
  const auto share = [&](auto ns) {
    return static_cast<double>(ns) / static_cast<double>(span_ns);
  };
  for (size_t i = 0; i < end.nics.size(); ++i) {
    const sim::NicUse& now = end.nics[i];
    const sim::NicUse& then = begin_.nics[i];
    busy.link = std::max({busy.link, share(now.link_out_ns - then.link_out_ns),
                          share(now.link_in_ns - then.link_in_ns)});
    busy.engines = std::max(
        {busy.engines, share(now.send_ns - then.send_ns), share(now.receive_ns - then.receive_ns)});
    busy.pcie = std::max(busy.pcie, share(now.pcie_ns - then.pcie_ns));
    busy.atomics = std::max(busy.atomics, share(now.atomics_ns - then.atomics_ns));
    busy.lock = std::max(busy.lock, share(now.lock_ns - then.lock_ns));
  }
  // A range may have moved: then it is not known.
  for (size_t i = 0; i < end.held_ns.size() && end.held_ns.size() == begin_.held_ns.size(); ++i) {
    busy.partition = std::max(busy.partition, share(end.held_ns[i] - begin_.held_ns[i]));
  }
  const auto threads = static_cast<double>(std::max<size_t>(1, users_.size()));
  for (size_t i = 0; i < end.users.size(); ++i) {
    busy.cpu += share(end.users[i].all_ns - begin_.users[i].all_ns) / threads;
    busy.waits += share(end.users[i].waited_ns - begin_.users[i].waited_ns) / threads;
  }
  const auto busiest = [&](const Threads& before, const Threads& after) {
    double most = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      most = std::max(most, share(after[i].all_ns - before[i].all_ns));
    }
    return most;
  };
  busy.flush = busiest(begin_.flushes, end.flushes);
  busy.service = busiest(begin_.service, end.service);
  return busy;
}

}  // namespace pando::bench

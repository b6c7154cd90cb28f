#include "bench/figures/owned_servers.h"

#include <mutex>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"

namespace pando::bench {
namespace {

// As many as an owner with so many threads is told to have (ClientOptions::ranges_min): with four,
// threads wait for the busiest of them.
constexpr int kRangesEach = 16;
constexpr int64_t kMoveNs = 10 * kSecondNs;
constexpr int64_t kAgainNs = kMillisecondNs;
// Of what is drawn: how many times as much as there is.
constexpr uint64_t kDrawsEach = 3;

uint64_t BorderOf(int range, int ranges, uint64_t key_space) {
  return static_cast<uint64_t>(range) * key_space / static_cast<uint64_t>(ranges);
}

// In a task of the session, again as long as it is "not now".
absl::Status InTask(Session* session, const std::function<absl::Status(OperationContext&)>& job) {
  SessionContext* const context = &ImplOf(*session).context();
  absl::Status status;
  session->Spawn([&] {
    OperationContext operation(context, context->NowNs() + kMoveNs);
    while (true) {
      status = job(operation);
      if (!absl::IsAborted(status) || operation.expired()) return;
      context->scheduler().SleepUntil(context->NowNs() + kAgainNs);
    }
  });
  session->Run();
  return status;
}

OwnedTree* OwnedOf(const OwnedServer& server) { return ImplOf(*server.tree).routed().owned(); }
Member* MemberOf(const OwnedServer& server) { return ImplOf(*server.client).member(); }

}  // namespace

int OwnerOf(uint64_t number, uint64_t key_space, int servers) {
  const auto ranges = static_cast<uint64_t>(servers * kRangesEach);
  return static_cast<int>(((number + 1) * ranges - 1) / key_space) / kRangesEach;
}

absl::Status DivideKeys(const Snapshot& snapshot, std::span<const OwnedServer> servers) {
  const OwnedServer& first = servers.front();
  const auto count = static_cast<int>(servers.size());
  const int ranges = count * kRangesEach;
  const auto key_of = [&](int range) {
    return snapshot.keys().Make(BorderOf(range, ranges, snapshot.key_space()));
  };
  const auto divide = [&](const OwnedServer& server, int range) {
    return InTask(server.session, [&](OperationContext& context) {
      return MemberOf(server)->Split(context, OwnedOf(server), key_of(range));
    });
  };
  PANDO_RETURN_IF_ERROR(InTask(first.session, [&](OperationContext& context) {
    return MemberOf(first)->Obtain(context, OwnedOf(first), key_of(0));
  }));
  // What each is to have goes there as one range: a member has at most 64.
  for (int i = 1; i < count; ++i) PANDO_RETURN_IF_ERROR(divide(first, i * kRangesEach));
  for (int i = 1; i < count; ++i) {
    const OwnedServer& to = servers[static_cast<size_t>(i)];
    PANDO_RETURN_IF_ERROR(InTask(first.session, [&](OperationContext& context) {
      return MemberOf(first)->Give(context, OwnedOf(first), key_of(i * kRangesEach),
                                   MemberOf(to)->self());
    }));
    if (OwnedOf(to)->FindOwn(key_of(i * kRangesEach)) == nullptr) {
      return absl::UnavailableError("a range was given to a compute server that has not taken it");
    }
  }
  for (int range = 1; range < ranges; ++range) {
    if (range % kRangesEach == 0) continue;
    PANDO_RETURN_IF_ERROR(divide(servers[static_cast<size_t>(range / kRangesEach)], range));
  }
  return absl::OkStatus();
}

std::vector<int64_t> HeldNs(std::span<const OwnedServer> servers) {
  std::vector<int64_t> held;
  for (const OwnedServer& server : servers) {
    for (OwnRange* const range : OwnedOf(server)->OwnRanges()) {
      held.push_back(range->partition.busy().taken_ns());
    }
  }
  return held;
}

void WarmRecords(const Snapshot& snapshot, std::span<const OwnedServer> servers, size_t hot_bytes,
                 const std::function<uint64_t(Random*)>& draw, uint64_t seed) {
  const std::string value(snapshot.options().value_bytes, '\0');
  std::vector<size_t> bytes(servers.size(), 0);
  std::string key;
  size_t full = 0;
  Random random(seed);
  const auto add = [&](uint64_t number) {
    const auto owner = static_cast<size_t>(
        OwnerOf(number, snapshot.key_space(), static_cast<int>(servers.size())));
    if (bytes[owner] >= hot_bytes || !Snapshot::LoadedKey(number)) return;
    snapshot.keys().Make(number, &key);
    OwnRange* const range = OwnedOf(servers[owner])->FindOwn(key);
    Partition& partition = range->partition;
    std::lock_guard lock(partition.mutex());
    if (partition.Find(key).state != RecordState::kAbsent) return;
    const Member::Sizes before = Member::SizesOf(partition);
    partition.EndLoad(key, partition.BeginLoad(key), value, /*keep=*/true);
    MemberOf(servers[owner])->NoteChange(before, partition);
    bytes[owner] += partition.bytes() - before.bytes;
    if (bytes[owner] >= hot_bytes) ++full;
  };
  const uint64_t draws = kDrawsEach * snapshot.options().records;
  for (uint64_t i = 0; i < draws && full < servers.size(); ++i) add(draw(&random));
  for (uint64_t number = 0; number < snapshot.key_space() && full < servers.size(); ++number) {
    add(number);
  }
}

}  // namespace pando::bench

// pando-chaos --upserts: compute servers add to the counters of an owned tree, as fast as they can,
// while those that own most of them are killed. What each has begun and heard of stands in a file
// that is mapped, so that a kill -9 loses nothing of it but, once a thread, an upsert that it had
// taken from the plan and not begun.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/chaos/plan.h"

namespace pando::chaos {

inline constexpr uint64_t kUpsertCounters = 1'000;

struct UpsertsReport {
  uint64_t acknowledged = 0;
  uint64_t unknown = 0;    // their outcome; what the killed had under way included
  uint64_t no_effect = 0;  // refused, as far as is known without any effect
  uint64_t wrong_sums =
      0;  // counters below what was acknowledged, or above that and what is unknown
  uint64_t kills = 0;
  uint64_t adoptions = 0;   // ranges that others took over from the killed
  uint64_t leaf_reads = 0;  // by the owners of counters
  double seconds = 0;

  // Of the plan's upserts.
  int64_t NotBegun(const Plan& plan) const {
    return static_cast<int64_t>(plan.upserts - acknowledged - unknown - no_effect);
  }
  // Every sum is right, each of the killed was followed, leaves are rarely READ, and all upserts
  // were begun but for at most one a thread that was killed.
  bool ok(const Plan& plan) const;
  std::string Text(const Plan& plan) const;
  nlohmann::json Json(const Plan& plan) const;
};

// The coordinator. Cancelled: `stop_fd` became readable. DeadlineExceeded: no upsert ended for
// longer than one may take.
absl::StatusOr<UpsertsReport> RunUpserts(const Plan& plan, int stop_fd);

// One compute server, which nobody starts again.
absl::Status ServeUpserts(const Plan& plan, int life);

}  // namespace pando::chaos

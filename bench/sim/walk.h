// Scans of a history that are done with a cursor: upwards or downwards, from a bound or a sought
// key, with pauses in between, and back again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "bench/history/history.h"
#include "common/base/random.h"
#include "pando/client.h"

namespace pando {

struct Walk {
  bool down = false;
  bool seeks = false;                // to the scan's key; else that is the cursor's bound
  bool turns = false;                // and goes back afterwards
  std::optional<std::string> until;  // the bound on the other side
  int read_ahead = 0;
  int64_t pause_ns = 0;  // before each entry, now and then longer than others need for a split
};
Walk RandomWalk(const std::string& any_key, Random* random);

// Does the scan so, and makes it what was seen: a walk downwards is a scan of what it has passed,
// with its rows in ascending order. `back`: what was seen on the way back. Calls that end because a
// queue pair broke are repeated: the cursor goes on where it was. Inside a task of the session.
absl::Status PerformWalk(Session& session, const Tree& tree, const Walk& walk,
                         history::Operation* scan, std::optional<history::Operation>* back);

}  // namespace pando

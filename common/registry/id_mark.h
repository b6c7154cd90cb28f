// How far the ids of a cluster have been given out (rule C0), kept where the registry is, so that a
// restarted catalog goes on above them whatever its clock says. In a directory the file "ids",
// replaced whole and synchronised; in a memcached a key that does not expire.
//
// One catalog writes at a time: the registry gives each server id to one live process. One that was
// stopped until its id was given to another, and goes on, finds a mark that it has not written, and
// gives nothing more out. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

class IdMark {
 public:
  virtual ~IdMark() = default;

  // The least id that may not have been given out yet. Nothing: none is kept, or what is there is
  // none (it is logged): this is the first start, or the registry was lost. Unavailable: the
  // registry does not answer.
  virtual absl::StatusOr<std::optional<uint32_t>> Load() = 0;

  // Once this is Ok, `mark` outlives this process, and in a directory the machine. An error:
  // perhaps it does. FailedPrecondition: what is kept is neither what Load() found nor what was
  // stored since: another catalog gives ids out.
  virtual absl::Status Store(uint32_t mark) = 0;
};

// `registry` as OpenRegistry() takes it, with the same statuses.
absl::StatusOr<std::unique_ptr<IdMark>> OpenIdMark(std::string_view registry);

}  // namespace pando

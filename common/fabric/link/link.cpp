#include "common/fabric/link/link.h"

#include "absl/strings/str_cat.h"

namespace pando {

absl::Status Link::GoneError() const {
  return absl::UnavailableError(
      absl::StrCat("server ", location.id, " (", location.address, "): the memory server is gone"));
}

}  // namespace pando

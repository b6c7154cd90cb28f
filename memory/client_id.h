// One life of a compute server, as memory servers know it.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pando::memory {

struct ClientId {
  uint16_t compute_server = 0;  // 0: nobody
  uint32_t incarnation = 0;

  friend bool operator==(const ClientId&, const ClientId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ClientId& id) {
    return H::combine(std::move(h), id.compute_server, id.incarnation);
  }
  std::string ToString() const {
    return absl::StrCat("compute server ", compute_server, " (incarnation ", incarnation, ")");
  }
};

}  // namespace pando::memory

// The identity key of simulated memory servers: the same in every run, as everything there is. It
// is public; servers that strangers can reach have one of their own.
#pragma once

#include <memory>
#include <string>

#include "common/auth/identity_key.h"
#include "common/base/check.h"

namespace pando::memory {

inline std::shared_ptr<const IdentityKey> SimIdentityKey() {
  absl::StatusOr<IdentityKey> key = IdentityKey::FromBytes(std::string(kIdentityKeyBytes, 's'));
  PANDO_CHECK_OK(key.status());
  return std::make_shared<const IdentityKey>(*std::move(key));
}

}  // namespace pando::memory

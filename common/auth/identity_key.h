// The key with which the catalog's server signs the identities that it issues, and with which the
// other memory servers know them (rule C0). A client carries the signature; no client makes one.
//
// Where it comes from, and so who could make one:
//   - the cluster's secret, if it has one: every process that was given the secret, clients too. It
//     stops strangers and mistakes then, no client that forges.
//   - else a file that the servers of one registry share and make when they first start: whoever
//     may read it, that is, processes of the servers' user.
// A cluster that has neither (servers found through a memcached, no secret) has no key, and takes
// clients at their word.
//
// Thread safety: immutable but for moves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/auth/cluster_secret.h"
#include "common/auth/hmac.h"

namespace pando {

class IdentityKey {
 public:
  static IdentityKey FromSecret(const ClusterSecret& secret);
  // InvalidArgument: not kIdentityKeyBytes.
  static absl::StatusOr<IdentityKey> FromBytes(std::string_view bytes);
  // Reads the file, or makes it, random and readable by its owner alone, where it is not there: of
  // several that do so at once all get the same. `path` is in a directory of the user's own.
  // PermissionDenied: the file is not his alone. DataLoss: something else is in it (says what to
  // do). Others: it cannot be read or made.
  static absl::StatusOr<IdentityKey> LoadOrMake(const std::string& path);

  IdentityKey(IdentityKey&& other) noexcept;
  IdentityKey& operator=(IdentityKey&&) = delete;
  ~IdentityKey();  // wipes the bytes

  Mac Sign(uint16_t compute_server, uint32_t incarnation) const;
  bool Verify(uint16_t compute_server, uint32_t incarnation, const Mac& proof) const;

 private:
  explicit IdentityKey(std::string_view bytes) : bytes_(bytes) {}
  std::string bytes_;
};

inline constexpr size_t kIdentityKeyBytes = 32;

// As above: of the secret where there is one (nullptr: there is none), else of the file; nullptr
// where `path` is empty, too.
absl::StatusOr<std::shared_ptr<const IdentityKey>> FindIdentityKey(const ClusterSecret* secret,
                                                                   const std::string& path);

}  // namespace pando

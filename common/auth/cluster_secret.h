// The secret that the processes of one cluster share: the content of the file that --secret_file
// names. It never leaves the process; mutual_proof.h proves that one has it.
//
// Thread safety: immutable but for moves.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

inline constexpr size_t kSecretBytesMin = 16;
inline constexpr size_t kSecretBytesMax = 4096;

class ClusterSecret {
 public:
  // Reads the file; one line break at its end is no part of the secret. NotFound: there is no file.
  // PermissionDenied: others than its owner may read or write it, it belongs to another user (and
  // not to root), or it cannot be opened; the message has the command that mends it.
  // InvalidArgument: no regular file, or fewer than kSecretBytesMin or more than kSecretBytesMax
  // bytes.
  static absl::StatusOr<ClusterSecret> Load(const std::string& path);
  // InvalidArgument: too short or too long.
  static absl::StatusOr<ClusterSecret> FromBytes(std::string_view bytes);

  ClusterSecret(ClusterSecret&& other) noexcept;
  ClusterSecret& operator=(ClusterSecret&& other) noexcept;
  ~ClusterSecret();  // wipes the bytes

  std::string_view bytes() const { return bytes_; }

 private:
  explicit ClusterSecret(std::string_view bytes) : bytes_(bytes) {}
  void Wipe();

  std::string bytes_;
};

// What --secret_file names; nullptr if that is empty. Statuses as ClusterSecret::Load().
absl::StatusOr<std::shared_ptr<const ClusterSecret>> LoadClusterSecret(const std::string& path);

}  // namespace pando

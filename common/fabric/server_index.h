// Where a memory server stands among those that a client is connected to.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/wire/remote_address.h"

namespace pando {

class ServerIndex {
 public:
  static constexpr int kNone = -1;

  ServerIndex() = default;
  // InvalidArgument: two are the same.
  static absl::StatusOr<ServerIndex> Create(const std::vector<ServerId>& servers);

  // A server more, or another place.
  void Set(ServerId server, int index);

  // The server's place in what Create() was given, or kNone.
  int Of(ServerId server) const {
    return server < index_by_id_.size() ? index_by_id_[server] : kNone;
  }

 private:
  std::vector<int> index_by_id_;
};

// Unavailable, and IsNotConnected(). Not the caller's mistake: the address came from remote memory,
// and servers come and go. `what`: the verb or call.
absl::Status UnknownServerError(ServerId server, absl::string_view what);
// Nothing was posted, since the endpoint has no connection to the server, and never had.
bool IsNotConnected(const absl::Status& status);

}  // namespace pando

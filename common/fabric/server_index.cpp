#include "common/fabric/server_index.h"

#include "absl/strings/str_cat.h"

namespace pando {

absl::StatusOr<ServerIndex> ServerIndex::Create(const std::vector<ServerId>& servers) {
  ServerIndex index;
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerId server = servers[i];
    if (server >= index.index_by_id_.size()) index.index_by_id_.resize(server + size_t{1}, kNone);
    if (index.index_by_id_[server] != kNone) {
      return absl::InvalidArgumentError(absl::StrCat("two memory servers have the id ", server));
    }
    index.index_by_id_[server] = static_cast<int>(i);
  }
  return index;
}

absl::Status UnknownServerError(ServerId server, absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("server ", server, ": ", what, ": this client is not connected to it"));
}

}  // namespace pando

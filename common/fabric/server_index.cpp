#include "common/fabric/server_index.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace pando {
namespace {

constexpr char kNotConnectedUrl[] = "pando/not-connected";

}  // namespace

absl::StatusOr<ServerIndex> ServerIndex::Create(const std::vector<ServerId>& servers) {
  ServerIndex index;
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerId server = servers[i];
    if (index.Of(server) != kNone) {
      return absl::InvalidArgumentError(absl::StrCat("two memory servers have the id ", server));
    }
    index.Set(server, static_cast<int>(i));
  }
  return index;
}

void ServerIndex::Set(ServerId server, int index) {
  if (server >= index_by_id_.size()) index_by_id_.resize(server + size_t{1}, kNone);
  index_by_id_[server] = index;
}

absl::Status UnknownServerError(ServerId server, absl::string_view what) {
  absl::Status status = absl::UnavailableError(
      absl::StrCat("server ", server, ": ", what, ": this client is not connected to it"));
  status.SetPayload(kNotConnectedUrl, absl::Cord());
  return status;
}

bool IsNotConnected(const absl::Status& status) {
  return status.GetPayload(kNotConnectedUrl).has_value();
}

}  // namespace pando

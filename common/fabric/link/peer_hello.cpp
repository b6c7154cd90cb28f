#include "common/fabric/link/peer_hello.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/body.h"

namespace pando {

PeerHello MakePeerHello(const PeerIdentity& identity) {
  PeerHello hello;
  hello.compute_server = identity.compute_server;
  hello.incarnation = identity.incarnation;
  return hello;
}

absl::StatusOr<PeerHello> ParsePeerHello(std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const PeerHello hello, ParseBody<PeerHello>(body, "a peer's hello"));
  if ((hello.incompatible & ~kPeerIncompatibleKnown) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other compute server needs features of links that this one does not "
                     "know (",
                     absl::Hex(hello.incompatible & ~kPeerIncompatibleKnown),
                     "): use the same release of Pando on both"));
  }
  return hello;
}

absl::Status CheckRefusal(const absl::Status& refusal) {
  switch (refusal.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
      return refusal;
    default:
      return absl::DataLossError(absl::StrCat(
          "the other end refuses for no reason that it may have: ", refusal.message()));
  }
}

}  // namespace pando

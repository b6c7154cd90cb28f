#include "common/fabric/verb_check.h"

#include "absl/strings/str_cat.h"
#include "common/fabric/server_index.h"

namespace pando {

const char* VerbName(VerbKind kind) {
  switch (kind) {
    case VerbKind::kRead:
      return "READ";
    case VerbKind::kWrite:
      return "WRITE";
    case VerbKind::kCompareSwap:
      return "CAS";
    case VerbKind::kFetchAdd:
      return "FAA";
  }
  return "unknown verb";
}

std::string DescribeVerb(const Verb& verb) {
  return absl::StrCat(VerbName(verb.kind), " of ", verb.bytes, " bytes at ",
                      verb.space == MemorySpace::kMain ? "main+" : "locks+", verb.offset);
}

absl::Status VerbError(ServerId server, const Verb& verb, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("server ", server, ": ", DescribeVerb(verb), ": ", reason));
}

absl::Status UnknownServerError(const Chain& chain) {
  return UnknownServerError(
      chain.server(), chain.size() == 0 ? "empty chain" : VerbName(chain.verbs().front().kind));
}

}  // namespace pando

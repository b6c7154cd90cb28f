#include "common/fabric/verbs/completion_error.h"

#include "absl/strings/str_cat.h"
#include "common/fabric/verb_check.h"

namespace pando {
namespace {

const char* Hint(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the server, its port or the network in between does not answer; is the link up, and "
             "do GID and MTU fit on both sides?";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the server's queue pair was not ready";
    case IBV_WC_REM_ACCESS_ERR:
      return "the server's memory is no longer what this client knows; was it restarted?";
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "the server's device refused the verb; see its kernel log";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair had broken before";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
      return "this host's device refused the verb";
    case IBV_WC_FATAL_ERR:
      return "the device failed; see this host's kernel log";
    default:
      return "see the kernel logs of both hosts";
  }
}

}  // namespace

std::string DescribeCompletionStatus(ibv_wc_status status) {
  return absl::StrCat(ibv_wc_status_str(status), ": ", Hint(status));
}

absl::Status BrokenChainError(const ServerLocation& server, const Chain& chain, size_t verb,
                              const std::string& reason) {
  const std::string what =
      verb < chain.size() ? DescribeVerb(chain.verbs()[verb]) : std::string("empty chain");
  return absl::UnavailableError(
      absl::StrCat("server ", server.id, " (", server.address, "): ", what, ": ", reason));
}

}  // namespace pando

#include "common/fabric/link/served_link.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace pando {

absl::StatusOr<std::string> ServedLink::AnswerCall(ControlHandler* handler,
                                                   std::string_view request,
                                                   size_t reply_bytes_max) const {
  std::string reply = handler->Handle(peer_, request);
  if (reply.size() <= reply_bytes_max) return reply;
  const absl::Status status = absl::InternalError(
      absl::StrCat("reply of ", reply.size(), " bytes is over ", reply_bytes_max));
  PANDO_LOG(ERROR) << status;
  return status;
}

}  // namespace pando

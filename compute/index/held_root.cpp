#include "compute/index/held_root.h"

#include <utility>

#include "common/base/status.h"

namespace pando {

absl::Status HeldRoot::Hold() {
  BufferPool& buffers = context_.session.buffers();
  if (line_.data() == nullptr) {
    PANDO_ASSIGN_OR_RETURN(line_, buffers.Lease(kLineBytes));
    PANDO_ASSIGN_OR_RETURN(image_, buffers.Lease(tree_.layout.node_bytes()));
  }
  PANDO_ASSIGN_OR_RETURN(
      HeldLock lock, tree_.environment.hocl.Acquire(context_, tree_.RootLock(), line_.buffer()));
  locks_.Adopt(std::move(lock));
  accepted_ = DecodeRootRecord(line_.data(), tree_.id(), tree_.environment.crc, &record_) ==
              RootVerdict::kAccepted;
  return absl::OkStatus();
}

absl::Status RecordDamaged() {
  return absl::DataLossError("the root record is inconsistent under its lock");
}

}  // namespace pando

#include "bench/sim/perform_by.h"

#include <string>

#include "bench/perform/perform.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {

absl::Status PerformBy(Session& session, const Tree& tree, int64_t timeout_ns,
                       history::Operation* o) {
  SessionImpl& impl = ImplOf(session);
  const int64_t deadline_ns = impl.context().NowNs() + timeout_ns;
  if (!IsWrite(*o)) return impl.Get(tree, o->key, &o->value, {}, deadline_ns);
  std::string seen;
  const Write::Kind kind = WriteKindOf(o->kind);
  const absl::Status status =
      o->kind == history::OperationKind::kUpsert
          ? impl.Upsert(tree, o->key, FunctionOf(o->upsert), o->operand, {}, deadline_ns, &seen)
          : impl.Write(tree, {kind, o->key, MayErase(kind) ? "" : o->value, o->expected}, {},
                       deadline_ns, &seen);
  FillIn(status, seen, o);
  return status;
}

}  // namespace pando

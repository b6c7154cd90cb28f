// What stands behind the handles of pando/client.h, for the library itself and for programs that
// look inside it (bench). Not installed.
#pragma once

#include <memory>
#include <utility>

#include "pando/client.h"

namespace pando {

// The friend of all handles.
struct ImplAccess {
  template <typename Handle>
  static const auto& Pointer(const Handle& handle) {
    return handle.impl_;
  }
  template <typename Handle, typename Impl>
  static std::unique_ptr<Handle> Make(Impl impl) {
    return std::unique_ptr<Handle>(new Handle(std::move(impl)));
  }
};

inline ClientImpl& ImplOf(const Client& client) { return *ImplAccess::Pointer(client); }
inline SessionImpl& ImplOf(const Session& session) { return *ImplAccess::Pointer(session); }
inline TreeImpl& ImplOf(const Tree& tree) { return *ImplAccess::Pointer(tree); }
inline const std::shared_ptr<TreeImpl>& SharedImplOf(const Tree& tree) {
  return ImplAccess::Pointer(tree);
}

}  // namespace pando

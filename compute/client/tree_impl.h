// What a Tree handle points to. Shared by all handles of one tree in a client; the last one
// detaches from the servers. Thread-safe.
#pragma once

#include "compute/index/tree_context.h"

namespace pando {

class ClientImpl;

class TreeImpl {
 public:
  TreeImpl(ClientImpl* client, CatalogEntry entry, NodeLayout layout, IndexEnvironment* environment)
      : context_(std::move(entry), layout, environment), client_(*client) {}
  ~TreeImpl();

  TreeContext& context() { return context_; }
  const TreeContext& context() const { return context_; }
  ClientImpl& client() const { return client_; }

 private:
  TreeContext context_;
  ClientImpl& client_;
};

}  // namespace pando

// What a Tree handle points to. Shared by all handles of one tree in a client; the last one
// detaches from the servers. Thread-safe.
#pragma once

#include <utility>

#include "compute/route/routed_tree.h"

namespace pando {

class ClientImpl;

class TreeImpl {
 public:
  TreeImpl(ClientImpl* client, CatalogEntry entry, NodeLayout layout, IndexEnvironment* environment)
      : routed_(std::move(entry), layout, environment), client_(*client) {}
  ~TreeImpl();

  RoutedTree& routed() { return routed_; }
  TreeContext& context() { return routed_.shared(); }
  const TreeContext& context() const { return routed_.shared(); }
  ClientImpl& client() const { return client_; }

 private:
  RoutedTree routed_;
  ClientImpl& client_;
};

}  // namespace pando

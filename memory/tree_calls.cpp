// The control calls about trees: what each checks, and who keeps what it says.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "memory/memory_server.h"

namespace pando::memory {

absl::StatusOr<std::string> MemoryServer::OnCreateTree(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const CreateTreeRequest create, ParseCreateTree(request.body));
  if (create.mode == TreeMode::kOwned) PANDO_RETURN_IF_ERROR(CheckServes());
  PANDO_ASSIGN_OR_RETURN(const CatalogEntry entry, catalog_.Create(create));
  return EncodeCatalogEntry(entry);
}

absl::StatusOr<std::string> MemoryServer::OnOpenTree(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const std::string name, ParseTreeName(request.body));
  PANDO_ASSIGN_OR_RETURN(const CatalogEntry entry, catalog_.Open(name));
  return EncodeCatalogEntry(entry);
}

absl::StatusOr<std::string> MemoryServer::OnListTrees(const Request&) {
  return EncodeCatalogList(catalog_.List());
}

absl::StatusOr<std::string> MemoryServer::OnDropTree(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const uint32_t tree_id, ParseTreeId(request.body));
  if (options_.is_catalog && !catalog_.Contains(tree_id)) {
    return absl::NotFoundError(absl::StrCat("there is no tree with id ", tree_id));
  }
  PANDO_ASSIGN_OR_RETURN(const bool unused, trees_.Drop(tree_id));
  const TreeServerList servers = options_.is_catalog ? catalog_.Drop(tree_id) : TreeServerList();
  ++counts_.trees_dropped;
  if (unused) unused_trees_.insert(tree_id);
  FreeUnusedTrees();
  return EncodeTreeServers(servers);
}

absl::StatusOr<std::string> MemoryServer::OnGrowTree(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const TreeGrowth growth, ParseTreeGrowth(request.body));
  if (catalog_.Contains(growth.tree_id)) {
    PANDO_RETURN_IF_ERROR(trees_.CheckUses(request.sender, growth.tree_id));
  }
  PANDO_RETURN_IF_ERROR(catalog_.Grow(growth));
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnListTreeServers(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const uint32_t tree_id, ParseTreeId(request.body));
  PANDO_ASSIGN_OR_RETURN(const TreeServerList servers, catalog_.ServersOf(tree_id));
  return EncodeTreeServers(servers);
}

absl::StatusOr<std::string> MemoryServer::OnAttachTree(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const TreeAttach attach, ParseTreeAttach(request.body));
  if (options_.is_catalog && !catalog_.Contains(attach.tree_id)) {
    return absl::NotFoundError(absl::StrCat("there is no tree with id ", attach.tree_id));
  }
  PANDO_RETURN_IF_ERROR(trees_.Attach(request.sender, attach.tree_id, attach.life));
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnDetachTree(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const TreeDetach detach, ParseTreeDetach(request.body));
  // A client that is not attached has nothing to detach; a repeat finds that it has happened.
  if (!trees_.CheckUses(request.sender, detach.tree_id).ok()) return std::string();
  if (detach.settled == TreeDetach::kCellsDue) nodes_.CellsBecomeDue(detach.tree_id);
  nodes_.CloseHolder(request.sender, detach.tree_id, detach.settled != TreeDetach::kInDoubt);
  if (trees_.Detach(request.sender, detach.tree_id)) unused_trees_.insert(detach.tree_id);
  FreeUnusedTrees();
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnListCells(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const CellQuery query, ParseCellQuery(request.body));
  PANDO_RETURN_IF_ERROR(trees_.CheckUses(request.sender, query.tree_id));
  return EncodeCellList(nodes_.ListCells(request.sender, query));
}

}  // namespace pando::memory

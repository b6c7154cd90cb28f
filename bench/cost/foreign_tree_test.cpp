// A catalog that has a tree of a later release.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "bench/cost/sim_cluster.h"
#include "common/wire/control.h"
#include "common/wire/superblock.h"

namespace pando {
namespace {

// A feature bit that no release has given a meaning to.
constexpr uint64_t kLaterKind = uint64_t{1} << 40;

// Stands before the catalog's server, and says of one tree that it is of a later kind.
class LaterCatalog : public ControlHandler {
 public:
  LaterCatalog(ControlHandler* server, std::string tree)
      : server_(*server), tree_(std::move(tree)) {}

  std::string Handle(PeerId peer, std::string_view request) override {
    const std::string reply = server_.Handle(peer, request);
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const ControlHeader& header = asked->header;
    const auto opcode = static_cast<ControlOpcode>(header.opcode);
    attached_ += opcode == ControlOpcode::kAttachTree ? 1 : 0;
    const absl::StatusOr<std::string_view> body = ParseReply(reply, opcode, header.sequence);
    if (!body.ok()) return reply;
    if (opcode == ControlOpcode::kListTrees) {
      std::vector<CatalogEntry> entries = *ParseCatalogList(*body);
      for (CatalogEntry& entry : entries) Mark(&entry);
      return EncodeReply(header, 1, EncodeCatalogList(entries));
    }
    if (opcode != ControlOpcode::kOpenTree && opcode != ControlOpcode::kCreateTree) return reply;
    CatalogEntry entry = *ParseCatalogEntry(*body);
    Mark(&entry);
    return EncodeReply(header, 1, EncodeCatalogEntry(entry));
  }
  bool IsKnown(PeerId peer) const override { return server_.IsKnown(peer); }
  void OnPeerGone(PeerId peer) override { server_.OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_.OnTimer(now_ns); }

  int attached() const { return attached_; }

 private:
  void Mark(CatalogEntry* entry) const {
    if (entry->name == tree_) entry->features.incompatible |= kLaterKind;
  }

  ControlHandler& server_;
  const std::string tree_;
  int attached_ = 0;
};

TEST(ForeignTreeTest, IsRefusedWhereItIsOpenedAndHarmsNoOther) {
  SimCluster cluster({});
  LaterCatalog catalog(&cluster.server(0), "later");
  auto client = cluster.NewClient();
  ASSERT_TRUE(client->CreateTree("later", {}).ok());
  ASSERT_TRUE(client->CreateTree("ours", {}).ok());
  cluster.world().SetHandler(1, &catalog);

  for (const absl::Status& refused :
       {client->OpenTree("later").status(), client->CreateTree("later", {}).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_NE(refused.message().find("tree 'later' is of a kind or a format"), std::string::npos)
        << refused;
    EXPECT_NE(refused.message().find("open it with the release that created it"), std::string::npos)
        << refused;
  }
  EXPECT_EQ(catalog.attached(), 0) << "nobody was told of a tree that is not used";

  const auto trees = client->ListTrees();
  ASSERT_TRUE(trees.ok()) << trees.status();
  EXPECT_EQ(trees->size(), 2u) << "who does not know the kind may still see that the tree is there";
  const auto tree = client->OpenTree("ours");
  ASSERT_TRUE(tree.ok()) << tree.status();
  const auto session = client->NewSession();
  ASSERT_TRUE((*session)->Put(**tree, "key", "value").ok());
  EXPECT_EQ(*(*session)->Get(**tree, "key"), "value");
  cluster.world().SetHandler(1, &cluster.server(0));
}

}  // namespace
}  // namespace pando

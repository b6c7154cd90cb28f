// What a memory server does when a compute server dies: rule C2, seen from outside.
#include <cstring>

#include "common/wire/dead_table.h"
#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

class DeathTest : public TwoClientsTest {
 protected:
  bool IsPublished(const ClientId& client) {
    uint64_t entry;
    const uint64_t offset = server_->superblock().dead_offset;
    std::memcpy(&entry, memory_.main() + offset + DeadEntryOffset(client.compute_server), 8);
    return SaysDead(entry, WordOf(client));
  }
};

TEST_F(DeathTest, TheLocksOfTheDeadAreFreeAndOthersCanReadWhy) {
  Start({.fence_words_per_step = 0});
  memory_.lock_words()[300] = WordOf(anna_->id);
  memory_.lock_words()[301] = WordOf(bert_->id);
  EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kJoined);
  EXPECT_EQ(server_->OnTimer(clock_.NowNs()), kNeverNs);
  server_->OnPeerGone(1);
  EXPECT_TRUE(IsPublished(anna_->id));
  EXPECT_EQ(memory_.lock_words()[300], 0u);
  EXPECT_EQ(memory_.lock_words()[301], WordOf(bert_->id));
  EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kDead);
  EXPECT_EQ(bert_->StateOf({anna_->id.compute_server, anna_->id.incarnation + 100}),
            ClientLiveness::kUnknown);
  EXPECT_EQ(server_->OnTimer(clock_.NowNs()), kNeverNs);
}

TEST_F(DeathTest, LeavingInOrderIsNoDeath) {
  Start({.fence_words_per_step = 0});
  ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
  server_->OnPeerGone(1);
  EXPECT_FALSE(IsPublished(anna_->id));
  EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kLeft);
}

TEST_F(DeathTest, StepByStepADeathIsPublishedThenFencedThenOver) {
  Start({.fence_words_per_step = 256});
  const auto tree = anna_->CreateTree("a");
  ASSERT_TRUE(tree.ok());
  ASSERT_TRUE(anna_->AttachTree(tree->tree_id).ok());
  const uint64_t used_bytes = server_->Info().used_bytes;
  ASSERT_GT(used_bytes, 0u);
  ASSERT_TRUE(bert_->DropTree(tree->tree_id).ok());
  memory_.lock_words()[1000] = WordOf(anna_->id);
  server_->OnPeerGone(1);
  EXPECT_FALSE(IsPublished(anna_->id));
  int steps = 0;
  for (int64_t next_ns = server_->OnTimer(clock_.now_ns); next_ns != kNeverNs; ++steps) {
    EXPECT_TRUE(IsPublished(anna_->id));
    EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kJoined) << "not fenced yet";
    EXPECT_EQ(server_->Info().used_bytes, used_bytes) << "the dead one's memory comes last";
    ASSERT_GT(next_ns, clock_.now_ns);
    EXPECT_EQ(server_->OnTimer(clock_.now_ns), next_ns) << "asked too early";
    clock_.now_ns = next_ns;
    next_ns = server_->OnTimer(clock_.now_ns);
  }
  EXPECT_EQ(steps, 1024 / 256);
  EXPECT_EQ(memory_.lock_words()[1000], 0u);
  EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kDead);
  EXPECT_EQ(server_->Info().used_bytes, 0u);
}

}  // namespace
}  // namespace pando::memory

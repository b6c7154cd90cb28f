// Session::Check() over shm: a good tree passes, also while it is worked on, and each kind of
// damage is found and named.
#include "pando/check.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/wire/internal_node.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"
#include "gmock/gmock.h"

namespace pando {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckTest : public testing::Test {
 protected:
  static constexpr int kKeys = 3'000;

  CheckTest() : client_(cluster_.NewClient()) {
    tree_ = client_->CreateTree("words", {}).value();
    session_ = client_->NewSession().value();
    for (int i = 0; i < kKeys; ++i) {
      PANDO_CHECK_OK(session_->Put(*tree_, Key(i), "v"));
    }
    session_->Run();  // separators that were noticed to be missing
  }
  static std::string Key(int i) { return std::to_string(100'000 + i); }

  CheckReport Check(bool quiet_tree = true) {
    auto report = session_->Check(*tree_, {.quiet_tree = quiet_tree, .recheck_ms = 200});
    PANDO_CHECK_OK(report.status());
    return *std::move(report);
  }
  // Says so on a quiet tree and on one that might be worked on.
  void ExpectProblem(const std::string& text) {
    EXPECT_THAT(Check(true).problems, Contains(HasSubstr(text)));
    EXPECT_THAT(Check(false).problems, Contains(HasSubstr(text)));
  }

  const TreeContext& context() const { return ImplOf(*tree_).context(); }
  const NodeLayout& layout() const { return context().layout; }
  bool crc() const { return context().environment.crc; }
  std::byte* At(RemoteAddress address) {
    return cluster_.memory(address.server()).main.data() + address.offset();
  }
  uint64_t* LockWordAt(ServerId server, uint32_t index) {
    return reinterpret_cast<uint64_t*>(cluster_.memory(server).locks.data()) + index;
  }
  RootRecord Record() {
    RootRecord record;
    PANDO_CHECK(DecodeRootRecord(At(context().entry.root_record), context().id(), crc(), &record) ==
                RootVerdict::kAccepted);
    return record;
  }
  // A leaf in the middle of the tree.
  Reference SomeLeaf() {
    RootRecord record = Record();
    for (; record.level > 0; --record.level) {
      InternalNode node;
      PANDO_CHECK_OK(DecodeInternal(At(record.root.address), layout(), &node));
      record.root = node.entries[node.entries.size() / 2].child;
    }
    return record.root;
  }
  void ChangeHeader(const Reference& node, const std::function<void(NodeHeader*)>& change) {
    std::byte* const image = At(node.address);
    NodeHeader header = ReadHeader(image, layout());
    change(&header);
    WriteHeader(image, layout(), header);
    SealNodeLevel(image, image, layout(), crc());
  }

  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST_F(CheckTest, AGoodTree) {
  const CheckReport report = Check();
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.keys, uint64_t{kKeys});
  ASSERT_EQ(report.nodes_per_level.size(), Record().level + 1u);
  EXPECT_EQ(report.nodes_per_level.back(), 1u);
  EXPECT_GT(report.nodes_per_level.front(), 70u);
  EXPECT_EQ(report.locks_held, 0u);
  EXPECT_EQ(report.looked_again, 0u);
}

TEST_F(CheckTest, AnotherClientsTree) {
  const auto other = cluster_.NewClient();
  const auto session = other->NewSession().value();
  EXPECT_CODE(session->Check(*tree_), InvalidArgument);
}

TEST_F(CheckTest, ATornNode) {
  At(SomeLeaf().address)[5 * kLineBytes] ^= std::byte{1};
  ExpectProblem("is inconsistent");
}

TEST_F(CheckTest, ANodeWhoseWriterWasStopped) {
  const Reference leaf = SomeLeaf();
  const LockTarget lock = *context().NodeLock(leaf);
  const auto touch = [&](uint64_t word) {
    At(leaf.address)[5 * kLineBytes] ^= std::byte{1};
    *LockWordAt(lock.server, lock.word) = word;
  };
  touch(LockWord{777, 5}.Encode());
  const absl::Status checked = session_->Check(*tree_, {.recheck_ms = 100}).status();
  EXPECT_CODE(checked, DeadlineExceeded);
  EXPECT_THAT(std::string(checked.message()), HasSubstr("is held by compute server 777"));
  touch(LockWord::kFree);
  EXPECT_THAT(Check(false).problems, IsEmpty());
}

TEST_F(CheckTest, ARightReferenceThatLeadsElsewhere) {
  const Reference leaf = SomeLeaf(), root = Record().root;
  ChangeHeader(leaf, [&](NodeHeader* h) { h->right = root; });
  ExpectProblem("is met twice");
}

TEST_F(CheckTest, ANodeThatIsSkipped) {
  const Reference leaf = SomeLeaf();
  const NodeHeader skipped = ReadHeader(At(RightOf(At(leaf.address)).address), layout());
  ChangeHeader(leaf, [&](NodeHeader* h) {
    h->right = skipped.right;
    h->high = skipped.high;
  });
  ExpectProblem("which is not on level 0");
}

TEST_F(CheckTest, ARightReferenceOutOfMemory) {
  ChangeHeader(SomeLeaf(),
               [](NodeHeader* h) { h->right.address = RemoteAddress(1, uint64_t{1} << 40); });
  ExpectProblem("cannot be read");
  ChangeHeader(SomeLeaf(), [](NodeHeader* h) { h->right.address = RemoteAddress(77, 8192); });
  ExpectProblem("there is no memory server 77");
}

TEST_F(CheckTest, AMergeThatNobodyFinishes) {
  const Reference leaf = SomeLeaf();
  ChangeHeader(leaf, [&](NodeHeader* h) { h->peer = h->right; });
  ExpectProblem("has a merge's marker");
  ChangeHeader(leaf, [&](NodeHeader* h) {
    h->peer = {};
    h->state = NodeState::kMerging;
  });
  ExpectProblem("is not live, but merging");
}

TEST_F(CheckTest, ARootRecordOfAnotherTree) {
  std::byte* const line = At(context().entry.root_record);
  RootRecord record = Record();
  ++record.tree_id;
  EncodeRootRecord(record, line, crc(), line);
  ExpectProblem("root record");
}

// A leaf's keys, fences and separator go, and with them every way to it.
TEST_F(CheckTest, ANodeThatIsLost) {
  session_.reset();
  tree_.reset();  // now its nodes are known to be linked
  tree_ = client_->OpenTree("words").value();
  session_ = client_->NewSession().value();
  const CheckReport before = Check();
  EXPECT_THAT(before.problems, IsEmpty());

  RootRecord record = Record();
  InternalNode parent;
  for (; record.level > 0; --record.level) {
    PANDO_CHECK_OK(DecodeInternal(At(record.root.address), layout(), &parent));
    if (record.level > 1) record.root = parent.entries[parent.entries.size() / 2].child;
  }
  const Reference leaf = parent.entries[0].child, lost = parent.entries[1].child;
  const NodeHeader header = ReadHeader(At(lost.address), layout());
  ChangeHeader(leaf, [&](NodeHeader* h) {
    h->right = header.right;
    h->high = header.high;
  });
  parent.entries.erase(parent.entries.begin() + 1);
  std::byte* const image = At(record.root.address);
  EncodeInternal(parent, layout(), image, crc(), image);
  ExpectProblem("node " + std::to_string(lost.address.server()) + ":" +
                std::to_string(lost.address.offset()) + " is lost");
}

TEST_F(CheckTest, ALockThatIsHeld) {
  const LockTarget lock = context().NodeLock(SomeLeaf()).value();
  *LockWordAt(lock.server, lock.word) = LockWord{9, 77, LockWord::kExclusive}.Encode();
  EXPECT_THAT(Check(true).problems, Contains("lock word " + std::to_string(lock.word) +
                                             " of server " + std::to_string(lock.server) +
                                             " is held by compute server 9, incarnation 77"));
  // Where others may be at work it is only counted.
  const CheckReport report = Check(false);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.locks_held, 1u);
  *LockWordAt(lock.server, lock.word) = 0;
}

TEST_F(CheckTest, ARootLockThatIsHeld) {
  const LockTarget lock = context().RootLock();
  *LockWordAt(lock.server, lock.word) = LockWord{9, 77, LockWord::kExclusive}.Encode();
  EXPECT_THAT(Check(true).problems, Contains(HasSubstr("compute server 9")));
  *LockWordAt(lock.server, lock.word) = 0;
}

TEST_F(CheckTest, ALockWordThatIsNone) {
  const LockTarget lock = context().NodeLock(SomeLeaf()).value();
  *LockWordAt(lock.server, lock.word) = 1;
  ExpectProblem("is no lock word");
  *LockWordAt(lock.server, lock.word) = 0;
}

TEST_F(CheckTest, ATreeThatIsWorkedOn) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, writer] {
      const auto client = cluster_.NewClient();
      {
        const auto tree = client->OpenTree("words").value();
        const auto session = client->NewSession().value();
        for (int i = writer; !stop && i < 100'000; i += 2) {
          PANDO_CHECK_OK(session->Put(*tree, std::to_string(i * 7'919 % 100'000), "new"));
        }
      }
    });
  }
  uint64_t nodes = 0;
  for (int checks = 0; checks < 20 || nodes < 500; ++checks) {
    const CheckReport report = Check(/*quiet_tree=*/false);
    EXPECT_THAT(report.problems, IsEmpty());
    if (!report.ok()) break;
    nodes = report.nodes_per_level[0];
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(Check(/*quiet_tree=*/true).problems, IsEmpty());
}

// Values are gone through leaf by leaf: over damage there is no way.
TEST_F(CheckTest, ADamagedTreeOfLongValues) {
  tree_ = client_->CreateTree("long", {.value_bytes_max = 1'000}).value();
  const std::string value(500, 'v');
  for (int i = 0; i < kKeys; ++i) ASSERT_OK(session_->Put(*tree_, Key(i), value));
  session_->Run();
  ASSERT_EQ(Check().cells, uint64_t{kKeys});
  At(SomeLeaf().address)[5 * kLineBytes] ^= std::byte{1};
  for (const bool quiet_tree : {true, false}) {
    const auto report =
        session_->Check(*tree_, {.quiet_tree = quiet_tree, .recheck_ms = 200, .timeout_ms = 5'000});
    ASSERT_OK(report);
    EXPECT_THAT(report->problems, Contains(HasSubstr("is inconsistent")));
  }
}

TEST_F(CheckTest, AServerThatIsGone) {
  cluster_.StopAll();
  EXPECT_CODE(session_->Check(*tree_), Unavailable);
}

}  // namespace
}  // namespace pando

// Cells of a tree in the books of a memory server (rules K2, K4).
#include <algorithm>

#include "common/wire/value_cell.h"
#include "memory/ledger_test_util.h"

namespace pando::memory {
namespace {

class CellLedgerTest : public LedgerTest {
 protected:
  static constexpr ClientId kCarl = {3, 12};
  static constexpr uint16_t kLines = 18;
  // With what the end of a rest is rounded up by.
  static constexpr int64_t kCellRested = TimeConstants().cell_rest_ns * 5 / 4;

  std::vector<NodeLife> Take(const ClientId& who, uint16_t lines = kLines, uint32_t count = 4) {
    const auto grant = ledger_.Allocate(who, {.tree_id = kTree,
                                              .node_bytes = lines * kLineBytes,
                                              .nodes_max = count,
                                              .cell_lines = lines});
    EXPECT_TRUE(grant.ok()) << grant.status();
    std::vector<NodeLife> cells;
    for (const NodeRun& run : grant->runs) {
      for (uint64_t at = 0; at < run.bytes && cells.size() < count; at += lines * kLineBytes) {
        cells.push_back({run.offset + at, run.life});
      }
    }
    return cells;
  }
  void WriteValue(const NodeLife& cell) {
    std::vector<std::byte> image(CellLines(3, 900) * kLineBytes);
    CellReference reference;
    WriteCell(image.data(), kTree, cell.life, "key", std::string(900, 'v'), false, &reference);
    region_.Write(cell.offset, image.data(), image.size());
  }
  bool FreeCell(const NodeLife& cell, uint16_t lines = kLines) {
    return ledger_.Free({.tree_id = kTree, .nodes = {cell}, .cell_lines = lines}).count == 1;
  }
  uint32_t SettleCell(const NodeLife& cell) {
    return ledger_.Settle({.tree_id = kTree, .nodes = {cell}, .cell_lines = kLines});
  }
  // All parts, asked for one at a time.
  std::vector<CellUse> List(uint8_t which) {
    std::vector<CellUse> all;
    CellQuery query{.tree_id = kTree, .max = 1, .which = which};
    for (int calls = 0; calls < 1000; ++calls) {
      const CellList list = ledger_.ListCells(kBert, query);
      all.insert(all.end(), list.cells.begin(), list.cells.end());
      if (list.more == 0) return all;
      query.after_lines = list.next_lines;
      query.after_offset = list.next_offset;
    }
    ADD_FAILURE() << "the list does not end";
    return all;
  }
  uint64_t Due(uint8_t takes = 0, uint64_t done = 0, const ClientId& who = kBert) {
    return ledger_.ListCells(who, {.tree_id = kTree, .max = 1, .takes = takes, .done = done}).due;
  }
};

TEST_F(CellLedgerTest, AreApartFromNodesAndFromCellsOfOtherSizes) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  const NodeLife cell = Take(kAnna).front(), small = Take(kAnna, 5).front();
  WriteValue(cell);
  EXPECT_EQ(ledger_.Free({kTree, {cell}}).count, 0u) << "no node";
  EXPECT_FALSE(FreeCell(cell, 5));
  EXPECT_FALSE(FreeCell({nodes[0], 1}));
  EXPECT_FALSE(FreeCell({cell.offset + kLineBytes, cell.life}));
  EXPECT_FALSE(FreeCell({cell.offset, cell.life + 1}));
  EXPECT_FALSE(FreeCell(small, 5)) << "not written";
  EXPECT_TRUE(FreeCell(cell)) << "live as it is";
  EXPECT_FALSE(FreeCell(cell)) << "once";
  EXPECT_TRUE(absl::IsInvalidArgument(
      ledger_
          .Allocate(
              kAnna,
              {.tree_id = kTree, .node_bytes = 5 * kLineBytes, .nodes_max = 1, .cell_lines = 6})
          .status()));
}

TEST_F(CellLedgerTest, WhatIsFreedRestsAndComesBackInAnotherLife) {
  const NodeLife cell = Take(kAnna).front();
  WriteValue(cell);
  ASSERT_TRUE(FreeCell(cell));
  const auto has = [&](const std::vector<NodeLife>& cells) {
    return std::find_if(cells.begin(), cells.end(), [&](const NodeLife& other) {
             return other.offset == cell.offset;
           }) != cells.end();
  };
  EXPECT_FALSE(has(Take(kBert)));
  clock_.now_ns += kCellRested;
  const std::vector<NodeLife> again = Take(kBert, kLines, 1);
  ASSERT_TRUE(has(again));
  EXPECT_TRUE(LifeNewer(again.front().life, cell.life));
  EXPECT_FALSE(FreeCell(cell)) << "that life is over";
}

// Rule K2: used again at once, and nothing that was meant for the life before it takes effect, be
// it while its memory still shows that life.
TEST_F(CellLedgerTest, WhatComesLateDoesNothingToTheNextLife) {
  const NodeLife before = Take(kAnna).front();
  WriteValue(before);
  ASSERT_TRUE(FreeCell(before));
  clock_.now_ns += kCellRested;
  const NodeLife now = Take(kBert, kLines, 1).front();
  ASSERT_EQ(now.offset, before.offset);
  for (const bool written : {false, true}) {
    if (written) WriteValue(now);
    EXPECT_FALSE(FreeCell(before)) << "a free said again, or by a sweep; written: " << written;
    EXPECT_EQ(SettleCell(before), 0u) << "that its writer has linked it; written: " << written;
  }
  EXPECT_EQ(SettleCell(now), 1u);
  EXPECT_TRUE(FreeCell(now));
}

// A chunk whose cells are all free may be of nodes, whose readers know no checksum.
TEST_F(CellLedgerTest, AChunkOfCellsRestsAsLongAsOneOfNodes) {
  while (ledger_.pool().free_chunks() > 1) ASSERT_TRUE(Allocate(kBert).ok());
  const std::vector<NodeLife> cells = Take(kAnna, kLines, 1'000'000);
  ASSERT_EQ(ledger_.pool().free_chunks(), 0u);
  for (const NodeLife& cell : cells) {
    WriteValue(cell);
    ASSERT_TRUE(FreeCell(cell));
  }
  ASSERT_EQ(ledger_.pool().free_chunks(), 1u) << "it went back";
  clock_.now_ns += kCellRested;
  EXPECT_FALSE(ledger_.pool().rested_ns() <= clock_.NowNs());
  clock_.now_ns += kSecondNs;
  EXPECT_TRUE(ledger_.pool().rested_ns() <= clock_.NowNs());
}

TEST_F(CellLedgerTest, AListSaysTheLifeThatItMeans) {
  const std::vector<NodeLife> annas = Take(kAnna), berts = Take(kBert);
  WriteValue(annas[0]);
  WriteValue(annas[1]);
  WriteValue(berts[0]);
  EXPECT_EQ(SettleCell(annas[0]), 1u);
  EXPECT_EQ(SettleCell({berts[1].offset, berts[1].life}), 0u) << "not written";
  EXPECT_TRUE(List(0).empty());
  ledger_.EndHolder(kAnna, {kTree});
  const CellUse orphan{.cell_lines = kLines,
                       .offset = annas[1].offset,
                       .life = annas[1].life,
                       .use = NodeUse::kOrphan,
                       .compute_server = kAnna.compute_server,
                       .incarnation = kAnna.incarnation};
  const CellUse settled{.cell_lines = kLines, .offset = annas[0].offset, .life = annas[0].life};
  EXPECT_EQ(List(0), std::vector{orphan});
  EXPECT_EQ(List(1), (std::vector{settled, orphan}));
  EXPECT_GT(List(2).size(), 2u) << "and what Bert has";
  EXPECT_EQ(SettleCell(annas[1]), 1u);
  EXPECT_TRUE(List(0).empty());
}

TEST_F(CellLedgerTest, AnEndMakesAllCellsDueForOneClientAtATime) {
  const NodeLife berts = Take(kBert).front();
  WriteValue(berts);
  EXPECT_EQ(Due(), 0u);
  (void)Take(kAnna);
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  const auto hint = [&] { return Allocate(kBert)->orphans; };
  EXPECT_GT(hint(), 0u);
  const uint64_t due = Due(/*takes=*/1);
  EXPECT_GT(due, 0u);
  EXPECT_EQ(Due(/*takes=*/1), due) << "goes on";
  EXPECT_EQ(Due(/*takes=*/1, 0, kCarl), 0u) << "somebody is at it";
  EXPECT_EQ(Due(/*takes=*/0), due) << "but who asks on his own is told";
  clock_.now_ns += 11 * kSecondNs;
  EXPECT_EQ(Due(/*takes=*/1, 0, kCarl), due) << "and has not come back";
  EXPECT_EQ(Due(0, due + 7), due);
  EXPECT_EQ(Due(0, due), 0u);
  // Bert's was out when Anna ended, who may have taken it out of the tree.
  EXPECT_EQ(SettleCell(berts), 1u);
  EXPECT_GT(Due(), due);
}

TEST_F(CellLedgerTest, WhatIsTakenLaterIsNotDue) {
  (void)Take(kAnna);
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  EXPECT_EQ(Due(0, Due()), 0u);
  const NodeLife later = Take(kBert).front();
  WriteValue(later);
  EXPECT_EQ(SettleCell(later), 1u);
  EXPECT_EQ(Due(), 0u);
}

TEST_F(CellLedgerTest, InOneChunkWhatWasOutIsToldFromWhatIsTakenLater) {
  const std::vector<NodeLife> berts = Take(kBert);
  (void)Take(kAnna);
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  EXPECT_EQ(Due(0, Due()), 0u);
  const NodeRun back{.offset = berts[1].offset, .bytes = kLines * kLineBytes};
  ASSERT_TRUE(ledger_.Return(kBert, {.tree_id = kTree, .runs = {back}, .cell_lines = kLines}).ok());
  const NodeLife later = Take(kBert, kLines, 1).front();
  ASSERT_EQ(later.offset, berts[1].offset);
  WriteValue(later);
  EXPECT_EQ(SettleCell(later), 1u);
  EXPECT_EQ(Due(), 0u);
  WriteValue(berts[0]);
  EXPECT_EQ(SettleCell(berts[0]), 1u);
  EXPECT_GT(Due(), 0u);
}

TEST_F(CellLedgerTest, GoWithTheirTree) {
  (void)Take(kAnna);
  (void)Take(kAnna, 5);
  (void)Allocate(kAnna);
  EXPECT_GT(ledger_.used_bytes(), 0u);
  ledger_.FreeTree(kTree);
  EXPECT_EQ(ledger_.used_bytes(), 0u);
  EXPECT_TRUE(List(2).empty());
}

TEST_F(CellLedgerTest, WhoClosesInDoubtKeepsItsCells) {
  const NodeLife cell = Take(kAnna).front();
  WriteValue(cell);
  ledger_.CloseHolder(kAnna, kTree, /*settled=*/false);
  EXPECT_TRUE(ledger_.IsInDoubt(kTree));
  EXPECT_TRUE(List(1).empty()) << "a WRITE may be on its way";
  EXPECT_GT(Due(), 0u) << "what it took out is nobody's";
  ledger_.EndHolder(kAnna, {});
  EXPECT_EQ(List(0).size(), 1u);
}

}  // namespace
}  // namespace pando::memory

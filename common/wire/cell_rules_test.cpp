// What a reader of a cell is told where rule K3 is switched off, and is not where it holds. Built
// with PANDO_BROKEN_VARIANTS, as rules_test.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/rule.h"
#include "common/wire/value_cell.h"

namespace pando {
namespace {

// A reader has a reference, and is stopped; the cell is freed and given to another key, whose
// value is as long.
TEST(CellRulesTest, K3) {
  std::vector<std::byte> image(CellLines(3, 5) * kLineBytes);
  CellReference old, now;
  old.cell = now.cell = {RemoteAddress(1, 4096), 7};
  WriteCell(image.data(), 3, 7, "key", "value", false, &old);
  ++now.cell.life;
  WriteCell(image.data(), 3, 8, "kez", "other", false, &now);
  EXPECT_EQ(ValueInCell(image.data(), 3, "key", old), std::nullopt);
  BreakRule(Rule::kK3);
  EXPECT_EQ(ValueInCell(image.data(), 3, "key", old), "other");
  BreakRule(Rule::kNone);
}

}  // namespace
}  // namespace pando

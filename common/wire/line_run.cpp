#include "common/wire/line_run.h"

#include "common/base/check.h"
#include "common/base/rule.h"

namespace pando {

void AppendLines(uint32_t first_line, uint32_t line_count, uint32_t packet_bytes, LineRuns* runs) {
  PANDO_CHECK_LE(line_count * kLineBytes, packet_bytes);
  if (line_count > 1 && !RuleHolds(Rule::kF6)) {  // the variant parts them where a packet is full
    for (uint32_t i = 0; i < line_count; ++i) AppendLines(first_line + i, 1, packet_bytes, runs);
    return;
  }
  if (!runs->empty()) {
    LineRun& last = runs->back();
    if (last.first_line + last.line_count == first_line &&
        (last.line_count + line_count) * kLineBytes <= packet_bytes) {
      last.line_count += line_count;
      return;
    }
  }
  runs->push_back({first_line, line_count});
}

LineRuns NodeRuns(const NodeLayout& layout, uint32_t first_line, uint32_t packet_bytes) {
  LineRuns runs;
  for (uint32_t line = first_line; line < layout.lines();) {
    const uint32_t count = layout.LinesTogether(line);
    AppendLines(line, count, packet_bytes, &runs);
    line += count;
  }
  return runs;
}

}  // namespace pando

#include "bench/ycsb/tree_data.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "bench/workload/values.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

constexpr size_t kPageRows = 1'000;
constexpr size_t kTellEvery = 1 << 16;
constexpr int64_t kScanTimeoutMs = 60'000;

}  // namespace

absl::Status BulkLoadRecords(const Plan& plan, const Keys& keys, Session* session, const Tree& tree,
                             absl::FunctionRef<void(uint64_t)> loaded) {
  std::vector<std::pair<std::string, uint64_t>> order(plan.records);
  for (uint64_t i = 0; i < plan.records; ++i) {
    keys.Make(i, &order[i].first);
    order[i].second = i;
  }
  std::sort(order.begin(), order.end());
  const Values values(plan.value_bytes, plan.writers() - 1, plan.writers());
  size_t next = 0;
  return session->BulkLoad(tree, [&](KeyValue* entry) {
    if (next % kTellEvery == 0 || next == order.size()) loaded(next);
    if (next == order.size()) return false;
    entry->key = std::move(order[next].first);
    values.Make(order[next].second, &entry->value);
    ++next;
    return true;
  });
}

std::string Successor(std::string key, uint32_t key_bytes_max) {
  if (key.size() < key_bytes_max) return key + '\0';
  while (!key.empty() && key.back() == '\xff') key.pop_back();
  if (!key.empty()) ++key.back();
  return key;
}

absl::Status DumpTree(Session* session, const Tree& tree, const std::string& file) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  std::string from(1, '\0');
  std::vector<KeyValue> rows;
  do {
    PANDO_RETURN_IF_ERROR(
        Annotate(session->Scan(tree, from, kPageRows, &rows, {.timeout_ms = kScanTimeoutMs}),
                 absl::StrCat("writing ", file)));
    for (const KeyValue& row : rows) {
      out << "{\"key\":\"" << history::ToHex(row.key) << "\",\"value\":\""
          << history::ToHex(row.value) << "\"}\n";
    }
    if (!rows.empty()) from = Successor(rows.back().key, tree.key_bytes_max());
  } while (rows.size() == kPageRows && !from.empty());
  out.close();
  if (!out) {
    return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace pando::bench

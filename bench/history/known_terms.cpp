#include "bench/history/known_terms.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "bench/history/history_io.h"

namespace pando::history {
namespace {

// Not for upserts of unknown outcome: nobody knows what they stored.
Operation Translated(Operation o) {
  if (!o.unknown() && !o.found) {
    o.found = o.actual.has_value();
    o.value = o.actual.value_or("");
    o.kind = OperationKind::kGet;
  } else if (o.kind == OperationKind::kReplace) {
    o.kind = OperationKind::kUpdate;
  } else if (o.kind == OperationKind::kEraseIf) {
    o.kind = OperationKind::kDelete;
  } else {
    o.kind = OperationKind::kPut;
  }
  return o;
}

}  // namespace

std::vector<Operation> InKnownTerms(const std::vector<Operation>& operations, const State& final) {
  std::vector<Operation> known;
  std::map<std::string, std::vector<const Operation*>> unknown_upserts;  // by key
  std::map<std::string, std::set<std::string>> stored, read;             // values by key
  const auto note = [&](const Operation& o) {
    for (const auto& [key, value] : o.rows) read[key].insert(value);
    if (o.kind == OperationKind::kGet && o.found) read[o.key].insert(o.value);
    const bool stores = o.kind == OperationKind::kPut || o.kind == OperationKind::kInsert ||
                        o.kind == OperationKind::kUpdate;
    if (stores) stored[o.key].insert(o.value);
  };
  for (const auto& [key, value] : final) read[key].insert(value);
  for (const Operation& o : operations) {
    if (o.kind == OperationKind::kUpsert && o.unknown()) {
      unknown_upserts[o.key].push_back(&o);
      continue;
    }
    if (o.kind == OperationKind::kClear) {
      for (Operation& part : AsDeleteAndGet(o)) known.push_back(std::move(part));
      continue;
    }
    known.push_back(IsConditional(o.kind) ? Translated(o) : o);
    note(known.back());
  }
  for (const auto& [key, upserts] : unknown_upserts) {
    std::vector<std::string> missing;
    std::set_difference(read[key].begin(), read[key].end(), stored[key].begin(), stored[key].end(),
                        std::back_inserter(missing));
    for (const std::string& value : missing) {
      Operation o = **std::min_element(
          upserts.begin(), upserts.end(),
          [](const Operation* a, const Operation* b) { return a->call_ns < b->call_ns; });
      o.kind = OperationKind::kPut;
      o.value = value;
      known.push_back(std::move(o));
    }
    // One that nobody has read may have made the key present.
    for (const Operation* upsert : upserts) {
      Operation o = *upsert;
      o.kind = OperationKind::kInsert;
      o.value = "upsert of line " + std::to_string(o.line) + ", call " + std::to_string(o.call_ns);
      known.push_back(std::move(o));
    }
  }
  return known;
}

}  // namespace pando::history

// Many operations in one call.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/session_call.h"
#include "pando/client.h"

namespace pando::c {
namespace {

pando_result ResultFrom(const absl::StatusOr<std::string>& result) {
  return ResultOf(result.status(), result.ok() ? std::string_view(*result) : std::string_view());
}
pando_result ResultFrom(const absl::Status& status) { return ResultOf(status, {}); }
pando_result ResultFrom(const WriteResult& result) { return ResultOf(result.status, result.value); }

// `add(i)` reads an element of what was given; then `execute(work)` returns a vector of results.
template <typename Add, typename Execute>
pando_code Many(pando_session* session, const pando_tree* tree, const void* given, size_t count,
                const pando_operation_options* options, pando_list** results, const Add& add,
                const Execute& execute) {
  return CallMaking(results, "results", [&]() -> absl::Status {
    if (count > 0) PANDO_RETURN_IF_ERROR(CheckGiven(given, "what is to be done"));
    for (size_t i = 0; i < count; ++i) {
      absl::Status added = add(i);
      if (!added.ok()) return Annotate(added, absl::StrCat("element ", i));
    }
    return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
      // Elements point into it, so it stays in its place.
      auto made = execute(work);
      const auto storage = std::make_shared<decltype(made)>(std::move(made));
      std::vector<pando_result> elements;
      elements.reserve(storage->size());
      for (const auto& result : *storage) elements.push_back(ResultFrom(result));
      return PublishList(std::move(elements), storage, results);
    });
  });
}

absl::Status AddBytes(pando_bytes bytes, const char* what, std::string* to) {
  PANDO_RETURN_IF_ERROR(CheckBytes(bytes, what));
  to->assign(ViewOf(bytes));
  return absl::OkStatus();
}

absl::Status AddKey(pando_bytes key, std::vector<std::string>* keys) {
  return AddBytes(key, "the key", &keys->emplace_back());
}

absl::Status AddWrite(const pando_write& given, std::vector<Write>* writes) {
  if (given.kind < PANDO_WRITE_PUT || given.kind > PANDO_WRITE_UPSERT) {
    return absl::InvalidArgumentError(absl::StrCat("there is no write of kind ", given.kind));
  }
  Write& write = writes->emplace_back();
  write.kind = static_cast<Write::Kind>(given.kind);
  PANDO_RETURN_IF_ERROR(AddBytes(given.key, "the key", &write.key));
  if (write.kind != Write::Kind::kErase && write.kind != Write::Kind::kEraseIf) {
    PANDO_RETURN_IF_ERROR(AddBytes(given.value, "the value", &write.value));
  }
  if (write.kind == Write::Kind::kReplace || write.kind == Write::Kind::kEraseIf) {
    PANDO_RETURN_IF_ERROR(AddBytes(given.expected, "the expected value", &write.expected));
  }
  if (write.kind != Write::Kind::kUpsert) return absl::OkStatus();
  uint32_t function = 0;
  PANDO_RETURN_IF_ERROR(Narrow(given.function, "the function", &function));
  write.function = static_cast<UpsertFunction>(function);
  return absl::OkStatus();
}

static_assert(PANDO_WRITE_PUT == static_cast<int>(Write::Kind::kPut));
static_assert(PANDO_WRITE_INSERT == static_cast<int>(Write::Kind::kInsert));
static_assert(PANDO_WRITE_UPDATE == static_cast<int>(Write::Kind::kUpdate));
static_assert(PANDO_WRITE_ERASE == static_cast<int>(Write::Kind::kErase));
static_assert(PANDO_WRITE_REPLACE == static_cast<int>(Write::Kind::kReplace));
static_assert(PANDO_WRITE_ERASE_IF == static_cast<int>(Write::Kind::kEraseIf));
static_assert(PANDO_WRITE_UPSERT == static_cast<int>(Write::Kind::kUpsert));

}  // namespace
}  // namespace pando::c

using pando::c::Many;
using pando::c::Work;

extern "C" {

pando_code pando_multi_get(pando_session* session, const pando_tree* tree, const pando_bytes* keys,
                           size_t count, const pando_operation_options* options,
                           pando_list** results) {
  std::vector<std::string> copies;
  return Many(
      session, tree, keys, count, options, results,
      [&](size_t i) { return pando::c::AddKey(keys[i], &copies); },
      [&](const Work& work) { return work.session.MultiGet(work.tree, copies, work.options); });
}

pando_code pando_multi_put(pando_session* session, const pando_tree* tree, const pando_row* rows,
                           size_t count, const pando_operation_options* options,
                           pando_list** results) {
  std::vector<pando::KeyValue> entries;
  return Many(
      session, tree, rows, count, options, results,
      [&](size_t i) -> absl::Status {
        pando::KeyValue& entry = entries.emplace_back();
        PANDO_RETURN_IF_ERROR(pando::c::AddBytes(rows[i].key, "the key", &entry.key));
        return pando::c::AddBytes(rows[i].value, "the value", &entry.value);
      },
      [&](const Work& work) { return work.session.MultiPut(work.tree, entries, work.options); });
}

pando_code pando_multi_erase(pando_session* session, const pando_tree* tree,
                             const pando_bytes* keys, size_t count,
                             const pando_operation_options* options, pando_list** results) {
  std::vector<std::string> copies;
  return Many(
      session, tree, keys, count, options, results,
      [&](size_t i) { return pando::c::AddKey(keys[i], &copies); },
      [&](const Work& work) { return work.session.MultiErase(work.tree, copies, work.options); });
}

pando_code pando_write_many(pando_session* session, const pando_tree* tree,
                            const pando_write* writes, size_t count,
                            const pando_operation_options* options, pando_list** results) {
  std::vector<pando::Write> copies;
  return Many(
      session, tree, writes, count, options, results,
      [&](size_t i) { return pando::c::AddWrite(writes[i], &copies); },
      [&](const Work& work) { return work.session.WriteMany(work.tree, copies, work.options); });
}

}  // extern "C"

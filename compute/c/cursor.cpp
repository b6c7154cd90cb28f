#include <exception>
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

constexpr pando_cursor_options kCursorDefaults = PANDO_CURSOR_OPTIONS_INIT;

absl::StatusOr<CursorOptions> CursorOptionsOf(const pando_cursor_options& c) {
  CursorOptions options;
  PANDO_RETURN_IF_ERROR(CheckBytes(c.from, "from"));
  options.from = ViewOf(c.from);
  bool has_to = false;
  PANDO_RETURN_IF_ERROR(ReadFlag(c.has_to, "has_to", &has_to));
  if (has_to) {
    PANDO_RETURN_IF_ERROR(CheckBytes(c.to, "to"));
    options.to = std::string(ViewOf(c.to));
  }
  PANDO_RETURN_IF_ERROR(CheckBytes(c.prefix, "prefix"));
  options.prefix = ViewOf(c.prefix);
  PANDO_RETURN_IF_ERROR(ReadFlag(c.from_exclusive, "from_exclusive", &options.from_exclusive));
  PANDO_RETURN_IF_ERROR(ReadFlag(c.to_inclusive, "to_inclusive", &options.to_inclusive));
  PANDO_RETURN_IF_ERROR(ReadFlag(c.reverse, "reverse", &options.reverse));
  options.limit = c.limit;
  PANDO_RETURN_IF_ERROR(Narrow(c.read_ahead, "read_ahead", &options.read_ahead));
  options.operation.timeout_ms = c.timeout_ms;
  return options;
}

// `move(Cursor&)` moves it, and returns whether it is on an entry; `give(row)`, an absl::Status,
// while nobody else can move or close it.
template <typename Move, typename Give>
pando_code MoveAndGive(pando_cursor* cursor, pando_bytes key, const Move& move, const Give& give) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    Held<CursorObject> held;
    SessionUse use;
    PANDO_RETURN_IF_ERROR(held.Take(cursor));
    PANDO_RETURN_IF_ERROR(use.Take(held->session()));
    held->cost = {};
    const bool valid = move(*held->cursor);
    AddCost(held->cost, held->cost_to);
    if (!valid) {
      PANDO_RETURN_IF_ERROR(held->cursor->status());
      return absl::OutOfRangeError("there are no more entries");
    }
    return give(pando_row{BytesOf(held->cursor->key()), BytesOf(held->cursor->value())});
  });
}

template <typename Move>
pando_code MoveCursor(pando_cursor* cursor, pando_row* row, const Move& move,
                      pando_bytes key = {}) {
  return MoveAndGive(cursor, key, move, [row](const pando_row& at) {
    if (row != nullptr) *row = at;
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace pando::c

using pando::Cursor;
using pando::c::Call;
using pando::c::CallbackScope;
using pando::c::CursorObject;
using pando::c::Held;
using pando::c::Inside;
using pando::c::MoveAndGive;
using pando::c::MoveCursor;
using pando::c::SessionObject;
using pando::c::TreeObject;

extern "C" {

pando_code pando_scan(pando_session* session, const pando_tree* tree,
                      const pando_cursor_options* options, pando_list** rows) {
  return pando::c::CallMaking(rows, "rows", [&]() -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(
        const pando_cursor_options read,
        pando::c::ReadSized(options, pando::c::kCursorDefaults, "cursor options"));
    PANDO_ASSIGN_OR_RETURN(pando::CursorOptions range, pando::c::CursorOptionsOf(read));
    const pando_operation_options operation{sizeof(operation), read.timeout_ms, read.cost};
    const auto found = std::make_shared<std::vector<pando::KeyValue>>();
    PANDO_RETURN_IF_ERROR(
        pando::c::WithSession(session, tree, &operation, [&](const pando::c::Work& work) {
          range.operation = work.options;
          return work.session.Scan(work.tree, range, found.get());
        }));
    std::vector<pando_row> elements;
    elements.reserve(found->size());
    for (const pando::KeyValue& row : *found) {
      elements.push_back({pando::c::BytesOf(row.key), pando::c::BytesOf(row.value)});
    }
    return pando::c::PublishList(std::move(elements), found, rows);
  });
}

pando_code pando_open_cursor(pando_session* session, const pando_tree* tree,
                             const pando_cursor_options* options, pando_cursor** cursor) {
  return pando::c::CallMaking(cursor, "cursor", [&]() -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(
        const pando_cursor_options read,
        pando::c::ReadSized(options, pando::c::kCursorDefaults, "cursor options"));
    PANDO_ASSIGN_OR_RETURN(pando::CursorOptions range, pando::c::CursorOptionsOf(read));
    Held<SessionObject> held;
    Held<TreeObject> of;
    PANDO_RETURN_IF_ERROR(held.Take(session));
    PANDO_RETURN_IF_ERROR(of.Take(tree));
    PANDO_RETURN_IF_ERROR(pando::c::CheckSameClient(*held, *of));
    std::shared_ptr<CursorObject> object;
    {
      pando::c::SessionUse use;  // not while Open() may fail, which ends the cursor
      PANDO_RETURN_IF_ERROR(use.Take(*held));
      object = std::make_shared<CursorObject>(held.shared(), of->tree);
      object->cost_to = read.cost;
      if (read.cost != nullptr) range.operation.cost = &object->cost;
      auto made = held->session->NewCursor(*object->tree, range);
      PANDO_RETURN_IF_ERROR(made->status());
      object->cursor = std::move(made);
    }
    PANDO_ASSIGN_OR_RETURN(void* const handle, pando::c::Open(object));
    *cursor = static_cast<pando_cursor*>(handle);
    return absl::OkStatus();
  });
}

pando_code pando_close_cursor(pando_cursor* cursor) {
  return Call([&] { return pando::c::Close(cursor, pando::c::Kind::kCursor); });
}

pando_code pando_cursor_next(pando_cursor* cursor, pando_row* row) {
  return MoveCursor(cursor, row, [](Cursor& moved) { return moved.Next(); });
}
pando_code pando_cursor_prev(pando_cursor* cursor, pando_row* row) {
  return MoveCursor(cursor, row, [](Cursor& moved) { return moved.Prev(); });
}
pando_code pando_cursor_seek_to_first(pando_cursor* cursor, pando_row* row) {
  return MoveCursor(cursor, row, [](Cursor& moved) { return moved.SeekToFirst(); });
}
pando_code pando_cursor_seek_to_last(pando_cursor* cursor, pando_row* row) {
  return MoveCursor(cursor, row, [](Cursor& moved) { return moved.SeekToLast(); });
}
pando_code pando_cursor_seek(pando_cursor* cursor, pando_bytes key, pando_row* row) {
  return MoveCursor(
      cursor, row, [&](Cursor& moved) { return moved.Seek(pando::c::ViewOf(key)); }, key);
}

pando_code pando_cursor_take(pando_cursor* cursor, int64_t move, pando_bytes key,
                             pando_take_row take, void* context) {
  const absl::Status checked = [&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(
        pando::c::CheckGiven(reinterpret_cast<const void*>(take), "the callback"));
    if (move >= PANDO_MOVE_NEXT && move <= PANDO_MOVE_SEEK) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("no move of cursors: ", move));
  }();
  if (!checked.ok()) return Call([&] { return checked; });
  return MoveAndGive(
      cursor, move == PANDO_MOVE_SEEK ? key : pando_bytes{},
      [&](Cursor& moved) {
        switch (move) {
          case PANDO_MOVE_NEXT:
            return moved.Next();
          case PANDO_MOVE_PREV:
            return moved.Prev();
          case PANDO_MOVE_TO_FIRST:
            return moved.SeekToFirst();
          case PANDO_MOVE_TO_LAST:
            return moved.SeekToLast();
          default:
            return moved.Seek(pando::c::ViewOf(key));
        }
      },
      [&](const pando_row& row) -> absl::Status {
        const char* const what = "the cursor has moved, and the callback for its row threw: ";
        try {
          const CallbackScope scope(Inside::kCallback);
          take(context, &row);
          return absl::OkStatus();
        } catch (const std::exception& error) {
          return absl::CancelledError(absl::StrCat(what, error.what()));
        } catch (...) {
          return absl::CancelledError(absl::StrCat(what, "it is not a std::exception"));
        }
      });
}

}  // extern "C"

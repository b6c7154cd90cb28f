// Scans and cursors.
#include <string>

#include "support.h"

namespace pando_python {
namespace {

// A range as it is given, and what its options point to.
class Range {
 public:
  Range(const py::object& from, const py::object& to, bool from_exclusive, bool to_inclusive,
        const py::object& prefix, bool reverse, const py::object& limit, int64_t read_ahead,
        const py::object& timeout)
      : from_(from), to_(to.is_none() ? py::object(py::bytes()) : to), prefix_(prefix) {
    options_.from = from_.view();
    options_.to = to_.view();
    options_.has_to = to.is_none() ? 0 : 1;
    options_.from_exclusive = from_exclusive ? 1 : 0;
    options_.to_inclusive = to_inclusive ? 1 : 0;
    options_.prefix = prefix_.view();
    options_.reverse = reverse ? 1 : 0;
    if (!limit.is_none()) {
      options_.limit = PyLong_AsUnsignedLongLong(limit.ptr());
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    }
    options_.read_ahead = read_ahead;
    options_.timeout_ms = TimeoutMs(timeout);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  const pando_cursor_options* options() const { return &options_; }

 private:
  const Bytes from_, to_, prefix_;
  pando_cursor_options options_ = PANDO_CURSOR_OPTIONS_INIT;
};

py::tuple RowOf(const pando_row& row) {
  return py::make_tuple(BytesOf(row.key), BytesOf(row.value));
}

py::list Scan(const Session& session, const Tree& tree, const py::object& from,
              const py::object& to, bool from_exclusive, bool to_inclusive,
              const py::object& prefix, bool reverse, const py::object& limit, int64_t read_ahead,
              const py::object& timeout) {
  const Range range(from, to, from_exclusive, to_inclusive, prefix, reverse, limit, read_ahead,
                    timeout);
  pando_list* made = nullptr;
  Check(Released([&] { return pando_scan(session.get(), tree.get(), range.options(), &made); }));
  const List list(made);
  const pando_row* rows = nullptr;
  size_t size = 0;
  Check(pando_list_rows(made, &rows));
  Check(pando_list_size(made, &size));
  py::list all(size);
  for (size_t i = 0; i < size; ++i) {
    PyList_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i), RowOf(rows[i]).release().ptr());
  }
  return all;
}

Cursor OpenCursor(const Session& session, const Tree& tree, const py::object& from,
                  const py::object& to, bool from_exclusive, bool to_inclusive,
                  const py::object& prefix, bool reverse, const py::object& limit,
                  int64_t read_ahead, const py::object& timeout) {
  const Range range(from, to, from_exclusive, to_inclusive, prefix, reverse, limit, read_ahead,
                    timeout);
  pando_cursor* cursor = nullptr;
  Check(Released(
      [&] { return pando_open_cursor(session.get(), tree.get(), range.options(), &cursor); }));
  return Cursor(cursor);
}

// The row that the cursor goes to, or None behind the end. Copied before another thread can move or
// close the cursor, and before Python's lock is taken again.
py::object Moved(const Cursor& cursor, int64_t move, pando_bytes to = {}) {
  struct Row {
    std::string key, value;
  } row;
  const auto take = [](void* context, const pando_row* at) {
    auto* const copy = static_cast<Row*>(context);
    copy->key.assign(static_cast<const char*>(at->key.data), at->key.size);
    copy->value.assign(static_cast<const char*>(at->value.data), at->value.size);
  };
  const pando_code code =
      Released([&] { return pando_cursor_take(cursor.get(), move, to, take, &row); });
  if (code == PANDO_OUT_OF_RANGE) return py::none();
  Check(code);
  return py::make_tuple(py::bytes(row.key), py::bytes(row.value));
}

template <int64_t move>
py::object Move(const Cursor& cursor) {
  return Moved(cursor, move);
}

py::object Seek(const Cursor& cursor, const py::object& key) {
  const Bytes bytes(key);
  return Moved(cursor, PANDO_MOVE_SEEK, bytes.view());
}

}  // namespace

void AddRange(py::module_& module, py::class_<Session>& session) {
  using namespace py::literals;
  const auto timeout = [] { return py::arg("timeout") = py::none(); };
  session
      .def("scan", &Scan, "tree"_a, "start"_a = py::bytes(), "to"_a = py::none(), py::kw_only(),
           "start_exclusive"_a = false, "to_inclusive"_a = false, "prefix"_a = py::bytes(),
           "reverse"_a = false, "limit"_a = py::none(), "read_ahead"_a = 0, timeout())
      .def("cursor", &OpenCursor, "tree"_a, "start"_a = py::bytes(), "to"_a = py::none(),
           py::kw_only(), "start_exclusive"_a = false, "to_inclusive"_a = false,
           "prefix"_a = py::bytes(), "reverse"_a = false, "limit"_a = py::none(),
           "read_ahead"_a = 0, timeout(), py::keep_alive<0, 1>());
  py::class_<Cursor>(module, "Cursor")
      .def("close", [](Cursor& cursor) { cursor.Close(); })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Cursor& cursor, const py::args&) { cursor.Close(); })
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__",
           [](const Cursor& cursor) {
             py::object row = Move<PANDO_MOVE_NEXT>(cursor);
             if (row.is_none()) throw py::stop_iteration();
             return row;
           })
      .def("next", &Move<PANDO_MOVE_NEXT>)
      .def("prev", &Move<PANDO_MOVE_PREV>)
      .def("seek_to_first", &Move<PANDO_MOVE_TO_FIRST>)
      .def("seek_to_last", &Move<PANDO_MOVE_TO_LAST>)
      .def("seek", &Seek, "key"_a);
}

}  // namespace pando_python

// Operations on one key, and what is done with whole trees.
#include <memory>
#include <string>
#include <vector>

#include "support.h"

namespace pando_python {
namespace {

// Room for a value of the tree's.
class Room {
 public:
  explicit Room(const Tree& tree) : capacity_(tree.value_bytes_max) {
    if (capacity_ > sizeof(own_)) more_.reset(new char[capacity_]);
  }
  char* data() { return more_ == nullptr ? own_ : more_.get(); }
  size_t capacity() const { return more_ == nullptr ? sizeof(own_) : capacity_; }
  size_t* size() { return &size_; }
  py::bytes value() { return {data(), size_}; }

 private:
  const size_t capacity_;
  size_t size_ = 0;
  char own_[256];
  std::unique_ptr<char[]> more_;  // not cleared
};

py::object Get(const Session& session, const Tree& tree, const py::object& key,
               const py::object& absent, const py::object& timeout) {
  const Bytes bytes(key);
  const pando_operation_options options = OptionsOf(timeout);
  Room room(tree);
  const pando_code code = Released([&] {
    return pando_get(session.get(), tree.get(), bytes.view(), room.data(), room.capacity(),
                     room.size(), &options);
  });
  if (code == PANDO_NOT_FOUND) return absent;
  Check(code);
  return room.value();
}

using PlainWrite = pando_code (*)(pando_session*, const pando_tree*, pando_bytes, pando_bytes,
                                  const pando_operation_options*);

template <PlainWrite write>
void Write(const Session& session, const Tree& tree, const py::object& key, const py::object& value,
           const py::object& timeout) {
  const Bytes key_bytes(key), value_bytes(value);
  const pando_operation_options options = OptionsOf(timeout);
  Check(Released([&] {
    return write(session.get(), tree.get(), key_bytes.view(), value_bytes.view(), &options);
  }));
}

void Erase(const Session& session, const Tree& tree, const py::object& key,
           const py::object& timeout) {
  const Bytes bytes(key);
  const pando_operation_options options = OptionsOf(timeout);
  Check(Released([&] { return pando_erase(session.get(), tree.get(), bytes.view(), &options); }));
}

// With the present value where the condition failed.
void CheckIf(pando_code code, Room& room) {
  if (code == PANDO_OK) return;
  Raise(code, code == PANDO_CONDITION_FAILED ? py::object(room.value()) : py::none());
}

void Replace(const Session& session, const Tree& tree, const py::object& key,
             const py::object& expected, const py::object& desired, const py::object& timeout) {
  const Bytes key_bytes(key), expected_bytes(expected), desired_bytes(desired);
  const pando_operation_options options = OptionsOf(timeout);
  Room room(tree);
  const pando_code code = Released([&] {
    return pando_replace(session.get(), tree.get(), key_bytes.view(), expected_bytes.view(),
                         desired_bytes.view(), room.data(), room.capacity(), room.size(), &options);
  });
  CheckIf(code, room);
}

void EraseIf(const Session& session, const Tree& tree, const py::object& key,
             const py::object& expected, const py::object& timeout) {
  const Bytes key_bytes(key), expected_bytes(expected);
  const pando_operation_options options = OptionsOf(timeout);
  Room room(tree);
  const pando_code code = Released([&] {
    return pando_erase_if(session.get(), tree.get(), key_bytes.view(), expected_bytes.view(),
                          room.data(), room.capacity(), room.size(), &options);
  });
  CheckIf(code, room);
}

py::bytes Upsert(const Session& session, const Tree& tree, const py::object& key,
                 const py::object& function, const py::object& operand, const py::object& timeout) {
  const Bytes key_bytes(key), operand_bytes(operand);
  const uint32_t number = FunctionOf(function);
  const pando_operation_options options = OptionsOf(timeout);
  Room room(tree);
  const pando_code code = Released([&] {
    return pando_upsert(session.get(), tree.get(), key_bytes.view(), number, operand_bytes.view(),
                        room.data(), room.capacity(), room.size(), &options);
  });
  CheckIf(code, room);
  return room.value();
}

void Flush(const Session& session, const Tree& tree, const py::object& timeout) {
  const pando_operation_options options = OptionsOf(timeout);
  Check(Released([&] { return pando_flush(session.get(), tree.get(), &options); }));
}

// Entries that wait to be loaded: no Python runs while Pando loads.
struct Entries {
  std::vector<std::pair<std::string, std::string>> all;
  size_t next = 0;
};
int NextEntry(void* context, pando_row* row) {
  auto& entries = *static_cast<Entries*>(context);
  if (entries.next == entries.all.size()) return 0;
  const auto& [key, value] = entries.all[entries.next++];
  *row = {{key.data(), key.size()}, {value.data(), value.size()}};
  return 1;
}

void BulkLoad(const Session& session, const Tree& tree, const py::iterable& rows) {
  Entries entries;
  const auto copy = [](py::handle object) {
    const Bytes bytes(object);
    return std::string(static_cast<const char*>(bytes.view().data), bytes.view().size);
  };
  for (const py::handle row : rows) {
    const py::tuple pair(py::reinterpret_borrow<py::object>(row));
    if (pair.size() != 2) throw py::value_error("a row is a key and a value");
    entries.all.emplace_back(copy(pair[0]), copy(pair[1]));
  }
  Check(Released([&] { return pando_bulk_load(session.get(), tree.get(), NextEntry, &entries); }));
}

py::dict EstimateSize(const Session& session, const Tree& tree, int32_t reads_max,
                      const py::object& timeout) {
  using namespace py::literals;
  const pando_operation_options options = OptionsOf(timeout);
  pando_size_estimate size = {};
  size.size = sizeof(size);
  Check(Released(
      [&] { return pando_estimate_size(session.get(), tree.get(), reads_max, &options, &size); }));
  return py::dict("keys"_a = size.keys, "key_bytes"_a = size.key_bytes,
                  "value_bytes"_a = size.value_bytes, "leaves"_a = size.leaves,
                  "nodes_bytes"_a = size.nodes_bytes, "cells_bytes"_a = size.cells_bytes,
                  "relative_error"_a = size.relative_error);
}

py::dict CheckTree(const Session& session, const Tree& tree, bool quiet_tree,
                   const py::object& timeout) {
  using namespace py::literals;
  pando_check_options options = PANDO_CHECK_OPTIONS_INIT;
  options.quiet_tree = quiet_tree ? 1 : 0;
  options.timeout_ms = TimeoutMs(timeout);
  pando_check_report report = {};
  report.size = sizeof(report);
  pando_list* problems = nullptr;
  Check(Released(
      [&] { return pando_check(session.get(), tree.get(), &options, &report, &problems); }));
  const List list(problems);
  py::list texts;
  for (uint64_t i = 0; i < report.problems; ++i) {
    const char* text = nullptr;
    Check(pando_list_text(problems, i, &text));
    texts.append(TextOf(text));
  }
  return py::dict("problems"_a = texts, "keys"_a = report.keys, "levels"_a = report.levels,
                  "leaves"_a = report.leaves, "key_bytes"_a = report.key_bytes,
                  "value_bytes"_a = report.value_bytes, "nodes_bytes"_a = report.nodes_bytes,
                  "locks_held"_a = report.locks_held, "cells"_a = report.cells,
                  "cells_bytes"_a = report.cells_bytes, "cells_unused"_a = report.cells_unused);
}

}  // namespace

void AddSession(py::module_& module, py::class_<Session>& session) {
  using namespace py::literals;
  const auto timeout = [] { return py::arg("timeout") = py::none(); };
  session.def("close", [](Session& self) { self.Close(); })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Session& self, const py::args&) { self.Close(); })
      .def("get", &Get, "tree"_a, "key"_a, "default"_a = py::none(), py::kw_only(), timeout())
      .def("put", &Write<pando_put>, "tree"_a, "key"_a, "value"_a, py::kw_only(), timeout())
      .def("insert", &Write<pando_insert>, "tree"_a, "key"_a, "value"_a, py::kw_only(), timeout())
      .def("update", &Write<pando_update>, "tree"_a, "key"_a, "value"_a, py::kw_only(), timeout())
      .def("erase", &Erase, "tree"_a, "key"_a, py::kw_only(), timeout())
      .def("replace", &Replace, "tree"_a, "key"_a, "expected"_a, "desired"_a, py::kw_only(),
           timeout())
      .def("erase_if", &EraseIf, "tree"_a, "key"_a, "expected"_a, py::kw_only(), timeout())
      .def("upsert", &Upsert, "tree"_a, "key"_a, "function"_a, "operand"_a, py::kw_only(),
           timeout())
      .def("flush", &Flush, "tree"_a, py::kw_only(), timeout())
      .def("bulk_load", &BulkLoad, "tree"_a, "rows"_a)
      .def("estimate_size", &EstimateSize, "tree"_a, py::kw_only(), "reads_max"_a = 0, timeout())
      .def("check", &CheckTree, "tree"_a, py::kw_only(), "quiet_tree"_a = false, timeout());
  module.def("open_handles", &pando_open_handles);
}

}  // namespace pando_python

// Many operations in one call.
#include <deque>
#include <string>
#include <vector>

#include "support.h"

namespace pando_python {
namespace {

// A tuple of what was given: nobody takes objects out of it while Python's lock is released.
py::tuple Kept(const py::object& iterable) {
  PyObject* const made = PySequence_Tuple(iterable.ptr());
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::tuple>(made);
}

// Views of bytes, and what has to live meanwhile.
class Views {
 public:
  pando_bytes Add(py::handle object) {
    if (PyBytes_Check(object.ptr())) return Bytes(object).view();  // of the object's own
    return copies_.emplace_back(object).view();
  }

 private:
  std::deque<Bytes> copies_;
};

std::vector<pando_bytes> ViewsOf(const py::tuple& keys, Views* views) {
  std::vector<pando_bytes> all;
  all.reserve(keys.size());
  for (const py::handle key : keys) all.push_back(views->Add(key));
  return all;
}

// The results of a call of many.
class Results {
 public:
  template <typename Call>
  explicit Results(const Call& call) : list_(Made(call)) {
    Check(pando_list_results(list_.get(), &results_));
    Check(pando_list_size(list_.get(), &size_));
  }
  size_t size() const { return size_; }
  const pando_result& operator[](size_t i) const { return results_[i]; }

 private:
  template <typename Call>
  static List Made(const Call& call) {
    pando_list* list = nullptr;
    Check(Released([&] { return call(&list); }));
    return List(list);
  }

  List list_;
  const pando_result* results_ = nullptr;
  size_t size_ = 0;
};

py::object ErrorOf(const pando_result& result) {
  const auto code = static_cast<pando_code>(result.code);
  const py::object actual =
      code == PANDO_CONDITION_FAILED ? py::object(BytesOf(result.value)) : py::none();
  return MakeError(code, {static_cast<const char*>(result.message.data), result.message.size},
                   actual);
}

// A list of what `expected(result)` makes of the results that it knows, else (an empty object) of
// errors: if there is any, they are raised together.
template <typename Expected>
py::list ListOf(const Results& results, const Expected& expected) {
  py::list all(results.size());
  bool failed = false;
  for (size_t i = 0; i < results.size(); ++i) {
    py::object made = expected(results[i]);
    if (!made) {
      made = ErrorOf(results[i]);
      failed = true;
    }
    PyList_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i), made.release().ptr());
  }
  if (!failed) return all;
  const py::object error = py::module_::import("pando.errors").attr("BatchError")(all);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

py::list MultiGet(const Session& session, const Tree& tree, const py::object& keys,
                  const py::object& timeout) {
  const py::tuple kept = Kept(keys);
  Views views;
  const std::vector<pando_bytes> bytes = ViewsOf(kept, &views);
  const pando_operation_options options = OptionsOf(timeout);
  const Results results([&](pando_list** list) {
    return pando_multi_get(session.get(), tree.get(), bytes.data(), bytes.size(), &options, list);
  });
  return ListOf(results, [](const pando_result& result) -> py::object {
    if (result.code == PANDO_OK) return BytesOf(result.value);
    if (result.code == PANDO_NOT_FOUND) return py::none();
    return {};
  });
}

void MultiPut(const Session& session, const Tree& tree, const py::object& rows,
              const py::object& timeout) {
  const py::tuple kept = Kept(py::hasattr(rows, "items") ? rows.attr("items")() : rows);
  Views views;
  std::vector<py::tuple> pairs;  // those of a generator are nobody else's
  std::vector<pando_row> bytes;
  pairs.reserve(kept.size());
  bytes.reserve(kept.size());
  for (const py::handle row : kept) {
    const py::tuple& pair = pairs.emplace_back(Kept(py::reinterpret_borrow<py::object>(row)));
    if (pair.size() != 2) throw py::value_error("a row is a key and a value");
    const pando_bytes key = views.Add(pair[0].ptr());
    bytes.push_back({key, views.Add(pair[1].ptr())});
  }
  const pando_operation_options options = OptionsOf(timeout);
  const Results results([&](pando_list** list) {
    return pando_multi_put(session.get(), tree.get(), bytes.data(), bytes.size(), &options, list);
  });
  (void)ListOf(results, [](const pando_result& result) -> py::object {
    return result.code == PANDO_OK ? py::object(py::none()) : py::object();
  });
}

py::list MultiErase(const Session& session, const Tree& tree, const py::object& keys,
                    const py::object& timeout) {
  const py::tuple kept = Kept(keys);
  Views views;
  const std::vector<pando_bytes> bytes = ViewsOf(kept, &views);
  const pando_operation_options options = OptionsOf(timeout);
  const Results results([&](pando_list** list) {
    return pando_multi_erase(session.get(), tree.get(), bytes.data(), bytes.size(), &options, list);
  });
  return ListOf(results, [](const pando_result& result) -> py::object {
    if (result.code == PANDO_OK) return py::bool_(true);
    if (result.code == PANDO_NOT_FOUND) return py::bool_(false);
    return {};
  });
}

int64_t KindOf(const std::string& kind) {
  const std::vector<std::string> kinds = {"put",     "insert",   "update", "erase",
                                          "replace", "erase_if", "upsert"};
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == kind) return static_cast<int64_t>(i);
  }
  throw py::value_error("there is no write '" + kind + "'");
}

// Each write: (kind, key, value, expected, function). Each result: (error or None, value).
py::list WriteMany(const Session& session, const Tree& tree, const py::object& writes,
                   const py::object& timeout) {
  const py::tuple kept = Kept(writes);
  Views views;
  std::vector<py::tuple> parts;
  std::vector<pando_write> bytes;
  parts.reserve(kept.size());
  bytes.reserve(kept.size());
  for (const py::handle write : kept) {
    const py::tuple& part = parts.emplace_back(Kept(py::reinterpret_borrow<py::object>(write)));
    if (part.size() != 5) throw py::value_error("a write is a pando.Write");
    pando_write& made = bytes.emplace_back();
    made.kind = KindOf(std::string(py::str(part[0])));
    made.key = views.Add(part[1].ptr());
    made.value = views.Add(part[2].ptr());
    made.expected = views.Add(part[3].ptr());
    made.function = FunctionOf(part[4]);
  }
  const pando_operation_options options = OptionsOf(timeout);
  const Results results([&](pando_list** list) {
    return pando_write_many(session.get(), tree.get(), bytes.data(), bytes.size(), &options, list);
  });
  py::list all;
  for (size_t i = 0; i < results.size(); ++i) {
    const pando_result& result = results[i];
    all.append(py::make_tuple(result.code == PANDO_OK ? py::object(py::none()) : ErrorOf(result),
                              BytesOf(result.value)));
  }
  return all;
}

}  // namespace

void AddMany(py::class_<Session>& session) {
  using namespace py::literals;
  const auto timeout = [] { return py::arg("timeout") = py::none(); };
  session.def("multi_get", &MultiGet, "tree"_a, "keys"_a, py::kw_only(), timeout())
      .def("multi_put", &MultiPut, "tree"_a, "rows"_a, py::kw_only(), timeout())
      .def("multi_erase", &MultiErase, "tree"_a, "keys"_a, py::kw_only(), timeout())
      .def("_write_many", &WriteMany, "tree"_a, "writes"_a, py::kw_only(), timeout());
}

}  // namespace pando_python

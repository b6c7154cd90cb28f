#include "support.h"

#include <unistd.h>

#include <cmath>

namespace pando_python {
namespace {

// Never destroyed: exceptions are made until the interpreter has ended.
py::object& ErrorFactory() {
  static auto* const factory = new py::object;
  return *factory;
}

}  // namespace

void TakeLockAgain(PyThreadState* state) noexcept {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {  // only pthread_exit(), whose exception has no other end than the thread's
    while (true) (void)pause();
  }
}

Tree::Tree(pando_tree* handle) : Handle(handle) {
  pando_tree_info info = {};
  info.size = sizeof(info);
  Check(pando_get_tree_info(handle, &info));
  name = info.name;
  key_bytes_max = info.key_bytes_max;
  value_bytes_max = info.value_bytes_max;
  inline_value_bytes_max = info.inline_value_bytes_max;
  node_bytes = info.node_bytes;
  owned = info.mode == PANDO_MODE_OWNED;
}

Bytes::Bytes(py::handle object) {
  if (PyBytes_Check(object.ptr())) {
    view_ = {PyBytes_AS_STRING(object.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(object.ptr()))};
    return;
  }
  Py_buffer buffer;
  if (PyObject_CheckBuffer(object.ptr()) == 0) {
    throw py::type_error("keys and values are bytes, not " +
                         std::string(Py_TYPE(object.ptr())->tp_name));
  }
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_FULL_RO) != 0) throw py::error_already_set();
  copy_.resize(static_cast<size_t>(buffer.len));
  const int copied = PyBuffer_ToContiguous(copy_.data(), &buffer, buffer.len, 'C');
  PyBuffer_Release(&buffer);
  if (copied != 0) throw py::error_already_set();
  view_ = {copy_.data(), copy_.size()};
}

py::bytes BytesOf(pando_bytes bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }

py::str TextOf(std::string_view text) {
  PyObject* const made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

int64_t TimeoutMs(const py::object& seconds) {
  if (seconds.is_none()) return 0;
  const double given = PyFloat_AsDouble(seconds.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  const double ms = std::ceil(given * 1000);
  if (std::isnan(ms)) throw py::value_error("a timeout that is no number");
  if (ms < 0) return -1;  // which Pando refuses
  if (ms > 1e15) return INT64_MAX;
  return ms < 1 ? 1 : static_cast<int64_t>(ms);
}

void CheckText(const std::string& text, const char* what) {
  if (text.find('\0') != std::string::npos) {
    throw py::value_error(std::string(what) + " has a zero byte inside");
  }
}

void SetErrorFactory(py::object factory) { ErrorFactory() = std::move(factory); }

py::object MakeError(pando_code code, std::string_view message, const py::object& actual) {
  return ErrorFactory()(pando_code_name(code), TextOf(message), actual);
}

void Raise(pando_code code, const py::object& actual) {
  const std::string message = pando_last_message();
  const py::object error = MakeError(code, message, actual);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

pando_operation_options OptionsOf(const py::object& timeout) {
  pando_operation_options options = PANDO_OPERATION_OPTIONS_INIT;
  options.timeout_ms = TimeoutMs(timeout);
  return options;
}

uint32_t FunctionOf(const py::object& function) {
  if (!py::isinstance<py::str>(function)) {
    const unsigned long number = PyLong_AsUnsignedLong(function.ptr());
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (number > UINT32_MAX) throw py::value_error("a function has a number of 32 bits");
    return static_cast<uint32_t>(number);
  }
  const auto name = function.cast<std::string>();
  if (name == "add") return PANDO_UPSERT_ADD;
  if (name == "min") return PANDO_UPSERT_MIN;
  if (name == "max") return PANDO_UPSERT_MAX;
  if (name == "append") return PANDO_UPSERT_APPEND;
  throw py::value_error("no function '" + name + "': add, min, max, append, or a number");
}

}  // namespace pando_python

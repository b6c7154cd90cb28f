// What all of the module uses: handles that close themselves, bytes, times and errors.
//
// Nothing of Python is touched while its lock (GIL) is released, which it is during every call of
// Pando that may wait. No Python code runs on threads or stacks of Pando's: answers of executors
// wait in a queue until a thread of Python's takes them.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pando.h"

namespace pando_python {

namespace py = pybind11;

// Takes Python's lock again. While the interpreter ends CPython before 3.14 ends the threads that
// wait for it, by an exception that may leave neither a destructor nor a call out of one: such a
// thread stays here instead, as CPython 3.14 has it, and goes with the process.
void TakeLockAgain(PyThreadState* state) noexcept;

// A call that may wait, without Python's lock: `call()` touches nothing of Python's, and throws
// nothing.
template <typename Call>
auto Released(const Call& call) {
  PyThreadState* const state = PyEval_SaveThread();
  const auto result = call();
  TakeLockAgain(state);
  return result;
}

// A handle of pando.h, closed when Python's object goes.
template <typename T, pando_code (*close_handle)(T*)>
class Handle {
 public:
  explicit Handle(T* handle) : handle_(handle) {}
  ~Handle() { Close(); }
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&&) = delete;

  // Once more is fine: the handle stays, so that later calls are told that it is closed.
  void Close() {
    if (handle_ != nullptr) (void)Released([this] { return close_handle(handle_); });
  }
  T* get() const { return handle_; }

 private:
  T* handle_;
};

using Client = Handle<pando_client, pando_close_client>;
using Session = Handle<pando_session, pando_close_session>;
using Cursor = Handle<pando_cursor, pando_close_cursor>;
using List = Handle<pando_list, pando_close_list>;

struct Tree : Handle<pando_tree, pando_close_tree> {
  explicit Tree(pando_tree* handle);

  std::string name;
  size_t key_bytes_max = 0, value_bytes_max = 0, inline_value_bytes_max = 0, node_bytes = 0;
  bool owned = false;
};

// Bytes of an object of Python's that outlives this: those of `bytes` themselves, a copy of what
// else has a buffer. TypeError: it has none.
class Bytes {
 public:
  explicit Bytes(py::handle object);
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  pando_bytes view() const { return view_; }

 private:
  std::string copy_;
  pando_bytes view_{};
};

py::bytes BytesOf(pando_bytes bytes);
// A text of Pando's, which is UTF-8 unless a tree's name or a path is not.
py::str TextOf(std::string_view text);

// Seconds or None, as milliseconds of an option: None is 0, the client's; at least 1.
int64_t TimeoutMs(const py::object& seconds);
// A text for an option that ends with a zero byte. ValueError: it has one inside.
void CheckText(const std::string& text, const char* what);

// The exception for a code, which errors.py makes. `actual`: a present value, or None.
py::object MakeError(pando_code code, std::string_view message, const py::object& actual);
// Raises it with this thread's last message.
[[noreturn]] void Raise(pando_code code, const py::object& actual = py::none());
inline void Check(pando_code code) {
  if (code != PANDO_OK) Raise(code);
}
void SetErrorFactory(py::object factory);

// Options of an operation with only a timeout.
pando_operation_options OptionsOf(const py::object& timeout);

// An upsert's function: a number, or a name of a built-in one.
uint32_t FunctionOf(const py::object& function);

// Parts of the module.
void AddClient(py::module_& module);
void AddSession(py::module_& module, py::class_<Session>& session);
void AddMany(py::class_<Session>& session);
void AddRange(py::module_& module, py::class_<Session>& session);
void AddExecutor(py::module_& module);

}  // namespace pando_python

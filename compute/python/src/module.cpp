// The module _core: pando.h for Python. What users see is in ../pando.
#include "support.h"

PYBIND11_MODULE(_core, module) {
  using pando_python::Session;
  module.def("set_error_factory", &pando_python::SetErrorFactory);
  module.attr("version") = pando_version();
  pando_python::AddClient(module);
  pybind11::class_<Session> session(module, "Session");
  pando_python::AddSession(module, session);
  pando_python::AddMany(session);
  pando_python::AddRange(module, session);
  pando_python::AddExecutor(module);
}

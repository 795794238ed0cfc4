// The Python module: graphs, layers, the compiler and sessions.
#include "client/popdist/context.hpp"
#include "client/python/vpod/bindings.h"

PYBIND11_MODULE(_vpod, module) {
  namespace python = vpod::python;
  // Never freed: errors may be thrown until the interpreter ends.
  static auto* const error =
      new pybind11::exception<python::Error>(module, "Error", PyExc_RuntimeError);
  pybind11::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const python::Error& cause) {
      PyErr_SetString(error->ptr(), cause.what());
    } catch (const popdist::popdist_error& cause) {
      PyErr_SetString(error->ptr(), cause.what());
    }
  });
  python::DefineGraph(module);
  python::DefineLayers(module);
  python::DefineCompiler(module);
  python::DefineSession(module);
}

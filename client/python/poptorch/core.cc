// The extension of the package poptorch: builds, compiles and runs the models that Python records.
#include "client/python/poptorch/core.h"

#include <string>

#include "client/aten/lower.h"
#include "client/popdist/context.hpp"

namespace vpod::poptorch::python {
namespace {

class StatusError : public std::exception {
 public:
  explicit StatusError(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "status"; }

 private:
  absl::Status status_;
};

void DefineErrors(py::module_& module) {
  // Never freed: errors may be thrown until the interpreter ends.
  static auto* const error = new py::object(py::reinterpret_steal<py::object>(
      PyErr_NewException("poptorch.poptorch_core.StatusError", PyExc_RuntimeError, nullptr)));
  module.attr("StatusError") = *error;
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const StatusError& cause) {
      const py::tuple arguments = py::make_tuple(absl::StatusCodeToString(cause.status().code()),
                                                 std::string(cause.status().message()));
      PyErr_SetObject(error->ptr(), arguments.ptr());
    } catch (const popdist::popdist_error& cause) {
      const py::tuple arguments = py::make_tuple("FAILED_PRECONDITION", cause.what());
      PyErr_SetObject(error->ptr(), arguments.ptr());
    }
  });
}

}  // namespace

void Check(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

}  // namespace vpod::poptorch::python

PYBIND11_MODULE(poptorch_core, module) {
  vpod::poptorch::python::DefineErrors(module);
  vpod::poptorch::python::DefineModel(module);
  vpod::poptorch::python::DefinePod(module);
  module.def(
      "operators",
      [] {
        std::vector<std::string> names;
        for (const auto& each : vpod::aten::Operators()) names.push_back(each.name);
        return names;
      },
      "The operators of PyTorch that can be compiled, such as \"add.Tensor\".");
}

// Shared by the parts of the extension poptorch_core: errors, and what Python's objects mean.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/poptorch/model.h"
#include "client/poptorch/program.h"

namespace vpod::poptorch::python {

namespace py = pybind11;

// Throws poptorch_core.StatusError, which has a code ("INVALID_ARGUMENT") and a message.
void Check(const absl::Status& status);
template <class T>
T Take(absl::StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}

// A Tape of poptorch._tape. TypeError or ValueError: it is not as its class says.
Tape TapeOf(const py::object& tape);
// The options of poptorch._core_options. ValueError names an option that there is not.
ModelOptions OptionsOf(const py::dict& options);
// The same of an optimiser; None has no groups.
OptimizerOptions OptimizerOf(const py::object& optimizer);

void DefineModel(py::module_& module);
void DefinePod(py::module_& module);

}  // namespace vpod::poptorch::python

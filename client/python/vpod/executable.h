#pragma once

#include "client/compiler/compiler.h"
#include "client/python/vpod/bindings.h"

namespace vpod::python {

// The result of vpod.compile.
struct Executable {
  compiler::Compiled compiled;
  uint32_t total_replicas = 1;
};

// (shape, dtype) of variables by name.
py::dict VariablesOf(const program::Executable& executable);

}  // namespace vpod::python

#pragma once

#include "client/compiler/compiler.h"

namespace vpod::python {

// The result of vpod.compile.
struct Executable {
  compiler::Compiled compiled;
  uint32_t total_replicas = 1;
  bool trains = false;
};

}  // namespace vpod::python

// numpy arrays that go to streams and variables of a session, and come from them.
#pragma once

#include <cstdint>
#include <string>

#include "client/python/vpod/bindings.h"

namespace vpod::python {

// How the data of a stream lie in an array: [local replicas, micro-batches of a run, …], of which
// the first two may be left out where they are 1.
struct StreamShape {
  program::TensorType type;  // of a micro-batch
  int64_t replicas, transfers;

  graph::Dims Whole() const;
  graph::Dims Short() const;
  // Explains the dimensions before those of a micro-batch, for messages.
  std::string Explanation() const;
};

// "[2,3]"
std::string Described(const graph::Dims& dims);
graph::Dims DimsOf(const py::array& array);

// TypeError names what the values are for if they are not numbers.
py::array ArrayOf(const py::object& values, const std::string& name);

// The same elements in the type of a stream or variable, by the rule of narrowing.h. Integers
// become floats where those are asked for. ValueError names what does not fit.
py::array Narrowed(const py::array& array, program::v1::DataType type, const std::string& what);

}  // namespace vpod::python

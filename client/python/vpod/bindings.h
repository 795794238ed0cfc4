// Shared by the parts of the module: handles, errors and types of elements.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/graph/graph.h"

namespace vpod::python {

namespace py = pybind11;

// vpod.Error, for all that is not a wrong argument.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws ValueError for a wrong argument, vpod.Error for other errors.
void Check(const absl::Status& status);
template <class T>
T Take(absl::StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}
// The same of what IPUs and controllers answer: what they do not find, such as a partition, is no
// wrong argument.
void CheckDevice(const absl::Status& status);
template <class T>
T TakeFromDevice(absl::StatusOr<T> result) {
  CheckDevice(result.status());
  return *std::move(result);
}

// A graph lives as long as Python has it or one of its tensors.
using GraphPtr = std::shared_ptr<graph::Graph>;
struct Value {
  GraphPtr graph;
  graph::Tensor tensor;

  graph::TensorType type() const { return graph->TypeOf(tensor); }
};

// Calls `build(Graph&)`, which adds to the graph, and throws the mistake that it makes, if it makes
// one. The graph can be used afterwards.
template <class Build>
Value AddTo(const GraphPtr& graph, const Build& build) {
  const graph::Tensor tensor = build(*graph);
  Check(graph->TakeStatus());
  return {graph, tensor};
}

// The tensor of a value of this graph. ValueError if it is of another.
graph::Tensor TensorOf(const Value& value, const GraphPtr& graph);
// The same of a tensor, or a constant of this type made of a number. TypeError for all else.
Value OperandOf(const py::object& operand, const GraphPtr& graph, program::v1::DataType type);

// An argument as an unsigned number. ValueError names it and its range if it is out of that.
uint32_t Count(absl::string_view name, int64_t value, uint32_t least = 0,
               uint32_t most = std::numeric_limits<uint32_t>::max());
// The argument `seed`. TypeError: not an integer; ValueError: not of 64 bits without sign.
uint64_t SeedOf(const py::object& seed);
// The argument `path`, with what a file name of the system is made of. TypeError: neither a text
// nor an os.PathLike; ValueError: with a NUL.
std::string PathOf(const py::object& path);

// Python's and numpy's integers; nothing for other objects. ValueError if 64 bits do not hold it.
std::optional<int64_t> AsInteger(const py::handle& object, absl::string_view name);
// The same. TypeError names an argument that is not an integer.
int64_t IntegerOf(const py::handle& object, absl::string_view name);
// The integers of a list, tuple or other sequence. TypeError names an argument
// that is something else.
std::vector<int64_t> IntegersOf(const py::handle& object, absl::string_view name);

// A number for each of `rank` spatial dimensions, given as one for all or a sequence.
std::vector<uint32_t> PerDimension(const py::object& numbers, size_t rank, absl::string_view name);
// The place of an axis of a tensor; negative ones count from the end.
uint32_t AxisOf(int64_t axis, const graph::TensorType& type);
// Ascending; None: all.
std::vector<uint32_t> AxesOf(const py::object& axes, const graph::TensorType& type);

// "float32", numpy.float32 …; ValueError lists the types there are.
program::v1::DataType TypeNamed(const py::object& dtype);
py::dtype NumpyType(program::v1::DataType type);
// The type of an array whose elements a device has as they are; float32 for others.
program::v1::DataType TypeFor(const py::array& array);

void DefineGraph(py::module_& module);
void DefineConversions(py::class_<Value>& tensor);
void DefineOperations(py::module_& module, py::class_<Value>& tensor);
void DefineAten(py::module_& module, py::class_<graph::Graph, GraphPtr>& graph);
void DefineLayers(py::module_& module);
void DefineCompiler(py::module_& module);
void DefineSession(py::module_& module);

}  // namespace vpod::python

#include "client/python/vpod/bindings.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vpod::python {

using program::v1::DataType;

namespace {

std::string TypeNameOf(const py::handle& object) { return py::str(py::type::of(object)); }

}  // namespace

void Check(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
      throw py::value_error(message);
    default:
      throw Error(message);
  }
}

void CheckDevice(const absl::Status& status) {
  if (absl::IsNotFound(status)) throw Error(std::string(status.message()));
  Check(status);
}

graph::Tensor TensorOf(const Value& value, const GraphPtr& graph) {
  if (value.graph != graph) throw py::value_error("the tensor is of another graph");
  return value.tensor;
}

Value OperandOf(const py::object& operand, const GraphPtr& graph, DataType type) {
  if (py::isinstance<Value>(operand)) {
    const auto value = operand.cast<Value>();
    TensorOf(value, graph);
    return value;
  }
  if (py::isinstance<py::array>(operand) && operand.cast<py::array>().ndim() > 0) {
    throw py::type_error(
        "an array is not an operand: make it a variable, a buffer or an input of the graph");
  }
  // numpy's texts would become the numbers that they have the digits of.
  const bool text = py::isinstance<py::str>(operand) || py::isinstance<py::bytes>(operand);
  const double number = text ? 0 : PyFloat_AsDouble(operand.ptr());
  if (text || PyErr_Occurred() != nullptr) {
    const bool too_large = !text && PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (too_large) throw py::value_error("an operand is outside the range of float64");
    throw py::type_error(
        absl::StrCat("an operand is ", TypeNameOf(operand), ", must be a vpod.Tensor or a number"));
  }
  return AddTo(graph, [&](graph::Graph& g) { return g.Constant({type, {}}, number); });
}

std::optional<int64_t> AsInteger(const py::handle& object, absl::string_view name) {
  const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!integer) {
    PyErr_Clear();
    return std::nullopt;
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow == 0) return value;
  using Limits = std::numeric_limits<int64_t>;
  throw py::value_error(absl::StrCat(name, " is ", std::string(py::str(integer)), ", must be ",
                                     Limits::min(), " to ", Limits::max()));
}

int64_t IntegerOf(const py::handle& object, absl::string_view name) {
  if (const auto integer = AsInteger(object, name)) return *integer;
  throw py::type_error(absl::StrCat(name, " is ", TypeNameOf(object), ", must be an integer"));
}

std::vector<int64_t> IntegersOf(const py::handle& object, absl::string_view name) {
  if (!py::isinstance<py::sequence>(object) || py::isinstance<py::str>(object) ||
      py::isinstance<py::bytes>(object)) {
    throw py::type_error(absl::StrCat(name, " is ", TypeNameOf(object),
                                      ", must be an integer or a sequence of integers"));
  }
  std::vector<int64_t> integers;
  for (const py::handle each : object) integers.push_back(IntegerOf(each, name));
  return integers;
}

uint32_t Count(absl::string_view name, int64_t value, uint32_t least, uint32_t most) {
  if (value < least || value > most) {
    throw py::value_error(absl::StrCat(name, " is ", value, ", must be ", least, " to ", most));
  }
  return static_cast<uint32_t>(value);
}

uint64_t SeedOf(const py::object& seed) {
  const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(seed.ptr()));
  if (!integer) {
    PyErr_Clear();
    throw py::type_error(absl::StrCat("seed is ", TypeNameOf(seed), ", must be an integer"));
  }
  const uint64_t value = PyLong_AsUnsignedLongLong(integer.ptr());
  if (PyErr_Occurred() == nullptr) return value;
  PyErr_Clear();
  throw py::value_error(absl::StrCat("seed is ", std::string(py::str(integer)), ", must be 0 to ",
                                     std::numeric_limits<uint64_t>::max()));
}

std::string PathOf(const py::object& path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) != 0)
    return py::reinterpret_steal<py::bytes>(bytes);
  const bool is_other = PyErr_ExceptionMatches(PyExc_TypeError) != 0;
  if (!is_other) throw py::error_already_set();
  PyErr_Clear();
  throw py::type_error(
      absl::StrCat("path is ", TypeNameOf(path), ", must be a string or an os.PathLike"));
}

std::vector<uint32_t> PerDimension(const py::object& numbers, size_t rank, absl::string_view name) {
  std::vector<uint32_t> all;
  if (const auto integer = AsInteger(numbers, name)) {
    all.assign(rank, Count(name, *integer));
  } else {
    for (int64_t each : IntegersOf(numbers, name)) all.push_back(Count(name, each));
  }
  if (all.size() != rank) {
    throw py::value_error(absl::StrCat(name, " has ", all.size(),
                                       " numbers, must have one for each of the ", rank,
                                       " spatial dimensions"));
  }
  return all;
}

uint32_t AxisOf(int64_t axis, const graph::TensorType& type) {
  const auto rank = static_cast<int64_t>(type.dims.size());
  if (axis < -rank || axis >= rank) {
    throw py::value_error(absl::StrCat("axis ", axis, " does not exist in ", type.ToString()));
  }
  return static_cast<uint32_t>(axis < 0 ? axis + rank : axis);
}

std::vector<uint32_t> AxesOf(const py::object& axes, const graph::TensorType& type) {
  std::vector<uint32_t> result;
  if (axes.is_none()) {
    result.resize(type.dims.size());
    std::iota(result.begin(), result.end(), 0);
  } else if (const auto axis = AsInteger(axes, "axes")) {
    result.push_back(AxisOf(*axis, type));
  } else {
    for (int64_t each : IntegersOf(axes, "axes")) result.push_back(AxisOf(each, type));
    std::sort(result.begin(), result.end());
  }
  return result;
}

namespace {

struct Row {
  DataType type;
  char kind;  // as NumPy has it
  int bytes;
};
constexpr Row kTypes[] = {
    {program::v1::FLOAT32, 'f', 4}, {program::v1::FLOAT16, 'f', 2}, {program::v1::INT8, 'i', 1},
    {program::v1::INT16, 'i', 2},   {program::v1::INT32, 'i', 4},   {program::v1::UINT8, 'u', 1},
    {program::v1::UINT16, 'u', 2},  {program::v1::UINT32, 'u', 4},  {program::v1::BOOL, 'b', 1}};

const Row* Find(const py::dtype& dtype) {
  for (const Row& row : kTypes) {
    if (dtype.kind() == row.kind && dtype.itemsize() == row.bytes) return &row;
  }
  return nullptr;
}

}  // namespace

DataType TypeNamed(const py::object& dtype) {
  py::dtype numpy = py::dtype::of<float>();
  try {
    numpy = py::dtype::from_args(dtype);
  } catch (const py::error_already_set&) {
    throw py::value_error(absl::StrCat(std::string(py::repr(dtype)), " is not a type of elements"));
  }
  const Row* row = Find(numpy);
  if (row != nullptr) return row->type;
  throw py::value_error(absl::StrCat(
      "tensors do not have elements of ", std::string(py::str(static_cast<py::object>(numpy))),
      ", must be ", absl::StrJoin(kTypes, ", ", [](std::string* out, const Row& each) {
        absl::StrAppend(out, program::Name(each.type));
      })));
}

py::dtype NumpyType(DataType type) {
  return py::dtype::from_args(py::str(std::string(program::Name(type))));
}

DataType TypeFor(const py::array& array) {
  const Row* row = Find(array.dtype());
  return row == nullptr ? program::v1::FLOAT32 : row->type;
}

}  // namespace vpod::python

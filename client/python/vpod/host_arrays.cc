#include "client/python/vpod/host_arrays.h"

#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/session/narrowing.h"

namespace vpod::python {

graph::Dims StreamShape::Whole() const {
  graph::Dims dims{replicas, transfers};
  dims.insert(dims.end(), type.dims.begin(), type.dims.end());
  return dims;
}

graph::Dims StreamShape::Short() const {
  graph::Dims dims;
  if (replicas > 1) dims.push_back(replicas);
  if (transfers > 1) dims.push_back(transfers);
  dims.insert(dims.end(), type.dims.begin(), type.dims.end());
  return dims;
}

std::string StreamShape::Explanation() const {
  std::vector<std::string> parts;
  if (replicas > 1) parts.push_back(absl::StrCat(replicas, " replicas of this process"));
  if (transfers > 1) parts.push_back(absl::StrCat(transfers, " micro-batches of a run"));
  if (parts.empty()) return "";
  return absl::StrCat(" (", absl::StrJoin(parts, ", "), ", then ", Described(type.dims), ")");
}

std::string Described(const graph::Dims& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

graph::Dims DimsOf(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

py::array ArrayOf(const py::object& values, const std::string& name) {
  auto array = py::array::ensure(values, py::array::c_style);
  if (array && std::strchr("fiub", array.dtype().kind()) != nullptr) return array;
  PyErr_Clear();
  throw py::type_error(absl::StrCat("'", name, "' needs an array of numbers"));
}

py::array Narrowed(const py::array& array, program::v1::DataType type, const std::string& what) {
  if (array.dtype().equal(NumpyType(type))) return array;
  if (!program::IsFloat(type) && array.dtype().kind() == 'f') {
    const absl::string_view takes = program::Name(type);
    throw py::value_error(absl::StrCat(what, " takes ", takes, ", and not ",
                                       std::string(py::str(static_cast<py::object>(array.dtype()))),
                                       ": array.astype('", takes, "') makes it that"));
  }
  py::array result(NumpyType(type), DimsOf(array));
  auto* to = static_cast<std::byte*>(result.mutable_data());
  const auto wide = [&]<class T>(T) {
    const auto all = py::array_t<T, py::array::c_style | py::array::forcecast>::ensure(array);
    return std::vector<T>(all.data(), all.data() + all.size());
  };
  const bool is_wide = array.dtype().kind() == 'u' && array.itemsize() == sizeof(uint64_t);
  if (is_wide && !program::IsFloat(type)) {
    // As int64 they would be negative.
    for (const uint64_t value : wide(uint64_t{})) {
      if (value <= std::numeric_limits<int64_t>::max()) continue;
      throw py::value_error(
          absl::StrCat(what, ": value ", value, " is outside the range of ", program::Name(type)));
    }
  }
  if (program::IsFloat(type)) {
    Check(session::Narrow(what, wide(double{}), type, to));
  } else {
    Check(session::Narrow(what, wide(int64_t{}), type, to));
  }
  return result;
}

}  // namespace vpod::python

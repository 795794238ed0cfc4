// Reads a tape of poptorch._tape.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/python/poptorch/core.h"

namespace vpod::poptorch::python {
namespace {

int64_t IntegerOf(const py::handle& object) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (overflow != 0)
    throw py::value_error(absl::StrCat(std::string(py::str(object)), " needs more than 64 bits"));
  return value;
}

Use UseOf(const py::handle& object) {
  const auto pair = py::reinterpret_borrow<py::tuple>(object);
  if (pair.size() != 2) throw py::value_error("a use of a value is (value, stop)");
  return {.value = pair[0].cast<ValueId>(), .stop = pair[1].cast<bool>()};
}

Argument ListOf(const py::list& list) {
  bool has_uses = false, has_floats = false;
  for (const py::handle each : list) {
    has_uses = has_uses || each.is_none() || PyTuple_Check(each.ptr());
    has_floats = has_floats || PyFloat_Check(each.ptr());
  }
  if (has_uses) {
    std::vector<Use> uses;
    for (const py::handle each : list) uses.push_back(each.is_none() ? Use{} : UseOf(each));
    return uses;
  }
  if (has_floats) {
    std::vector<double> floats;
    for (const py::handle each : list) floats.push_back(each.cast<double>());
    return floats;
  }
  std::vector<int64_t> integers;
  for (const py::handle each : list) integers.push_back(IntegerOf(each));
  return integers;
}

Argument ArgumentOf(const py::handle& object) {
  PyObject* const any = object.ptr();
  if (object.is_none()) return {};
  if (PyTuple_Check(any)) return UseOf(object);
  if (PyBool_Check(any)) return any == Py_True;
  if (PyLong_Check(any)) return IntegerOf(object);
  if (PyFloat_Check(any)) return PyFloat_AS_DOUBLE(any);
  if (PyUnicode_Check(any)) return object.cast<std::string>();
  if (PyList_Check(any)) return ListOf(py::reinterpret_borrow<py::list>(object));
  throw py::type_error(
      absl::StrCat("an argument of an operator is ", std::string(py::str(py::type::of(object)))));
}

Record RecordOf(const py::handle& object) {
  const auto fields = py::reinterpret_borrow<py::sequence>(object);
  Record record{.op = fields[0].cast<uint32_t>(),
                .scope = fields[3].cast<uint32_t>(),
                .line = fields[4].cast<uint32_t>(),
                .block = fields[5].cast<int32_t>()};
  for (const py::handle each : fields[1]) record.arguments.push_back(ArgumentOf(each));
  for (const py::handle each : fields[2]) record.outputs.push_back(each.cast<ValueId>());
  return record;
}

std::vector<Record> RecordsOf(const py::object& list) {
  std::vector<Record> records;
  for (const py::handle each : list) records.push_back(RecordOf(each));
  return records;
}

std::vector<NamedValue> NamedValuesOf(const py::object& list) {
  std::vector<NamedValue> values;
  for (const py::handle each : list) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    values.push_back({.name = fields[0].cast<std::string>(),
                      .value = fields[1].cast<ValueId>(),
                      .final = fields[2].cast<ValueId>()});
    if (fields.size() > 3) values.back().requires_grad = fields[3].cast<bool>();
  }
  return values;
}

}  // namespace

Tape TapeOf(const py::object& tape) {
  Tape result;
  result.operators = tape.attr("operators").cast<std::vector<std::string>>();
  result.scopes = tape.attr("scopes").cast<std::vector<std::string>>();
  result.lines = tape.attr("lines").cast<std::vector<std::string>>();
  result.results = tape.attr("results").cast<std::vector<ValueId>>();
  result.checkpoints = tape.attr("checkpoints").cast<std::vector<ValueId>>();
  result.available_memory =
      tape.attr("available_memory").cast<std::vector<std::pair<ValueId, float>>>();
  result.partials = tape.attr("partials").cast<std::vector<std::pair<ValueId, int>>>();
  result.recomputed = tape.attr("recomputed").cast<std::vector<std::pair<uint32_t, uint32_t>>>();
  result.parameters = NamedValuesOf(tape.attr("parameters"));
  result.buffers = NamedValuesOf(tape.attr("buffers"));
  result.inputs = NamedValuesOf(tape.attr("inputs"));
  result.records = RecordsOf(tape.attr("records"));
  for (const py::handle each : tape.attr("groupings")) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    result.parameters.at(fields[0].cast<size_t>()).groups =
        ReplicaGroups{fields[1].cast<uint32_t>(), fields[2].cast<bool>()};
  }
  for (const py::handle each : tape.attr("values")) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    result.values.push_back({fields[0].cast<int>(), fields[1].cast<program::Dims>()});
  }
  for (const py::handle each : tape.attr("blocks")) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    result.blocks.push_back(
        {fields[0].cast<uint32_t>(), fields[1].cast<uint32_t>(), fields[2].cast<int32_t>()});
  }
  for (const py::handle each : tape.attr("constants")) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    result.constants.push_back({fields[0].cast<ValueId>(), fields[1].cast<std::string>()});
  }
  for (const py::handle each : tape.attr("losses")) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    result.losses.push_back({fields[0].cast<ValueId>(), fields[1].cast<std::string>()});
  }
  for (const py::handle each : tape.attr("regions")) {
    const auto fields = py::reinterpret_borrow<py::sequence>(each);
    result.regions.push_back({.name = fields[0].cast<std::string>(),
                              .cotangents = fields[1].cast<std::vector<ValueId>>(),
                              .gradients = fields[2].cast<std::vector<ValueId>>(),
                              .records = RecordsOf(fields[3])});
  }
  return result;
}

}  // namespace vpod::poptorch::python

// PyTorch's operators, for fronts that trace them.
#include "absl/strings/str_cat.h"
#include "client/aten/lower.h"
#include "client/python/vpod/bindings.h"

namespace vpod::python {
namespace {

constexpr char kLists[] = "a list must have numbers, or tensors and None";

// None, a tensor, bool, int, float or str, or a list or tuple of ints, of floats and ints, or of
// tensors and None.
aten::Argument ArgumentOf(const py::handle& argument, const GraphPtr& graph, size_t place) {
  if (argument.is_none()) return {};
  if (py::isinstance<Value>(argument)) return TensorOf(argument.cast<Value>(), graph);
  if (py::isinstance<py::bool_>(argument)) return argument.cast<bool>();
  const std::string name = absl::StrCat("argument ", place);
  if (const auto integer = AsInteger(argument, name)) return *integer;
  if (py::isinstance<py::float_>(argument)) return argument.cast<double>();
  if (py::isinstance<py::str>(argument)) return argument.cast<std::string>();
  if (!py::isinstance<py::list>(argument) && !py::isinstance<py::tuple>(argument)) {
    throw py::type_error(
        absl::StrCat("an argument is ", std::string(py::str(py::type::of(argument))),
                     ", must be None, a vpod.Tensor, a number, a string or a list"));
  }
  std::vector<int64_t> integers;
  std::vector<double> numbers;  // the integers as well
  std::vector<graph::Tensor> tensors;
  for (const py::handle part : argument.cast<py::sequence>()) {
    if (const auto integer = AsInteger(part, name)) {
      integers.push_back(*integer);
      numbers.push_back(static_cast<double>(*integer));
    } else if (py::isinstance<py::float_>(part)) {
      numbers.push_back(part.cast<double>());
    } else if (part.is_none()) {
      tensors.emplace_back();
    } else if (py::isinstance<Value>(part)) {
      tensors.push_back(TensorOf(part.cast<Value>(), graph));
    } else {
      throw py::type_error(kLists);
    }
  }
  if (!tensors.empty() && !numbers.empty()) throw py::type_error(kLists);
  if (integers.size() < numbers.size()) return numbers;
  if (tensors.empty()) return integers;
  return tensors;
}

py::list Lower(const GraphPtr& graph, const std::string& name, const py::args& arguments) {
  std::vector<aten::Argument> all;
  for (const py::handle argument : arguments)
    all.push_back(ArgumentOf(argument, graph, all.size()));
  py::list outputs;
  for (const graph::Tensor output : Take(aten::Lower(*graph, name, std::move(all)))) {
    outputs.append(output.valid() ? py::cast(Value{graph, output}) : py::none());
  }
  return outputs;
}

}  // namespace

void DefineAten(py::module_& module, py::class_<graph::Graph, GraphPtr>& graph) {
  graph.def(
      "aten", Lower, py::arg("name"),
      "Adds an operator of PyTorch, such as \"add.Tensor\", with its arguments in the order of "
      "its schema; gives its outputs.");
  module.def(
      "aten_operators",
      [] {
        py::dict operators;
        for (const auto& [name, parameters] : aten::Operators())
          operators[py::str(name)] = parameters;
        return operators;
      },
      "The operators that Graph.aten takes, and their parameters.");
}

}  // namespace vpod::python

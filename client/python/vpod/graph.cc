// vpod.Graph, and what every tensor has beside operations.
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/python/vpod/bindings.h"

namespace vpod::python {
namespace {

using graph::Graph;
using graph::InitialValue;
using graph::Tensor;
using graph::TensorType;
using program::v1::DataType;

// vpod.uniform, vpod.normal and vpod.filled: first values that no memory holds before a session
// writes them.
struct Recipe {
  TensorType type;
  InitialValue value;
};

Recipe Drawn(const graph::Dims& shape, const InitialValue& value, const py::object& dtype) {
  const Recipe recipe{{TypeNamed(dtype), shape}, value};
  Check(value.Check(recipe.type));
  return recipe;
}

// First values, and the type of the variable: that of an array, unless it is given.
Recipe FirstValues(const py::object& values, const py::object& dtype) {
  if (py::isinstance<Recipe>(values)) {
    auto recipe = values.cast<Recipe>();
    if (!dtype.is_none()) recipe.type.type = TypeNamed(dtype);
    return recipe;
  }
  const auto array = py::array::ensure(values);
  if (!array) {
    PyErr_Clear();
    throw py::type_error("first values must be an array, numbers or a recipe such as vpod.normal");
  }
  if (!absl::StrContains("biuf", array.dtype().kind()))
    throw py::value_error("first values must be numbers");
  const auto elements = [&]<class T>(T) -> InitialValue {
    const auto all = py::array_t<T, py::array::c_style | py::array::forcecast>::ensure(array);
    if (!all) {
      PyErr_Clear();
      throw py::value_error("first values must be numbers");
    }
    return std::vector<T>(all.data(), all.data() + all.size());
  };
  const DataType type = dtype.is_none() ? TypeFor(array) : TypeNamed(dtype);
  // Floats would round integers above 2^24.
  return {{type, {array.shape(), array.shape() + array.ndim()}},
          program::IsFloat(type) ? elements(float{}) : elements(double{})};
}

// A context manager: operations that are added inside belong to a part of the model, or to an IPU.
class Scope {
 public:
  Scope(GraphPtr graph, std::string name) : graph_(std::move(graph)), name_(std::move(name)) {}
  void Enter() {
    if (scope_) throw Error("the scope is entered already");
    scope_.emplace(*graph_, name_);
  }
  void Exit(const py::args&) { scope_.reset(); }

 private:
  GraphPtr graph_;
  std::string name_;
  std::optional<Graph::Scope> scope_;
};

class OnIpu {
 public:
  OnIpu(GraphPtr graph, uint32_t ipu) : graph_(std::move(graph)), ipu_(ipu) {}
  void Enter() {
    if (before_) throw Error("the IPU's context is entered already");
    before_ = graph_->ipu();
    graph_->SetIpu(ipu_);
  }
  void Exit(const py::args&) {
    if (before_) graph_->SetIpu(*before_);
    before_.reset();
  }

 private:
  GraphPtr graph_;
  uint32_t ipu_;
  std::optional<uint32_t> before_;
};

std::vector<std::optional<Value>> Gradients(const GraphPtr& graph, const Value& loss,
                                            const std::vector<Value>& wanted) {
  std::vector<Tensor> tensors;
  for (const Value& value : wanted) tensors.push_back(TensorOf(value, graph));
  const std::vector<Tensor> found = graph->Gradients(TensorOf(loss, graph), tensors);
  Check(graph->TakeStatus());
  std::vector<std::optional<Value>> gradients;
  for (Tensor gradient : found) {
    gradients.emplace_back();
    if (gradient.valid()) gradients.back() = Value{graph, gradient};
  }
  return gradients;
}

Value Random(const GraphPtr& graph, const graph::Dims& shape, const std::string& distribution,
             const py::object& dtype) {
  program::v1::Random::Distribution kind;
  std::string name = distribution;
  for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
  if (!program::v1::Random::Distribution_Parse(name, &kind)) {
    throw py::value_error(
        absl::StrCat("distribution '", distribution, "' must be 'uniform', 'normal' or 'bits'"));
  }
  return AddTo(graph, [&](Graph& g) { return g.Random(kind, {TypeNamed(dtype), shape}); });
}

void DefineRecipes(py::module_& module) {
  py::class_<Recipe>(module, "Recipe", "First values of a variable that are made when needed.")
      .def_property_readonly(
          "shape", [](const Recipe& recipe) { return py::tuple(py::cast(recipe.type.dims)); });
  module.def(
      "filled",
      [](const graph::Dims& shape, double value, const py::object& dtype) {
        return Recipe{{TypeNamed(dtype), shape}, InitialValue::Filled(value)};
      },
      py::arg("shape"), py::arg("value") = 0.0, py::arg("dtype") = "float32",
      "First values that are all the same.");
  module.def(
      "uniform",
      [](const graph::Dims& shape, double bound, const py::object& seed, const py::object& dtype) {
        return Drawn(shape, InitialValue::Uniform(bound, SeedOf(seed)), dtype);
      },
      py::arg("shape"), py::arg("bound"), py::arg("seed"), py::arg("dtype") = "float32",
      "First values between -bound and bound.");
  module.def(
      "normal",
      [](const graph::Dims& shape, double deviation, const py::object& seed,
         const py::object& dtype) {
        return Drawn(shape, InitialValue::Normal(deviation, SeedOf(seed)), dtype);
      },
      py::arg("shape"), py::arg("deviation"), py::arg("seed"), py::arg("dtype") = "float32",
      "First values with a mean of 0 and this deviation.");
}

}  // namespace

void DefineGraph(py::module_& module) {
  DefineRecipes(module);
  py::class_<Value> tensor(module, "Tensor", "A value of a graph.");
  tensor
      .def_property_readonly("shape",
                             [](const Value& x) { return py::tuple(py::cast(x.type().dims)); })
      .def_property_readonly("ndim", [](const Value& x) { return x.type().dims.size(); })
      .def_property_readonly("dtype", [](const Value& x) { return NumpyType(x.type().type); })
      .def_property_readonly("graph", [](const Value& x) { return x.graph; })
      .def("__repr__",
           [](const Value& x) { return absl::StrCat("vpod.Tensor ", x.type().ToString()); });

  py::class_<Scope>(module, "Scope").def("__enter__", &Scope::Enter).def("__exit__", &Scope::Exit);
  py::class_<OnIpu>(module, "OnIpu").def("__enter__", &OnIpu::Enter).def("__exit__", &OnIpu::Exit);

  py::class_<Graph, GraphPtr> graph(module, "Graph",
                                    "What one replica computes for one micro-batch.");
  graph.def(py::init<>())
      .def(
          "input",
          [](const GraphPtr& graph, const std::string& name, const graph::Dims& shape,
             const py::object& dtype) {
            return AddTo(graph, [&](Graph& g) { return g.Input(name, {TypeNamed(dtype), shape}); });
          },
          py::arg("name"), py::arg("shape"), py::arg("dtype") = "float32",
          "A stream from the host: a new micro-batch each time the model runs.")
      .def(
          "variable",
          [](const GraphPtr& graph, const std::string& name, const py::object& values,
             const py::object& dtype) {
            const Recipe first = FirstValues(values, dtype);
            return AddTo(graph,
                         [&](Graph& g) { return g.Variable(name, first.type, first.value); });
          },
          py::arg("name"), py::arg("values"), py::arg("dtype") = py::none(),
          "A trainable parameter with its first values.")
      .def(
          "buffer",
          [](const GraphPtr& graph, const std::string& name, const py::object& values,
             const py::object& dtype) {
            const Recipe first = FirstValues(values, dtype);
            return AddTo(graph, [&](Graph& g) { return g.Buffer(name, first.type, first.value); });
          },
          py::arg("name"), py::arg("values"), py::arg("dtype") = py::none(),
          "State that is not trained.")
      .def(
          "assign",
          [](const GraphPtr& graph, const Value& buffer, const Value& value) {
            graph->Assign(TensorOf(buffer, graph), TensorOf(value, graph));
            Check(graph->TakeStatus());
          },
          py::arg("buffer"), py::arg("value"),
          "Gives a buffer a value after each micro-batch of a program that trains.")
      .def(
          "constant",
          [](const GraphPtr& graph, double value, const graph::Dims& shape,
             const py::object& dtype) {
            return AddTo(graph, [&](Graph& g) {
              return g.Constant({TypeNamed(dtype), shape}, value);
            });
          },
          py::arg("value"), py::arg("shape") = graph::Dims(), py::arg("dtype") = "float32",
          "A tensor of equal elements.")
      .def(
          "iota",
          [](const GraphPtr& graph, const graph::Dims& shape, int64_t axis,
             const py::object& dtype) {
            const TensorType type{TypeNamed(dtype), shape};
            return AddTo(graph, [&](Graph& g) { return g.Iota(type, AxisOf(axis, type)); });
          },
          py::arg("shape"), py::arg("axis") = 0, py::arg("dtype") = "int32",
          "Each element is its place along the axis.")
      .def("random", Random, py::arg("shape"), py::arg("distribution") = "uniform",
           py::arg("dtype") = "float32", "New elements in each micro-batch and replica.")
      .def(
          "output",
          [](const GraphPtr& graph, const std::string& name, const Value& value) {
            graph->Output(name, TensorOf(value, graph));
            Check(graph->TakeStatus());
          },
          py::arg("name"), py::arg("value"), "Sends a value to the host each time the model runs.")
      .def("gradients", Gradients, py::arg("loss"), py::arg("wanted"),
           "The gradient of the sum of the loss by each tensor; None where it has no influence.")
      .def(
          "scope",
          [](const GraphPtr& graph, std::string name) {
            return std::make_unique<Scope>(graph, std::move(name));
          },
          py::arg("name"), "A context: operations inside belong to this part of the model.")
      .def(
          "ipu", [](const GraphPtr& graph, int64_t ipu) { return OnIpu(graph, Count("ipu", ipu)); },
          py::arg("ipu"),
          "A context: values and operations inside are on this IPU of the replica.");
  DefineConversions(tensor);
  DefineOperations(module, tensor);
  DefineAten(module, graph);
}

}  // namespace vpod::python

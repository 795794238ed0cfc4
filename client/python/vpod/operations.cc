// Operations: methods of tensors, and functions.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/nn/resize.h"
#include "client/python/vpod/bindings.h"

namespace vpod::python {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorType;
using program::v1::BinaryOperator;
using program::v1::ReduceOperator;
using program::v1::UnaryOperator;

// --- Element by element ---

// Python's names where they are not those of program.proto in lower case.
std::string NameOf(const std::string& op) {
  static const auto* const names = new std::map<std::string, std::string>{
      {"ABSOLUTE", "abs"},     {"EXPONENT", "exp"},          {"LOGARITHM", "log"},
      {"SQUARE_ROOT", "sqrt"}, {"RECIPROCAL_ROOT", "rsqrt"}, {"TRUNCATE", "trunc"},
  };
  const auto found = names->find(op);
  return found == names->end() ? absl::AsciiStrToLower(op) : found->second;
}

Value Unary(UnaryOperator op, const Value& x) {
  return AddTo(x.graph, [&](Graph& g) { return g.Unary(op, x.tensor); });
}

// At least one operand is a tensor; a number takes its type.
Value Binary(BinaryOperator op, const py::object& a, const py::object& b) {
  const py::object& known = py::isinstance<Value>(a) ? a : b;
  if (!py::isinstance<Value>(known))
    throw py::type_error("at least one operand must be a vpod.Tensor");
  const auto& tensor = known.cast<const Value&>();
  const GraphPtr graph = tensor.graph;
  const program::v1::DataType type = tensor.type().type;
  const Value left = OperandOf(a, graph, type), right = OperandOf(b, graph, type);
  return AddTo(graph, [&](Graph& g) { return g.Binary(op, left.tensor, right.tensor); });
}

void DefineElementwise(py::module_& module, py::class_<Value>& tensor) {
  const auto* unary = program::v1::UnaryOperator_descriptor();
  for (int i = 1; i < unary->value_count(); ++i) {
    const auto op = static_cast<UnaryOperator>(unary->value(i)->number());
    module.def(
        NameOf(unary->value(i)->name()).c_str(), [op](const Value& x) { return Unary(op, x); },
        py::arg("x"));
  }
  const auto* binary = program::v1::BinaryOperator_descriptor();
  for (int i = 1; i < binary->value_count(); ++i) {
    const auto op = static_cast<BinaryOperator>(binary->value(i)->number());
    if (absl::EndsWith(binary->value(i)->name(), "_GRADIENT")) continue;
    module.def(
        NameOf(binary->value(i)->name()).c_str(),
        [op](const py::object& a, const py::object& b) { return Binary(op, a, b); }, py::arg("a"),
        py::arg("b"));
  }
  const std::pair<const char*, BinaryOperator> operators[] = {
      {"add", program::v1::ADD},      {"sub", program::v1::SUBTRACT},
      {"mul", program::v1::MULTIPLY}, {"truediv", program::v1::DIVIDE},
      {"pow", program::v1::POWER},    {"mod", program::v1::REMAINDER}};
  for (const auto& [name, op] : operators) {
    tensor.def(
        absl::StrCat("__", name, "__").c_str(),
        [op = op](const Value& a, const py::object& b) { return Binary(op, py::cast(a), b); });
    tensor.def(
        absl::StrCat("__r", name, "__").c_str(),
        [op = op](const Value& b, const py::object& a) { return Binary(op, a, py::cast(b)); });
  }
  const std::pair<const char*, BinaryOperator> comparisons[] = {
      {"__lt__", program::v1::LESS},
      {"__le__", program::v1::LESS_EQUAL},
      {"__gt__", program::v1::GREATER},
      {"__ge__", program::v1::GREATER_EQUAL}};
  for (const auto& [name, op] : comparisons) {
    tensor.def(name, [op = op](const Value& a, const py::object& b) {
      return Binary(op, py::cast(a), b);
    });
  }
  for (const auto& [name, op] :
       {std::pair("__eq__", program::v1::EQUAL), std::pair("__ne__", program::v1::NOT_EQUAL)}) {
    tensor.def(name, [op = op](const Value& a, const py::object& b) -> py::object {
      // `x == None` adds no operation.
      if (!py::isinstance<Value>(b) && PyNumber_Check(b.ptr()) == 0)
        return py::reinterpret_borrow<py::object>(Py_NotImplemented);
      return py::cast(Binary(op, py::cast(a), b));
    });
  }
  // Python takes it from a class that has __eq__.
  tensor.attr("__hash__") = py::module_::import("builtins").attr("object").attr("__hash__");
  tensor.def("__neg__", [](const Value& x) { return Unary(program::v1::NEGATE, x); })
      .def("__abs__", [](const Value& x) { return Unary(program::v1::ABSOLUTE, x); });
  module.def(
      "select",
      [](const Value& condition, const py::object& a, const py::object& b) {
        const py::object& known = py::isinstance<Value>(a) ? a : b;
        const auto type = py::isinstance<Value>(known) ? known.cast<const Value&>().type().type
                                                       : program::v1::FLOAT32;
        const Value left = OperandOf(a, condition.graph, type),
                    right = OperandOf(b, condition.graph, type);
        return AddTo(condition.graph, [&](Graph& g) {
          return g.Select(condition.tensor, left.tensor, right.tensor);
        });
      },
      py::arg("condition"), py::arg("a"), py::arg("b"),
      "a where the condition holds, otherwise b.");
}

// --- Shapes ---

Value Reshape(const Value& x, graph::Dims shape) {
  const auto unknown = std::find(shape.begin(), shape.end(), -1);
  if (unknown != shape.end()) {
    int64_t others = 1;
    for (auto dim = shape.begin(); dim != shape.end(); ++dim) others *= dim == unknown ? 1 : *dim;
    if (others > 0) *unknown = x.type().elements() / others;
  }
  return AddTo(x.graph, [&](Graph& g) { return g.Reshape(x.tensor, shape); });
}

// Integers, slices with steps of 1 or more, and an ellipsis, as NumPy's basic indexing has them.
Value Subscript(const Value& x, const py::object& key) {
  const py::tuple keys =
      py::isinstance<py::tuple>(key) ? key.cast<py::tuple>() : py::make_tuple(key);
  const graph::Dims& dims = x.type().dims;
  size_t ellipses = 0;
  for (const py::handle each : keys) ellipses += each.is(py::ellipsis()) ? 1 : 0;
  if (ellipses > 1 || keys.size() - ellipses > dims.size()) {
    throw py::index_error(absl::StrCat("too many indices for ", x.type().ToString()));
  }
  graph::Dims begin(dims.size(), 0), size = dims, step(dims.size(), 1), result;
  size_t axis = 0;
  for (const py::handle each : keys) {
    if (each.is(py::ellipsis())) {
      for (size_t rest = dims.size() - (keys.size() - 1); rest > 0; --rest, ++axis)
        result.push_back(dims[axis]);
    } else if (py::isinstance<py::slice>(each)) {
      py::ssize_t start = 0, stop = 0, stride = 0, length = 0;
      if (!each.cast<py::slice>().compute(dims[axis], &start, &stop, &stride, &length))
        throw py::error_already_set();
      if (stride < 1) throw py::value_error("the step of a slice must be 1 or more");
      begin[axis] = length == 0 ? 0 : start;
      size[axis] = length;
      step[axis++] = stride;
      result.push_back(length);
    } else if (const auto index = AsInteger(each, "an index")) {
      const int64_t at = *index < 0 ? *index + dims[axis] : *index;
      if (at < 0 || at >= dims[axis]) {
        throw py::index_error(
            absl::StrCat("index ", *index, " is outside ", -dims[axis], " to ", dims[axis] - 1));
      }
      begin[axis] = at;
      size[axis++] = 1;
    } else {
      throw py::type_error("an index must be an integer, a slice or ...; see also Tensor.gather");
    }
  }
  result.insert(result.end(), dims.begin() + static_cast<int64_t>(axis), dims.end());
  return AddTo(x.graph,
               [&](Graph& g) { return g.Reshape(g.Slice(x.tensor, begin, size, step), result); });
}

Value Transpose(const Value& x, const std::optional<std::vector<int64_t>>& axes) {
  std::vector<uint32_t> permutation;
  if (axes) {
    for (int64_t axis : *axes) permutation.push_back(AxisOf(axis, x.type()));
  } else {
    for (size_t i = x.type().dims.size(); i-- > 0;) permutation.push_back(static_cast<uint32_t>(i));
  }
  return AddTo(x.graph, [&](Graph& g) { return g.Transpose(x.tensor, permutation); });
}

void DefineShapes(py::module_& module, py::class_<Value>& tensor) {
  tensor.def("reshape", Reshape, py::arg("shape"), "One dimension may be -1.")
      .def("transpose", Transpose, py::arg("axes") = py::none())
      .def("__getitem__", Subscript)
      .def(
          "expand",
          [](const Value& x, const graph::Dims& shape) {
            return AddTo(x.graph, [&](Graph& g) { return g.Expand(x.tensor, shape); });
          },
          py::arg("shape"))
      .def(
          "pad",
          [](const Value& x, const graph::Dims& before, const graph::Dims& after, double value) {
            return AddTo(x.graph, [&](Graph& g) { return g.Pad(x.tensor, before, after, value); });
          },
          py::arg("before"), py::arg("after"), py::arg("value") = 0.0)
      .def(
          "cast",
          [](const Value& x, const py::object& dtype) {
            const auto type = TypeNamed(dtype);
            return AddTo(x.graph, [&](Graph& g) { return g.Cast(x.tensor, type); });
          },
          py::arg("dtype"));
  module.def(
      "concat",
      [](const std::vector<Value>& parts, int64_t axis) {
        if (parts.empty()) throw py::value_error("concat needs at least one tensor");
        std::vector<Tensor> tensors;
        for (const Value& part : parts) tensors.push_back(TensorOf(part, parts[0].graph));
        const uint32_t place = AxisOf(axis, parts[0].type());
        return AddTo(parts[0].graph, [&](Graph& g) { return g.Concat(tensors, place); });
      },
      py::arg("tensors"), py::arg("axis") = 0);
}

// --- Lines and axes ---

Value Reduce(ReduceOperator op, const Value& x, const py::object& axes, bool keep) {
  const std::vector<uint32_t> over = AxesOf(axes, x.type());
  return AddTo(x.graph, [&](Graph& g) {
    const Tensor reduced = g.Reduce(op, x.tensor, over);
    if (!keep || !g.status().ok()) return reduced;
    graph::Dims dims = x.type().dims;
    for (uint32_t axis : over) dims[axis] = 1;
    return g.Reshape(reduced, dims);
  });
}

void DefineLines(py::class_<Value>& tensor) {
  const std::pair<const char*, ReduceOperator> reductions[] = {{"sum", program::v1::SUM},
                                                               {"mean", program::v1::MEAN},
                                                               {"max", program::v1::MAX},
                                                               {"min", program::v1::MIN},
                                                               {"prod", program::v1::PRODUCT}};
  for (const auto& [name, op] : reductions) {
    tensor.def(
        name,
        [op = op](const Value& x, const py::object& axes, bool keep) {
          return Reduce(op, x, axes, keep);
        },
        py::arg("axes") = py::none(), py::arg("keepdims") = false, "Over all axes by default.");
  }
  for (const auto& [name, op] :
       {std::pair("cumsum", program::v1::SUM), std::pair("cumprod", program::v1::PRODUCT)}) {
    tensor.def(
        name,
        [op = op](const Value& x, int64_t axis, bool exclusive, bool reverse) {
          return AddTo(x.graph, [&](Graph& g) {
            return g.Cumulate(op, x.tensor, AxisOf(axis, x.type()),
                              {.exclusive = exclusive, .reverse = reverse});
          });
        },
        py::arg("axis"), py::arg("exclusive") = false, py::arg("reverse") = false);
  }
  tensor
      .def(
          "argmax",
          [](const Value& x) {
            return AddTo(x.graph, [&](Graph& g) { return g.ArgMax(x.tensor); });
          },
          "The place of the largest element along the last axis.")
      .def(
          "softmax",
          [](const Value& x, int64_t axis) {
            return AddTo(x.graph,
                         [&](Graph& g) { return g.Softmax(x.tensor, AxisOf(axis, x.type())); });
          },
          py::arg("axis") = -1)
      .def(
          "log_softmax",
          [](const Value& x, int64_t axis) {
            return AddTo(x.graph,
                         [&](Graph& g) { return g.LogSoftmax(x.tensor, AxisOf(axis, x.type())); });
          },
          py::arg("axis") = -1)
      .def(
          "sort",
          [](const Value& x, int64_t axis, bool descending, std::optional<int64_t> count) {
            const Graph::Sorted sorted =
                x.graph->Sort(x.tensor, AxisOf(axis, x.type()), descending, count);
            Check(x.graph->TakeStatus());
            return py::make_tuple(Value{x.graph, sorted.values}, Value{x.graph, sorted.places});
          },
          py::arg("axis") = -1, py::arg("descending") = false, py::arg("count") = py::none(),
          "(values, places) of the first `count` elements of each sorted line.")
      .def(
          "gather",
          [](const Value& x, const Value& indices, int64_t axis, bool along) {
            const Tensor places = TensorOf(indices, x.graph);
            return AddTo(x.graph, [&](Graph& g) {
              return g.Gather(x.tensor, places, AxisOf(axis, x.type()), along);
            });
          },
          py::arg("indices"), py::arg("axis") = 0, py::arg("along") = false,
          "The slices that int32 indices choose; `along` as torch.gather.")
      .def(
          "dropout",
          [](const Value& x, float probability) {
            return AddTo(x.graph, [&](Graph& g) { return g.Dropout(x.tensor, probability); });
          },
          py::arg("probability"));
}

// --- Matrices, images and losses ---

program::v1::SlidingWindow WindowOf(const Value& image, const py::object& kernel,
                                    const py::object& stride, const py::object& padding,
                                    const py::object& dilation) {
  const size_t rank = image.type().dims.size();
  if (rank < 3) {
    throw py::value_error(absl::StrCat(
        "an image is [batch, channels, spatial dimensions…], and not ", image.type().ToString()));
  }
  program::v1::SlidingWindow window;
  const auto set = [&](const py::object& numbers, const char* name, auto* field) {
    const auto all = PerDimension(numbers, rank - 2, name);
    field->Assign(all.begin(), all.end());
  };
  set(kernel, "kernel", window.mutable_kernel());
  set(stride.is_none() ? kernel : stride, "stride", window.mutable_stride());
  set(dilation, "dilation", window.mutable_dilation());
  set(padding, "padding", window.mutable_pad_before());
  set(padding, "padding", window.mutable_pad_after());
  return window;
}

Value MatMul(const Value& a, const Value& b, bool transpose_a, bool transpose_b) {
  const Tensor right = TensorOf(b, a.graph);
  return AddTo(a.graph,
               [&](Graph& g) { return g.MatMul(a.tensor, right, transpose_a, transpose_b); });
}

Value CrossEntropy(const Value& logits, const Value& labels, float smoothing,
                   std::optional<int32_t> ignored) {
  const Tensor rows = TensorOf(labels, logits.graph);
  return AddTo(logits.graph, [&](Graph& g) {
    return g.CrossEntropyLoss(logits.tensor, rows,
                              {.label_smoothing = smoothing, .ignored_label = ignored});
  });
}

Value Resize(const Value& image, const graph::Dims& size, const std::string& mode,
             bool align_corners) {
  static const auto* const modes = new std::map<std::string, nn::Interpolation>{
      {"nearest", nn::Interpolation::kNearest},
      {"nearest-exact", nn::Interpolation::kNearestExact},
      {"linear", nn::Interpolation::kLinear},
      {"cubic", nn::Interpolation::kCubic}};
  const auto found = modes->find(mode);
  if (found == modes->end()) {
    throw py::value_error(
        absl::StrCat("mode '", mode, "' must be 'nearest', 'nearest-exact', 'linear' or 'cubic'"));
  }
  return AddTo(image.graph, [&](Graph& g) {
    return nn::Resize(g, image.tensor, size,
                      {.interpolation = found->second, .align_corners = align_corners});
  });
}

void DefineModels(py::module_& module, py::class_<Value>& tensor) {
  tensor.def(
      "__matmul__", [](const Value& a, const Value& b) { return MatMul(a, b, false, false); },
      py::arg("other"));
  module.def("matmul", MatMul, py::arg("a"), py::arg("b"), py::arg("transpose_a") = false,
             py::arg("transpose_b") = false);
  module.def(
      "gelu",
      [](const Value& x) { return AddTo(x.graph, [&](Graph& g) { return g.Gelu(x.tensor); }); },
      py::arg("x"));
  const py::object one = py::int_(1), zero = py::int_(0);
  module.def(
      "convolution",
      [](const Value& image, const Value& weights, const py::object& stride,
         const py::object& padding, const py::object& dilation, int64_t groups_given) {
        const uint32_t groups = Count("groups", groups_given, 1);
        const Tensor kernels = TensorOf(weights, image.graph);
        const graph::Dims& dims = weights.type().dims;
        if (dims.size() < 3) throw py::value_error("weights are [outputs, channels, kernel…]");
        const py::object kernel = py::cast(graph::Dims(dims.begin() + 2, dims.end()));
        const auto window = WindowOf(image, kernel, stride, padding, dilation);
        return AddTo(image.graph, [&](Graph& g) {
          return g.Convolution(image.tensor, kernels, window, groups);
        });
      },
      py::arg("image"), py::arg("weights"), py::arg("stride") = one, py::arg("padding") = zero,
      py::arg("dilation") = one, py::arg("groups") = 1);
  module.def(
      "max_pool",
      [](const Value& image, const py::object& kernel, const py::object& stride,
         const py::object& padding, const py::object& dilation) {
        const auto window = WindowOf(image, kernel, stride, padding, dilation);
        return AddTo(image.graph, [&](Graph& g) { return g.MaxPool(image.tensor, window); });
      },
      py::arg("image"), py::arg("kernel"), py::arg("stride") = py::none(),
      py::arg("padding") = zero, py::arg("dilation") = one);
  module.def(
      "average_pool",
      [one](const Value& image, const py::object& kernel, const py::object& stride,
            const py::object& padding, bool count_padding) {
        const auto window = WindowOf(image, kernel, stride, padding, one);
        return AddTo(image.graph,
                     [&](Graph& g) { return g.AveragePool(image.tensor, window, count_padding); });
      },
      py::arg("image"), py::arg("kernel"), py::arg("stride") = py::none(),
      py::arg("padding") = zero, py::arg("count_padding") = true);
  module.def("resize", Resize, py::arg("image"), py::arg("size"), py::arg("mode") = "nearest",
             py::arg("align_corners") = false);
  module.def("cross_entropy", CrossEntropy, py::arg("logits"), py::arg("labels"),
             py::arg("label_smoothing") = 0.0, py::arg("ignored_label") = py::none(),
             "The mean loss of rows of logits with int32 labels.");
}

}  // namespace

void DefineOperations(py::module_& module, py::class_<Value>& tensor) {
  DefineElementwise(module, tensor);
  DefineShapes(module, tensor);
  DefineLines(tensor);
  DefineModels(module, tensor);
}

}  // namespace vpod::python

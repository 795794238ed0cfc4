// vpod.nn: layers with PyTorch's parameter names and first values.
#include "client/nn/builder.h"
#include "client/nn/recurrent.h"
#include "client/python/vpod/bindings.h"

namespace vpod::python {
namespace {

using graph::Tensor;

// A builder, which keeps its graph.
class Builder {
 public:
  Builder(GraphPtr graph, const py::object& seed, bool training)
      : graph_(std::move(graph)), net_(*graph_, {.seed = SeedOf(seed), .training = training}) {}
  Builder(GraphPtr graph, nn::Builder net) : graph_(std::move(graph)), net_(std::move(net)) {}

  const GraphPtr& graph() const { return graph_; }
  Builder In(const std::string& name) const { return {graph_, net_.In(name)}; }
  // Adds what `layer(builder, x)` makes of a tensor of the graph.
  template <class Layer>
  Value Add(const Value& x, const Layer& layer) const {
    const Tensor input = TensorOf(x, graph_);
    return AddTo(graph_, [&](graph::Graph&) { return layer(net_, input); });
  }

 private:
  GraphPtr graph_;
  nn::Builder net_;
};

template <class Layer>
Value AddRecurrent(const Builder& net, const std::string& name, const Value& x, int64_t hidden,
                   int layers, bool bidirectional, Layer layer) {
  return net.Add(x, [&](const nn::Builder& builder, Tensor in) {
    return layer(builder, name, in, hidden,
                 nn::RecurrentOptions{.layers = layers, .bidirectional = bidirectional})
        .output;
  });
}

}  // namespace

void DefineLayers(py::module_& module) {
  py::module_ nn = module.def_submodule("nn", "Layers with PyTorch's parameters.");
  py::class_<Builder>(nn, "Builder")
      .def(py::init<GraphPtr, const py::object&, bool>(), py::arg("graph").none(false),
           py::arg("seed") = 0, py::arg("training") = false)
      .def_property_readonly("graph", &Builder::graph)
      .def("into", &Builder::In, py::arg("name"),
           "The same, with a name and a dot before all names.")
      .def(
          "linear",
          [](const Builder& net, const std::string& name, const Value& x, int64_t outputs) {
            return net.Add(
                x, [&](const nn::Builder& b, Tensor in) { return b.Linear(name, in, outputs); });
          },
          py::arg("name"), py::arg("x"), py::arg("outputs"))
      .def(
          "convolution",
          [](const Builder& net, const std::string& name, const Value& x, int64_t outputs,
             int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, int64_t groups,
             bool bias) {
            const nn::ConvolutionOptions options{
                Count("kernel", kernel, 1), Count("stride", stride, 1),
                Count("padding", padding),  Count("dilation", dilation, 1),
                Count("groups", groups, 1), bias};
            return net.Add(x, [&](const nn::Builder& b, Tensor in) {
              return b.Convolution(name, in, outputs, options);
            });
          },
          py::arg("name"), py::arg("x"), py::arg("outputs"), py::arg("kernel"),
          py::arg("stride") = 1, py::arg("padding") = 0, py::arg("dilation") = 1,
          py::arg("groups") = 1, py::arg("bias") = true)
      .def(
          "batch_norm",
          [](const Builder& net, const std::string& name, const Value& x, float epsilon,
             float momentum, int64_t replicas) {
            const nn::BatchNormOptions options{epsilon, momentum, Count("replicas", replicas, 1)};
            return net.Add(
                x, [&](const nn::Builder& b, Tensor in) { return b.BatchNorm(name, in, options); });
          },
          py::arg("name"), py::arg("x"), py::arg("epsilon") = 1e-5, py::arg("momentum") = 0.1,
          py::arg("replicas") = 1)
      .def(
          "layer_norm",
          [](const Builder& net, const std::string& name, const Value& x, float epsilon) {
            return net.Add(
                x, [&](const nn::Builder& b, Tensor in) { return b.LayerNorm(name, in, epsilon); });
          },
          py::arg("name"), py::arg("x"), py::arg("epsilon") = 1e-5)
      .def(
          "embedding",
          [](const Builder& net, const std::string& name, const Value& indices, int64_t count,
             int64_t width, const py::object& dtype) {
            const auto type = TypeNamed(dtype);
            return net.Add(indices, [&](const nn::Builder& b, Tensor in) {
              return b.Embedding(name, in, count, width, type);
            });
          },
          py::arg("name"), py::arg("indices"), py::arg("count"), py::arg("width"),
          py::arg("dtype") = "float32")
      .def(
          "self_attention",
          [](const Builder& net, const std::string& name, const Value& x, int64_t heads) {
            return net.Add(x, [&](const nn::Builder& b, Tensor in) {
              return b.SelfAttention(name, in, heads);
            });
          },
          py::arg("name"), py::arg("x"), py::arg("heads"))
      .def(
          "lstm",
          [](const Builder& net, const std::string& name, const Value& x, int64_t hidden,
             int layers, bool bidirectional) {
            return AddRecurrent(net, name, x, hidden, layers, bidirectional,
                                [](auto&&... args) { return nn::Lstm(args...); });
          },
          py::arg("name"), py::arg("x"), py::arg("hidden"), py::arg("layers") = 1,
          py::arg("bidirectional") = false, "Outputs of the last layer at each step.")
      .def(
          "gru",
          [](const Builder& net, const std::string& name, const Value& x, int64_t hidden,
             int layers, bool bidirectional) {
            return AddRecurrent(net, name, x, hidden, layers, bidirectional,
                                [](auto&&... args) { return nn::Gru(args...); });
          },
          py::arg("name"), py::arg("x"), py::arg("hidden"), py::arg("layers") = 1,
          py::arg("bidirectional") = false, "Outputs of the last layer at each step.")
      .def(
          "dropout",
          [](const Builder& net, const Value& x, float probability) {
            return net.Add(
                x, [&](const nn::Builder& b, Tensor in) { return b.Dropout(in, probability); });
          },
          py::arg("x"), py::arg("probability"), "In training only.")
      .def(
          "global_average_pool",
          [](const Builder& net, const Value& x) {
            return net.Add(x,
                           [](const nn::Builder& b, Tensor in) { return b.GlobalAveragePool(in); });
          },
          py::arg("x"))
      .def(
          "flatten",
          [](const Builder& net, const Value& x) {
            return net.Add(x, [](const nn::Builder& b, Tensor in) { return b.Flatten(in); });
          },
          py::arg("x"));
}

}  // namespace vpod::python

#include "client/nn/recurrent.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace vpod::nn {

using graph::Dims;
using program::v1::SIGMOID;
using program::v1::TANH;

namespace {

struct State {
  Tensor hidden, cell;
};

// How LSTM and GRU differ.
struct Kind {
  const char* name;
  int64_t gates;
  bool adds_products;  // of input and state in all gates, so that their biases are one
  // The state after a step: from the products of all gates with the input and with the hidden
  // state, [batch, gates × hidden].
  State (*step)(Graph& graph, Tensor input, Tensor recurrent, const State& before);
};

// The columns of `count` gates.
Tensor Gates(Graph& graph, Tensor gates, int64_t first, int64_t count, const Tensor& like) {
  if (!graph.status().ok()) return {};
  Dims dims = graph.TypeOf(like).dims;
  const int64_t begin = first * dims[1];
  dims[1] *= count;
  return graph.Slice(gates, {0, begin}, dims);
}

State LstmStep(Graph& graph, Tensor input, Tensor recurrent, const State& before) {
  const auto gate = [&](Tensor gates, int64_t first, int64_t count = 1) {
    return Gates(graph, gates, first, count, before.cell);
  };
  const Tensor gates = graph.Add(input, recurrent);
  const Tensor in_and_forget = graph.Unary(SIGMOID, gate(gates, 0, 2)),
               candidate = graph.Unary(TANH, gate(gates, 2)),
               out = graph.Unary(SIGMOID, gate(gates, 3));
  const Tensor in = gate(in_and_forget, 0), forget = gate(in_and_forget, 1);
  const Tensor cell = graph.Add(graph.Multiply(forget, before.cell), graph.Multiply(in, candidate));
  return {graph.Multiply(out, graph.Unary(TANH, cell)), cell};
}

State GruStep(Graph& graph, Tensor input, Tensor recurrent, const State& before) {
  const auto gate = [&](Tensor gates, int64_t first, int64_t count = 1) {
    return Gates(graph, gates, first, count, before.hidden);
  };
  const Tensor open = graph.Unary(SIGMOID, graph.Add(gate(input, 0, 2), gate(recurrent, 0, 2)));
  const Tensor reset = gate(open, 0), update = gate(open, 1);
  const Tensor candidate =
      graph.Unary(TANH, graph.Add(gate(input, 2), graph.Multiply(reset, gate(recurrent, 2))));
  const Tensor change = graph.Binary(program::v1::SUBTRACT, before.hidden, candidate);
  return {graph.Add(candidate, graph.Multiply(update, change)), {}};
}

constexpr Kind kLstm = {"lstm", 4, true, LstmStep};
constexpr Kind kGru = {"gru", 3, false, GruStep};

// The steps [batch, features] of [time, batch, features].
std::vector<Tensor> Split(Graph& graph, Tensor x) {
  std::vector<Tensor> steps;
  if (!graph.status().ok()) return steps;
  const Dims dims = graph.TypeOf(x).dims;
  for (int64_t step = 0; step < dims[0]; ++step) {
    steps.push_back(
        graph.Reshape(graph.Slice(x, {step, 0, 0}, {1, dims[1], dims[2]}), {dims[1], dims[2]}));
  }
  return steps;
}

// The results of a layer in one direction.
struct Pass {
  std::vector<Tensor> outputs;  // of each step, in the order of time
  State state;                  // after the last step that it makes
};

Pass Run(const Builder& net, const Kind& kind, Tensor x, int64_t hidden, int layer, bool reverse) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(x);  // [time, batch, features]
  const auto parameter = [&](const char* name, Dims dims) {
    return net.Parameter(absl::StrCat(name, "_l", layer, reverse ? "_reverse" : ""),
                         {type.type, std::move(dims)},
                         FirstValues::Uniform(1 / std::sqrt(static_cast<double>(hidden))));
  };
  const int64_t width = kind.gates * hidden;
  const Tensor input_weights = parameter("weight_ih", {width, type.dims[2]}),
               recurrent_weights = parameter("weight_hh", {width, hidden}),
               input_bias = parameter("bias_ih", {width}),
               recurrent_bias = parameter("bias_hh", {width});
  const Tensor bias = kind.adds_products ? graph.Add(input_bias, recurrent_bias) : input_bias;
  std::vector<Tensor> steps = Split(graph, net.Apply(x, input_weights, bias));
  if (reverse) std::reverse(steps.begin(), steps.end());
  const Tensor zero = graph.Constant({type.type, {type.dims[1], hidden}}, 0);
  Pass pass{.state = {zero, zero}};
  for (Tensor step : steps) {
    Tensor recurrent = graph.MatMul(pass.state.hidden, recurrent_weights, /*transpose_a=*/false,
                                    /*transpose_b=*/true);
    if (!kind.adds_products) recurrent = graph.Add(recurrent, recurrent_bias);
    pass.state = kind.step(graph, step, recurrent, pass.state);
    pass.outputs.push_back(pass.state.hidden);
  }
  if (reverse) std::reverse(pass.outputs.begin(), pass.outputs.end());
  return pass;
}

Tensor Join(Graph& graph, const std::vector<Tensor>& parts, uint32_t axis) {
  return parts.size() == 1 ? parts[0] : graph.Concat(parts, axis);
}

Recurrent Unroll(const Builder& net, const Kind& kind, Tensor x, int64_t hidden,
                 const RecurrentOptions& options) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const Graph::Scope scope = net.EnterScope();
  const graph::TensorType type = graph.TypeOf(x);
  if (type.rank() != 3 || type.empty() || hidden < 1 || options.layers < 1) {
    graph.Fail(absl::InvalidArgumentError(
        absl::StrCat(kind.name, " '", graph.scope(),
                     "' needs [batch, time, features] with elements, a hidden size and layers of 1 "
                     "or more, and has ",
                     type.ToString(), ", ", hidden, " and ", options.layers)));
    return {};
  }
  const int64_t batch = type.dims[0], time = type.dims[1];
  const int directions = options.bidirectional ? 2 : 1;
  Recurrent result;
  std::vector<Tensor> hidden_states, cells;
  x = graph.Transpose(x, {1, 0, 2});
  for (int layer = 0; layer < options.layers; ++layer) {
    if (layer > 0) x = net.Dropout(x, options.dropout);
    std::vector<Tensor> outputs, last;
    for (int direction = 0; direction < directions; ++direction) {
      const Pass pass = Run(net, kind, x, hidden, layer, /*reverse=*/direction == 1);
      if (!graph.status().ok()) return {};
      outputs.push_back(Join(graph, pass.outputs, 0));
      last.push_back(pass.outputs.back());
      hidden_states.push_back(graph.Reshape(pass.state.hidden, {1, batch, hidden}));
      if (pass.state.cell.valid())
        cells.push_back(graph.Reshape(pass.state.cell, {1, batch, hidden}));
    }
    x = graph.Reshape(Join(graph, outputs, 1), {time, batch, directions * hidden});
    result.last = Join(graph, last, 1);
  }
  result.output = graph.Transpose(x, {1, 0, 2});
  result.hidden = Join(graph, hidden_states, 0);
  if (!cells.empty()) result.cell = Join(graph, cells, 0);
  return result;
}

}  // namespace

Recurrent Lstm(const Builder& net, absl::string_view name, Tensor x, int64_t hidden,
               const RecurrentOptions& options) {
  return Unroll(net.In(name), kLstm, x, hidden, options);
}

Recurrent Gru(const Builder& net, absl::string_view name, Tensor x, int64_t hidden,
              const RecurrentOptions& options) {
  return Unroll(net.In(name), kGru, x, hidden, options);
}

}  // namespace vpod::nn

// Batch, layer and group norm.
#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

Term InverseDeviation(Term variance, double epsilon) {
  return (variance + epsilon).Apply(v1::RECIPROCAL_ROOT);
}

// --- Batch norm ---

absl::Status CheckImage(const Call& call, size_t i) {
  const TensorType type = call.TypeOf(call.tensor(i));
  if (type.rank() >= 2) return absl::OkStatus();
  return call.Refuse(
      absl::StrCat("argument ", i, " is ", type.ToString(), ", must have a batch and channels"));
}

// A vector of the channels as FLOAT32: an argument, or equal elements where it is None.
Term Channels(const Call& call, size_t i, int64_t channels, double otherwise) {
  Graph& graph = call.graph();
  if (call.has(i)) return call.term(graph.Cast(call.tensor(i), v1::FLOAT32));
  return call.term(graph.Constant({v1::FLOAT32, {channels}}, otherwise));
}

// (input, weight, bias, running mean, running variance, training, momentum, epsilon)
Outputs BatchNorm(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckImage(call, 0));
  const Tensor x = call.tensor(0);
  const TensorType type = call.TypeOf(x);
  const int64_t channels = type.dims[1];
  const Term scale = Channels(call, 1, channels, 1), offset = Channels(call, 2, channels, 0);
  const float epsilon = static_cast<float>(call.number(7));
  if (!call.flag(5)) {
    if (!call.has(3) || !call.has(4))
      return call.Refuse("needs the running mean and variance when it does not train");
    const Term mean = Channels(call, 3, channels, 0), variance = Channels(call, 4, channels, 1);
    const Tensor none = graph.Constant({v1::FLOAT32, {0}}, 0);  // as PyTorch has it
    return Tensors{graph.BatchNormInference(x, scale, offset, mean, variance, epsilon), none, none};
  }
  const Graph::Normalized result = graph.BatchNorm(x, scale, offset, epsilon);
  VPOD_RETURN_IF_ERROR(graph.status());
  const Term mean = call.term(result.mean), variance = call.term(result.variance);
  Tensors outputs = {result.y, mean, InverseDeviation(variance, epsilon)};
  if (!call.has(3) || !call.has(4)) return outputs;
  const double momentum = call.number(6);
  const double n = static_cast<double>(type.elements() / channels);
  const auto moved = [&](size_t i, Term now) {
    const Term before = Channels(call, i, channels, 0);
    return call.Narrow(before * (1 - momentum) + now * momentum, call.tensor(i));
  };
  outputs.push_back(moved(3, mean));
  outputs.push_back(moved(4, variance * (n / (n - 1))));
  return outputs;
}

// (output gradient, input, weight, running mean, running variance, mean, inverse deviation,
// training, epsilon, output mask)
Outputs BatchNormBackward(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckImage(call, 1));
  const Tensor dy = call.tensor(0), x = call.tensor(1);
  const int64_t channels = call.DimsOf(x)[1];
  const Term scale = Channels(call, 2, channels, 1);
  const double epsilon = call.number(8);
  VPOD_ASSIGN_OR_RETURN(const Dims wanted, call.PerDimension(9, 3));
  Tensors gradients;
  if (call.flag(7)) {
    if (!call.has(5) || !call.has(6)) return call.Refuse("needs the moments of the batch");
    const Term mean = Channels(call, 5, channels, 0), inverse = Channels(call, 6, channels, 1);
    v1::Instruction op;
    op.mutable_batch_norm_gradient()->set_epsilon(static_cast<float>(epsilon));
    // The kernel adds epsilon again; below 0 rounding alone has brought it.
    const Term variance = Max(Square(inverse).Apply(v1::RECIPROCAL) - inverse.Number(epsilon), 0);
    gradients = graph.AddOperation(std::move(op), {x, dy, scale, mean, variance});
  } else {
    if (!call.has(3) || !call.has(4))
      return call.Refuse("needs the running mean and variance when it does not train");
    const Term offset = call.term(graph.Constant({v1::FLOAT32, {channels}}, 0));
    const Term mean = Channels(call, 3, channels, 0), variance = Channels(call, 4, channels, 1);
    gradients = Pullback(call, {x, scale, offset}, dy, [&](const Tensors& own) {
      return graph.BatchNormInference(own[0], own[1], own[2], mean, variance,
                                      static_cast<float>(epsilon));
    });
  }
  VPOD_RETURN_IF_ERROR(graph.status());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (wanted[i] == 0) gradients[i] = {};
    if (i > 0 && gradients[i].valid() && call.has(2))
      gradients[i] = call.Narrow(gradients[i], call.tensor(2));
  }
  return gradients;
}

// --- Layer norm ---

// The input as rows that are normalised, [rows, features], and the dimensions of what is known of
// each row.
struct Rows {
  Dims rows, moments, features;
};

absl::StatusOr<Rows> RowsOf(const Call& call, size_t input, size_t shape) {
  const Dims dims = call.DimsOf(call.tensor(input)), features = call.ints(shape);
  const size_t outer = dims.size() - features.size();
  if (features.empty() || features.size() > dims.size() ||
      !std::equal(features.begin(), features.end(), dims.begin() + static_cast<int64_t>(outer))) {
    return call.Refuse("the shape that is normalised must be that of the last dimensions");
  }
  Rows result{.features = features};
  const auto product = [](const Dims& numbers, size_t begin, size_t end) {
    return std::accumulate(numbers.begin() + static_cast<int64_t>(begin),
                           numbers.begin() + static_cast<int64_t>(end), int64_t{1},
                           std::multiplies<>());
  };
  result.rows = {product(dims, 0, outer), product(features, 0, features.size())};
  result.moments = dims;
  for (size_t i = outer; i < dims.size(); ++i) result.moments[i] = 1;
  return result;
}

// Weights or biases of the features as a vector of the input's type.
Tensor Vector(const Call& call, Tensor input, size_t i, const Rows& rows, double otherwise) {
  Graph& graph = call.graph();
  const TensorType type{call.TypeOf(input).type, {rows.rows[1]}};
  if (!call.has(i)) return graph.Constant(type, otherwise);
  return graph.Reshape(graph.Cast(call.tensor(i), type.type), type.dims);
}

// (input, normalised shape, weight, bias, epsilon)
Outputs LayerNorm(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Rows rows, RowsOf(call, 0, 1));
  const Tensor x = call.tensor(0);
  v1::Instruction op;
  op.mutable_layer_norm()->set_epsilon(static_cast<float>(call.number(4)));
  Tensors inputs = {graph.Reshape(x, rows.rows)};
  if (call.has(2) || call.has(3)) {
    inputs.push_back(Vector(call, x, 2, rows, 1));
    inputs.push_back(Vector(call, x, 3, rows, 0));
  }
  const Tensors outputs = graph.AddOperation(std::move(op), inputs);
  VPOD_RETURN_IF_ERROR(graph.status());
  return Tensors{graph.Reshape(outputs[0], call.DimsOf(x)), graph.Reshape(outputs[1], rows.moments),
                 graph.Reshape(outputs[2], rows.moments)};
}

// (output gradient, input, normalised shape, mean, inverse deviation, weight, bias, output mask)
Outputs LayerNormBackward(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Rows rows, RowsOf(call, 1, 2));
  VPOD_ASSIGN_OR_RETURN(const Dims wanted, call.PerDimension(7, 3));
  const Tensor x = graph.Reshape(call.tensor(1), rows.rows);
  const Tensor dy = graph.Reshape(call.tensor(0), rows.rows);
  const auto moment = [&](size_t i) {
    return graph.Reshape(graph.Cast(call.tensor(i), v1::FLOAT32), {rows.rows[0]});
  };
  const Tensor mean = moment(3), inverse = moment(4);
  Tensors outputs(3);
  if (wanted[0] != 0) {
    v1::Instruction op;
    op.mutable_layer_norm_gradient();
    Tensors inputs = {x, dy, mean, inverse};
    if (call.has(5)) inputs.push_back(Vector(call, x, 5, rows, 1));
    const Tensors dx = graph.AddOperation(std::move(op), inputs);
    VPOD_RETURN_IF_ERROR(graph.status());
    outputs[0] = graph.Reshape(dx[0], call.DimsOf(call.tensor(1)));
  }
  const Term dy32 = call.Wide(dy);
  const auto column = [&](Tensor vector) {
    return call.term(graph.Reshape(vector, {rows.rows[0], 1}));
  };
  const auto sum = [&](Term products, size_t like) {
    const Tensor vector = graph.Reshape(graph.Reduce(v1::SUM, products, {0}), rows.features);
    return call.Narrow(vector, call.has(like) ? call.tensor(like) : x);
  };
  if (wanted[1] != 0) outputs[1] = sum(dy32 * ((call.Wide(x) - column(mean)) * column(inverse)), 5);
  if (wanted[2] != 0) outputs[2] = sum(dy32, 6);
  return outputs;
}

// (input, weight, bias, batch, channels, pixels, groups, epsilon): each group is a row.
Outputs GroupNorm(const Call& call) {
  Graph& graph = call.graph();
  const Tensor x = call.tensor(0);
  const TensorType type = call.TypeOf(x);
  const int64_t batch = call.integer(3), channels = call.integer(4), groups = call.integer(6);
  if (type.rank() < 2 || type.dims[0] != batch || type.dims[1] != channels || groups < 1 ||
      channels % groups != 0 || batch < 1 || channels < 1) {
    return call.Refuse(
        absl::StrCat(groups, " groups of ", channels, " channels do not fit ", type.ToString()));
  }
  v1::Instruction op;
  op.mutable_layer_norm()->set_epsilon(static_cast<float>(call.number(7)));
  const Tensor rows =
      graph.Reshape(call.Wide(x), {batch * groups, type.elements() / (batch * groups)});
  const Tensors normalized = graph.AddOperation(std::move(op), {rows});
  VPOD_RETURN_IF_ERROR(graph.status());
  Term y = call.term(graph.Reshape(normalized[0], type.dims));
  Dims along(type.dims.size(), 1);
  along[1] = channels;
  if (call.has(1)) y = y * call.term(graph.Reshape(call.Wide(1), along));
  if (call.has(2)) y = y + call.term(graph.Reshape(call.Wide(2), along));
  return Tensors{call.Narrow(y, x), graph.Reshape(normalized[1], {batch, groups}),
                 graph.Reshape(normalized[2], {batch, groups})};
}

}  // namespace

std::vector<Row> NormRows() {
  return {
      {"native_batch_norm.default",
       "tensor, tensor?, tensor?, tensor?, tensor?, bool, number, number", BatchNorm},
      {"native_batch_norm_backward.default",
       "tensor, tensor, tensor?, tensor?, tensor?, tensor?, tensor?, bool, number, ints",
       BatchNormBackward},
      {"native_layer_norm.default", "tensor, ints, tensor?, tensor?, number", LayerNorm},
      {"native_layer_norm_backward.default",
       "tensor, tensor, ints, tensor, tensor, tensor?, tensor?, ints", LayerNormBackward},
      {"native_group_norm.default", "tensor, tensor?, tensor?, int, int, int, int, number",
       GroupNorm},
  };
}

}  // namespace vpod::aten

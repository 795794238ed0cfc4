#include "client/graph/graph.h"

#include <algorithm>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/graph/scope.h"
#include "device/program/op.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::graph {

std::string InScope(absl::string_view scope, absl::string_view name) {
  return absl::StrCat(scope, scope.empty() || name.empty() ? "" : ".", name);
}

Graph::Graph(GraphParts parts)
    : origins_(std::move(parts.origins)),
      values_(std::move(parts.values)),
      nodes_(std::move(parts.nodes)),
      inputs_(std::move(parts.inputs)),
      variables_(std::move(parts.variables)),
      buffers_(std::move(parts.buffers)),
      assignments_(std::move(parts.assignments)),
      remote_buffers_(std::move(parts.remote_buffers)),
      outputs_(std::move(parts.outputs)) {}

Tensor Graph::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return {};
}

Tensor Graph::Refuse(absl::string_view op, absl::string_view why) {
  return Fail(absl::InvalidArgumentError(absl::StrCat(program::NameOf(OriginOf(op)), ": ", why)));
}

bool Graph::Usable(absl::Span<const Tensor> tensors, absl::string_view op) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool exists = tensors[i].valid() && tensors[i].id < values_.size();
    const uint32_t region = exists ? values_[tensors[i].id].region : ~0u;
    if (exists && (region == ~0u || region == recording_)) continue;
    Refuse(op, absl::StrCat("operand ", i,
                            exists ? " belongs to a gradient region and cannot be used outside it"
                                   : " is not a value of this graph"));
    return false;
  }
  return status_.ok();
}

bool Graph::UsableOutsideRegions(absl::Span<const Tensor> tensors, absl::string_view op) {
  if (!Usable(tensors, op)) return false;
  if (recording_ == ~0u) return true;
  Refuse(op, "not allowed in a gradient region");
  return false;
}

void Graph::Checkpoint(Tensor value) {
  if (UsableOutsideRegions({value}, "checkpoint")) values_[RootOf(value.id)].is_checkpoint = true;
}

Tensor Graph::AddLike(Tensor value, Tensor source) {
  Value copy = values_[value.id];
  copy.alias_of = copy.gradient_to = source.id;
  copy.is_checkpoint = false;
  values_.push_back(std::move(copy));
  return {static_cast<uint32_t>(values_.size() - 1)};
}

Tensor Graph::NewValue(TensorType type) {
  values_.push_back({.type = std::move(type), .ipu = ipu_, .stage = stage_, .region = recording_});
  return {static_cast<uint32_t>(values_.size() - 1)};
}

Graph::Scope::Scope(Graph& graph, std::string path, Whole)
    : graph_(graph), before_(std::exchange(graph.scope_, std::move(path))) {}

Graph::Scope::Scope(Graph& graph, absl::string_view name)
    : Scope(graph, InScope(graph.scope_, name), Whole()) {}

Graph::Scope Graph::Scope::At(Graph& graph, std::string path) {
  return {graph, std::move(path), Whole()};
}

v1::Origin Graph::OriginOf(absl::string_view op) const {
  v1::Origin origin;
  if (backward_of_ != nullptr) {
    origin = *backward_of_;
    origin.set_phase(v1::Origin::BACKWARD);
  } else {
    origin.set_scope(scope_);
    origin.set_op(std::string(op));
    origin.set_stage(stage_);
  }
  return origin;
}

void Graph::AddNode(v1::Instruction instruction) {
  const uint32_t origin = origins_.Add(OriginOf(program::LabelOf(instruction)));
  std::vector<Node>& nodes = recording_ == ~0u ? nodes_ : regions_[recording_].nodes;
  nodes.push_back({std::move(instruction), ipu_, origin});
}

std::vector<Tensor> Graph::AddOperation(v1::Instruction attributes, std::vector<Tensor> inputs) {
  if (!Usable(inputs, program::LabelOf(attributes))) return {};
  program::Types types;
  for (Tensor input : inputs) types.push_back(TypeOf(input));
  auto outputs = program::InferTypes(attributes, types);
  if (!outputs.ok()) {
    Refuse(program::LabelOf(attributes), outputs.status().message());
    return {};
  }
  std::vector<Tensor> results;
  for (Tensor input : inputs) attributes.add_inputs(input.id);
  for (TensorType& type : *outputs) {
    results.push_back(NewValue(std::move(type)));
    attributes.add_outputs(results.back().id);
  }
  AddNode(std::move(attributes));
  return results;
}

Tensor Graph::AddOperation(v1::Instruction attributes, const std::vector<Tensor>& inputs,
                           TensorType output) {
  if (!Usable(inputs, program::LabelOf(attributes))) return {};
  for (Tensor input : inputs) attributes.add_inputs(input.id);
  const Tensor result = NewValue(std::move(output));
  attributes.add_outputs(result.id);
  AddNode(std::move(attributes));
  return result;
}

Tensor Graph::AddSimple(v1::Instruction attributes, std::vector<Tensor> inputs) {
  const std::vector<Tensor> outputs = AddOperation(std::move(attributes), std::move(inputs));
  return outputs.empty() ? Tensor{} : outputs[0];
}

Tensor Graph::NewNamed(absl::string_view name, TensorType type, Origin origin) {
  for (const Value& value : values_) {
    if (value.origin == origin && value.name == name) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("the name '", name, "' is used twice")));
    }
  }
  if (name.empty()) return Fail(absl::InvalidArgumentError("inputs and variables need a name"));
  const absl::Status status = program::Check(type);
  if (!status.ok())
    return Fail(absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message())));
  if (type.empty()) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat(name, " of type ", type.ToString(), " has no elements")));
  }
  const Tensor tensor = NewValue(std::move(type));
  values_.back().origin = origin;
  values_.back().region = ~0u;
  values_.back().name = std::string(name);
  return tensor;
}

Tensor Graph::Input(absl::string_view name, TensorType type) {
  for (const GraphOutput& output : outputs_) {
    if (output.name == name) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("the name '", name, "' is used twice")));
    }
  }
  const Tensor tensor = NewNamed(name, std::move(type), Origin::kInput);
  if (tensor.valid()) inputs_.push_back(tensor);
  return tensor;
}

Tensor Graph::NewState(absl::string_view kind, absl::string_view own_name, TensorType type,
                       InitialValue initial) {
  // A variable or buffer without a name is refused.
  const std::string name = own_name.empty() ? "" : InScope(scope_, own_name);
  // Checked first: the number of elements of an absurd shape overflows.
  const absl::Status status = program::Check(type);
  if (!status.ok())
    return Fail(absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message())));
  if (const absl::Status fits = initial.Check(type); !fits.ok()) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat(kind, " '", name, "' of type ", type.ToString(), " has ", fits.message())));
  }
  const Tensor tensor = NewNamed(name, std::move(type), Origin::kVariable);
  if (tensor.valid()) initial_.emplace(tensor.id, std::move(initial));
  return tensor;
}

Tensor Graph::Variable(absl::string_view name, TensorType type, InitialValue initial) {
  if (!program::IsFloat(type.type)) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("variable '", InScope(scope_, name),
                                                        "' of type ", type.ToString(),
                                                        " cannot be trained, must be floats")));
  }
  const Tensor tensor = NewState("variable", name, std::move(type), std::move(initial));
  if (tensor.valid()) variables_.push_back(tensor);
  return tensor;
}

Tensor Graph::Buffer(absl::string_view name, TensorType type, InitialValue initial) {
  const Tensor tensor = NewState("buffer", name, std::move(type), std::move(initial));
  if (tensor.valid()) buffers_.push_back(tensor);
  return tensor;
}

void Graph::Assign(Tensor variable, Tensor value, Assigned when) {
  if (!UsableOutsideRegions({variable, value}, "assign")) return;
  if (values_[variable.id].origin != Origin::kVariable) {
    Refuse("assign", "operand 0 must be a buffer or variable");
  } else if (TypeOf(variable) != TypeOf(value)) {
    Refuse("assign",
           absl::StrCat("the value for '", values_[variable.id].name, "' is ",
                        TypeOf(value).ToString(), ", must be ", TypeOf(variable).ToString()));
  } else {
    assignments_.push_back({variable, value, when});
  }
}

void Graph::Output(absl::string_view name, Tensor value) {
  if (!UsableOutsideRegions({value}, "output")) return;
  if (name.empty()) {
    Fail(absl::InvalidArgumentError("outputs need a name"));
    return;
  }
  if (TypeOf(value).empty()) {
    Fail(absl::InvalidArgumentError(absl::StrCat("the output '", name, "' of type ",
                                                 TypeOf(value).ToString(), " has no elements")));
    return;
  }
  for (const GraphOutput& output : outputs_) {
    if (output.name == name) {
      Fail(absl::InvalidArgumentError(absl::StrCat("the output '", name, "' is used twice")));
      return;
    }
  }
  for (Tensor input : inputs_) {
    if (values_[input.id].name == name) {
      Fail(absl::InvalidArgumentError(absl::StrCat("the name '", name, "' is used twice")));
      return;
    }
  }
  outputs_.push_back({std::string(name), value});
}

Tensor Graph::MatMul(Tensor a, Tensor b, bool transpose_a, bool transpose_b) {
  if (!Usable({a, b}, "mat_mul")) return {};
  const Dims of_a = TypeOf(a).dims, of_b = TypeOf(b).dims;
  if (std::min(of_a.size(), of_b.size()) >= 2 &&
      !std::equal(of_a.begin(), of_a.end() - 2, of_b.begin(), of_b.end() - 2)) {
    const auto batch =
        program::BroadcastDims({of_a.begin(), of_a.end() - 2}, {of_b.begin(), of_b.end() - 2});
    if (!batch.ok()) return Refuse("mat_mul", batch.status().message());
    const auto repeated = [&](Tensor matrices, const Dims& dims) {
      Dims all = *batch;
      all.insert(all.end(), dims.end() - 2, dims.end());
      return all == dims ? matrices : Expand(matrices, all);
    };
    a = repeated(a, of_a);
    b = repeated(b, of_b);
  }
  v1::Instruction op;
  op.mutable_mat_mul()->set_transpose_a(transpose_a);
  op.mutable_mat_mul()->set_transpose_b(transpose_b);
  return AddSimple(std::move(op), {a, b});
}

Tensor Graph::PadBeyondWindows(Tensor image, v1::SlidingWindow& window) {
  if (!Usable({image}, "convolution")) return {};
  const TensorType& type = TypeOf(image);
  Dims before(type.dims.size()), after(type.dims.size());
  const size_t head = program::kImageHead;
  // Windows that do not fit the image are refused by the rule.
  for (const auto* field :
       {&window.kernel(), &window.dilation(), &window.pad_before(), &window.pad_after()}) {
    if (static_cast<size_t>(field->size()) + head != type.dims.size()) return image;
  }
  for (int i = 0; i < window.kernel_size(); ++i) {
    if (window.kernel(i) < 1 || window.dilation(i) < 1) return image;
    const int64_t most = program::WindowExtent(window, i) - 1;
    const auto take = [most](uint32_t padding, Dims::value_type& beyond) {
      beyond = std::max<int64_t>(0, padding - most);
      return static_cast<uint32_t>(padding - beyond);
    };
    window.set_pad_before(i, take(window.pad_before(i), before[head + static_cast<size_t>(i)]));
    window.set_pad_after(i, take(window.pad_after(i), after[head + static_cast<size_t>(i)]));
  }
  const Dims none(type.dims.size());
  return before == none && after == none ? image : Pad(image, before, after);
}

Tensor Graph::Convolution(Tensor image, Tensor weights, const v1::SlidingWindow& window,
                          uint32_t groups) {
  v1::Instruction op;
  op.mutable_convolution()->set_pass(v1::Convolution::FORWARD);
  *op.mutable_convolution()->mutable_window() = window;
  image = PadBeyondWindows(image, *op.mutable_convolution()->mutable_window());
  op.mutable_convolution()->set_groups(groups);
  return AddSimple(std::move(op), {image, weights});
}

Graph::Normalized Graph::BatchNorm(Tensor x, Tensor scale, Tensor offset, float epsilon) {
  v1::Instruction op;
  op.mutable_batch_norm()->set_epsilon(epsilon);
  const std::vector<Tensor> outputs = AddOperation(std::move(op), {x, scale, offset});
  return outputs.empty() ? Normalized{} : Normalized{outputs[0], outputs[1], outputs[2]};
}

Tensor Graph::BatchNormInference(Tensor x, Tensor scale, Tensor offset, Tensor mean,
                                 Tensor variance, float epsilon) {
  v1::Instruction op;
  op.mutable_batch_norm_inference()->set_epsilon(epsilon);
  return AddSimple(std::move(op), {x, scale, offset, mean, variance});
}

Tensor Graph::Gelu(Tensor input) {
  if (!Usable({input}, "gelu")) return {};
  const auto scalar = [&](double value) { return Constant({TypeOf(input).type, {}}, value); };
  const Tensor erf = Unary(v1::ERF, Multiply(input, scalar(std::numbers::sqrt2 / 2)));
  return Multiply(Multiply(input, scalar(0.5)), Add(erf, scalar(1)));
}

Tensor Graph::Unary(v1::UnaryOperator function, Tensor input) {
  v1::Instruction op;
  op.mutable_unary()->set_operator_(function);
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Binary(v1::BinaryOperator function, Tensor a, Tensor b) {
  v1::Instruction op;
  op.mutable_binary()->set_operator_(function);
  return AddSimple(std::move(op), {a, b});
}

Tensor Graph::Reduce(v1::ReduceOperator function, Tensor input, const std::vector<uint32_t>& axes) {
  v1::Instruction op;
  op.mutable_reduce()->set_operator_(function);
  op.mutable_reduce()->mutable_axes()->Add(axes.begin(), axes.end());
  return AddSimple(std::move(op), {input});
}

Tensor Graph::ArgMax(Tensor input) {
  v1::Instruction op;
  op.mutable_arg_max();
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Cast(Tensor input, v1::DataType type) {
  if (!Usable({input}, "cast")) return {};
  if (TypeOf(input).type == type) return input;
  v1::Instruction op;
  op.mutable_cast()->set_type(type);
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Select(Tensor condition, Tensor a, Tensor b) {
  v1::Instruction op;
  op.mutable_select();
  return AddSimple(std::move(op), {condition, a, b});
}

Tensor Graph::SoftmaxCrossEntropy(Tensor logits, Tensor labels,
                                  const CrossEntropyOptions& options) {
  v1::Instruction op;
  op.mutable_softmax_cross_entropy()->set_label_smoothing(options.label_smoothing);
  if (options.ignored_label)
    op.mutable_softmax_cross_entropy()->set_ignored_label(*options.ignored_label);
  return AddSimple(std::move(op), {logits, labels});  // the loss, not the probabilities
}

const Graph::RandomState& Graph::GetRandomState() {
  RandomState& state = random_[ipu_];
  if (state.seed.valid()) return state;
  // Other operations than those of a region that asks first may read the state.
  const uint32_t recording_before = std::exchange(recording_, ~0u);
  const TensorType number{v1::UINT32, {}};
  if (!replicas_.valid()) SetReplicas(1);
  const std::string suffix = ipu_ == 0 ? "" : absl::StrCat("/ipu", ipu_);
  {
    const Scope whole_model = Scope::At(*this, "");
    state.seed = Buffer(absl::StrCat(kRandomPrefix, "seed", suffix), {v1::UINT32, {2}}, {0, 0});
    state.counter = Buffer(absl::StrCat(kRandomPrefix, "counter", suffix), number, {0});
  }
  v1::Instruction replica;
  replica.mutable_replica_index();
  state.first = Multiply(state.counter, replicas_);
  state.micro_batch = Add(state.first, AddSimple(std::move(replica), {}));
  const Tensor next = Add(state.counter, Constant(number, 1));
  if (status_.ok()) assignments_.push_back({state.counter, next, Assigned::kIfRead});
  recording_ = recording_before;
  return state;
}

void Graph::SetReplicas(uint32_t replicas) {
  if (!replicas_.valid()) replicas_ = Constant({v1::UINT32, {}}, 1);
  values_[replicas_.id].constant = replicas;
}

Tensor Graph::Random(v1::Random::Distribution distribution, TensorType type) {
  const RandomState& state = GetRandomState();
  v1::Instruction op;
  op.mutable_random()->set_distribution(distribution);
  op.mutable_random()->set_type(type.type);
  op.mutable_random()->mutable_dims()->Add(type.dims.begin(), type.dims.end());
  op.mutable_random()->set_number(random_ops_++);
  if (!stream_.valid()) stream_ = Constant({v1::UINT32, {}}, 0);
  return AddSimple(std::move(op), {state.seed, state.micro_batch, stream_});
}

namespace {

std::vector<uint32_t> AllAxes(const TensorType& type) {
  std::vector<uint32_t> axes(type.dims.size());
  for (uint32_t i = 0; i < axes.size(); ++i) axes[i] = i;
  return axes;
}

}  // namespace

Tensor Graph::Mean(Tensor input) {
  if (!Usable({input}, "mean")) return {};
  return Reduce(v1::MEAN, input, AllAxes(TypeOf(input)));
}

Tensor Graph::Sum(Tensor input) {
  if (!Usable({input}, "sum")) return {};
  return Reduce(v1::SUM, input, AllAxes(TypeOf(input)));
}

Tensor Graph::CrossEntropyLoss(Tensor logits, Tensor labels, const CrossEntropyOptions& options) {
  const Tensor losses = SoftmaxCrossEntropy(logits, labels, options);
  if (!Usable({losses}, "cross_entropy_loss") || !options.ignored_label) return Mean(losses);
  const Tensor ignored = Constant({v1::INT32, {}}, *options.ignored_label);
  // Float16 would not hold the sum of many rows, nor count them.
  const Tensor sum = Sum(Cast(losses, v1::FLOAT32));
  const Tensor counted = Sum(Cast(Binary(v1::NOT_EQUAL, labels, ignored), v1::FLOAT32));
  return Cast(Binary(v1::DIVIDE, sum, counted), TypeOf(losses).type);
}

Tensor Graph::Dropout(Tensor input, float probability) {
  if (!Usable({input}, "dropout")) return {};
  if (!(probability >= 0 && probability <= 1)) {
    return Refuse("dropout", absl::StrCat("the probability is ", probability, ", must be 0 to 1"));
  }
  const TensorType type = TypeOf(input);
  const TensorType scalar{type.type, {}};
  const Tensor random = Random(v1::Random::UNIFORM, {v1::FLOAT32, type.dims});
  const Tensor keeps = Binary(v1::GREATER_EQUAL, random, Constant({v1::FLOAT32, {}}, probability));
  const double scale = probability < 1 ? 1 / (1 - static_cast<double>(probability)) : 0;
  return Multiply(input, Select(keeps, Constant(scalar, scale), Constant(scalar, 0)));
}

// Takes the type by value: callers pass TypeOf(…), which moves when values are added.
Tensor Graph::ReduceToType(Tensor tensor, TensorType type) {
  if (!Usable({tensor}, "sum")) return {};
  const Dims dims = TypeOf(tensor).dims;
  std::vector<uint32_t> axes;
  const size_t extra = dims.size() - type.dims.size();
  for (uint32_t i = 0; i < dims.size(); ++i) {
    if (i < extra || (type.dims[i - extra] == 1 && dims[i] != 1)) axes.push_back(i);
  }
  if (axes.empty()) return tensor;
  const Tensor reduced = Reduce(v1::SUM, tensor, axes);
  return reduced.valid() && TypeOf(reduced).dims != type.dims ? Reshape(reduced, type.dims)
                                                              : reduced;
}

}  // namespace vpod::graph

#include "client/graph/gradients/gradients.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/program/op_rows.h"

namespace vpod::graph {
namespace {

std::vector<GradientDef> WithoutGradient() {
  static constexpr char kLater[] = "it gets into programs after the gradients";
  return {
      {v1::Instruction::kFill, nullptr, "it has no input"},
      {v1::Instruction::kStreamIn, nullptr, "it has no input"},
      {v1::Instruction::kStreamOut, nullptr, "it has no output"},
      {v1::Instruction::kAccumulate, nullptr, kLater},
      {v1::Instruction::kSgd, nullptr, kLater},
      {v1::Instruction::kAdam, nullptr, kLater},
      {v1::Instruction::kRmsProp, nullptr, kLater},
      {v1::Instruction::kLamb, nullptr, kLater},
      {v1::Instruction::kLambMoments, nullptr, kLater},
      {v1::Instruction::kLambStep, nullptr, kLater},
      {v1::Instruction::kLars, nullptr, kLater},
      {v1::Instruction::kNorm, nullptr, kLater},
      {v1::Instruction::kAllFinite, nullptr, "its output is BOOL"},
      {v1::Instruction::kMap, nullptr, kLater},
      {v1::Instruction::kUpdateLossScale, nullptr, kLater},
      {v1::Instruction::kReplicaIndex, nullptr, "it has no input"},
      {v1::Instruction::kRandom, nullptr, "its inputs are integers"},
      {v1::Instruction::kRemoteLoad, nullptr, "what a remote buffer holds is state"},
      {v1::Instruction::kRemoteStore, nullptr, "it has no output"},
      {v1::Instruction::kExchange, nullptr, kLater},
      {v1::Instruction::kCall, nullptr, kLater},
      {v1::Instruction::kRepeat, nullptr, kLater},
      {v1::Instruction::kIf, nullptr, kLater},
      {v1::Instruction::kWhile, nullptr, kLater},
  };
}

// Keeps the uses of each wanted value apart, whatever their shapes, unless an operation makes it.
void KeepUsesApart(const Graph& graph, absl::Span<const Tensor> wanted, GradientMap& gradients) {
  const std::vector<Value>& values = graph.values();
  std::set<uint32_t> kept;
  for (Tensor tensor : wanted) {
    if (values[tensor.id].origin != Origin::kOperation) kept.insert(tensor.id);
  }
  for (uint32_t id = 0; id < values.size(); ++id) {
    if (kept.contains(values[id].gradient_to)) kept.insert(id);
    if (kept.contains(id)) gradients.KeepApart(id);
  }
}

// The origin of operations that put together what the uses of a value pass back.
v1::Origin OriginOfSum(const Value& value) {
  v1::Origin origin;
  origin.set_scope(value.name);
  origin.set_op("add");
  origin.set_stage(value.stage);
  return origin;
}

}  // namespace

const GradientDef* FindGradient(program::OpKind kind) {
  static const auto* const table = new program::OpRows<GradientDef>{
      BatchNormGradients,   CollectiveGradients, ConvolutionGradients, DataMovementGradients,
      ElementwiseGradients, GatherGradients,     LayerNormGradients,   LineGradients,
      LossGradients,        MatMulGradients,     PoolingGradients,     ReduceGradients,
      SoftmaxGradients,     WithoutGradient};
  return table->Find(kind);
}

const std::vector<Tensor>& GradientMap::All(uint32_t value) const {
  static const auto* const none = new std::vector<Tensor>;
  const auto it = gradients_.find(value);
  return it == gradients_.end() ? *none : it->second;
}

void GradientMap::Add(uint32_t value, Tensor gradient) {
  if (!gradient.valid() || !program::IsFloat(graph_.TypeOf({value}).type)) return;
  std::vector<Tensor>& all = gradients_[value];
  if (all.empty() || kept_apart_.contains(value)) {
    all.push_back(gradient);
  } else {
    all.front() = graph_.Add(all.front(), gradient);
  }
}

void GradientMap::AddRepeated(uint32_t value, Tensor gradient) {
  if (!gradient.valid()) return;
  const Dims dims = graph_.TypeOf({value}).dims;
  const bool joins_another = !All(value).empty() && !kept_apart_.contains(value);
  const bool is_whole = graph_.TypeOf(gradient).dims == dims;
  Add(value, joins_another || is_whole ? gradient : graph_.Expand(gradient, dims));
}

void GradientMap::JoinParts(uint32_t value) {
  const auto parts = parts_.extract(value);
  const Dims dims = graph_.TypeOf({value}).dims;  // a copy: joining adds values to the graph
  const std::vector<Tensor> joined = graph::JoinParts(graph_, dims, parts.mapped());
  for (Tensor gradient : joined) Add(value, gradient);
}

std::vector<Tensor> Graph::Gradients(Tensor loss, absl::Span<const Tensor> wanted, Tensor scale) {
  const auto uses = GradientsOfUses(loss, wanted, scale);
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < wanted.size(); ++i) gradients.push_back(GradientOf(wanted[i], uses[i]));
  return gradients;
}

Tensor Graph::GradientOf(Tensor value, const std::vector<Tensor>& gradients) {
  const Tensor sum = SumOfUses(value, gradients);
  if (!sum.valid()) return {};
  const v1::Origin origin = OriginOfSum(values_[value.id]);
  backward_of_ = &origin;
  const uint32_t ipu_before = std::exchange(ipu_, values_[value.id].ipu);
  const Tensor gradient = Cast(sum, TypeOf(value).type);
  ipu_ = ipu_before;
  backward_of_ = nullptr;
  return gradient;
}

Tensor Graph::SumOfUses(Tensor value, const std::vector<Tensor>& gradients) {
  if (gradients.empty()) return {};
  if (gradients.size() == 1) return gradients[0];
  const v1::Origin origin = OriginOfSum(values_[value.id]);
  backward_of_ = &origin;
  const uint32_t ipu_before = std::exchange(ipu_, values_[value.id].ipu);
  Tensor sum;
  for (Tensor gradient : gradients) {
    gradient = Cast(gradient, v1::FLOAT32);
    sum = sum.valid() ? Add(sum, gradient) : gradient;
  }
  ipu_ = ipu_before;
  backward_of_ = nullptr;
  return sum;
}

// Joins the gradients of each stage separately, because the stages of a pipeline make them at
// different times.
std::vector<Tensor> Graph::Joined(const std::vector<Tensor>& gradients) {
  if (!status_.ok() || gradients.size() < 2) return gradients;
  std::map<uint32_t, const Node*> makers;  // by value
  for (const Node& node : nodes_) {
    for (uint32_t output : node.instruction.outputs()) makers[output] = &node;
  }
  struct OfStage {
    v1::Origin origin;
    std::vector<Tensor> gradients;
  };
  std::map<uint32_t, OfStage, std::greater<>> of_stages;
  std::vector<Tensor> joined;
  for (Tensor gradient : gradients) {
    const auto maker = makers.find(gradient.id);
    if (maker == makers.end()) {
      joined.push_back(gradient);
      continue;
    }
    const v1::Origin& origin = origins_.at(maker->second->origin);
    const auto [it, is_new] = of_stages.try_emplace(origin.stage(), OfStage{origin, {}});
    it->second.gradients.push_back(gradient);
  }
  for (const auto& [stage, of_stage] : of_stages) {
    backward_of_ = &of_stage.origin;
    for (Tensor gradient : JoinProducts(*this, of_stage.gradients)) joined.push_back(gradient);
    backward_of_ = nullptr;
  }
  return joined;
}

std::vector<std::vector<Tensor>> Graph::GradientsOfUses(Tensor loss,
                                                        absl::Span<const Tensor> wanted,
                                                        Tensor scale) {
  const std::vector<std::vector<Tensor>> none(wanted.size());
  if (!UsableOutsideRegions({loss}, "gradients")) return none;
  for (Tensor tensor : wanted) {
    if (!Usable({tensor}, "gradients")) return none;
  }
  if (!program::IsFloat(TypeOf(loss).type)) {
    Refuse("gradients", absl::StrCat("the loss is ", TypeOf(loss).ToString(), ", must be floats"));
    return none;
  }
  const uint32_t ipu_before = ipu_;
  GradientMap gradients(*this);
  ipu_ = values_[loss.id].ipu;
  const TensorType loss_type = TypeOf(loss);
  KeepUsesApart(*this, wanted, gradients);
  gradients.Add(loss.id, scale.valid() ? Expand(Cast(scale, loss_type.type), loss_type.dims)
                                       : Constant(loss_type, 1));

  // Reverse order of creation is a reverse topological order. Aliases stand between nodes by their
  // ids.
  std::map<uint32_t, size_t> producer;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (uint32_t output : nodes_[i].instruction.outputs()) producer[output] = i;
  }
  std::map<uint32_t, uint32_t> region_of;  // by output
  for (uint32_t number = 0; number < regions_.size(); ++number) {
    for (Tensor output : regions_[number].outputs) region_of[output.id] = number;
  }
  std::set<size_t> done;
  std::set<uint32_t> done_regions;
  // Values before the first wanted one do not depend on any of them.
  uint32_t first = loss.id;
  for (Tensor tensor : wanted) first = std::min(first, tensor.id);
  for (uint32_t id = loss.id + 1; id-- > first;) {
    if (const auto region = region_of.find(id); region != region_of.end()) {
      if (gradients.HasAny(id) && done_regions.insert(region->second).second)
        AddRegionGradients(regions_[region->second], gradients);
      continue;
    }
    const auto it = producer.find(id);
    if (it == producer.end() && gradients.HasParts(id)) {
      const v1::Origin origin = OriginOfSum(values_[id]);
      backward_of_ = &origin;
      ipu_ = values_[id].ipu;
      gradients.JoinParts(id);
      backward_of_ = nullptr;
    }
    if (values_[id].alias_of != ~0u) {
      const uint32_t source = values_[id].gradient_to;
      if (source == ~0u) continue;
      // Added to those of other uses where the value is made.
      const auto maker = producer.find(source);
      const v1::Origin origin = maker == producer.end() ? OriginOfSum(values_[source])
                                                        : origins_.at(nodes_[maker->second].origin);
      backward_of_ = &origin;
      ipu_ = values_[source].ipu;
      for (Tensor gradient : gradients.All(id))
        gradients.Add(source, Reshape(gradient, TypeOf({source}).dims));
      backward_of_ = nullptr;
      continue;
    }
    if (it == producer.end() || !gradients.HasAny(id) || !done.insert(it->second).second) continue;
    const Node op = nodes_[it->second];  // a copy: nodes_ grows
    ipu_ = op.ipu;
    const v1::Origin origin = origins_.at(op.origin);
    backward_of_ = &origin;
    for (uint32_t output : op.instruction.outputs()) {
      if (gradients.HasParts(output)) gradients.JoinParts(output);
    }
    const GradientDef* gradient_of = FindGradient(op.instruction.attributes_case());
    if (gradient_of->add != nullptr) gradient_of->add(*this, op.instruction, gradients);
    if (gradient_of->missing != nullptr) {
      Fail(absl::UnimplementedError(
          absl::StrCat(program::NameOf(op.instruction, &origin), ": ", gradient_of->missing)));
    }
    backward_of_ = nullptr;
    if (!status_.ok()) break;
  }
  std::vector<std::vector<Tensor>> result;
  for (Tensor tensor : wanted) result.push_back(Joined(gradients.All(tensor.id)));
  ipu_ = ipu_before;
  return status_.ok() ? result : none;
}

}  // namespace vpod::graph

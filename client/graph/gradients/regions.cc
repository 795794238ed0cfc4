// Gradients that a program defines itself.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

constexpr char kOp[] = "gradient_region";

}  // namespace

Graph::Region Graph::AddRegion(const std::vector<Tensor>& values,
                               const std::vector<Tensor>& inputs) {
  if (!UsableOutsideRegions(values, kOp) || !UsableOutsideRegions(inputs, kOp)) return {};
  if (values.empty()) {
    Refuse(kOp, "there is no value that has gradients");
    return {};
  }
  GradientRegion region{.inputs = inputs};
  // All that reads the outputs is in the last stage among these, or in a later one, so that their
  // gradients are there when the region's operations run.
  std::pair<uint32_t, uint32_t> last;
  for (const auto* tensors : {&values, &inputs}) {
    for (Tensor tensor : *tensors)
      last = std::max(last, {values_[tensor.id].stage, values_[tensor.id].ipu});
  }
  v1::Origin origin = OriginOf(kOp);
  origin.set_stage(last.first);
  region.ipu = last.second;
  region.origin = origins_.Add(origin);
  for (Tensor value : values) region.outputs.push_back(Stop(value));
  const auto number = static_cast<uint32_t>(regions_.size());
  for (Tensor value : values) {
    region.cotangents.push_back(NewValue(TypeOf(value)));
    values_.back().region = number;
  }
  regions_.push_back(region);
  return {number, std::move(region.outputs), std::move(region.cotangents)};
}

void Graph::RecordRegion(const Region& region, const std::function<std::vector<Tensor>()>& record) {
  if (!UsableOutsideRegions(region.outputs, kOp)) return;
  const bool exists = region.number < regions_.size();
  if (!exists || regions_[region.number].end_value != 0) {
    Refuse(kOp, exists ? "it has been recorded already" : "it is not one of this graph");
    return;
  }
  GradientRegion& recorded = regions_[region.number];
  const uint32_t ipu_before = std::exchange(ipu_, recorded.ipu);
  const uint32_t stage_before = std::exchange(stage_, origins_.at(recorded.origin).stage());
  recorded.first_value = static_cast<uint32_t>(values_.size());
  recording_ = region.number;
  std::vector<Tensor> gradients = record();
  const std::vector<Tensor>& inputs = recorded.inputs;
  if (gradients.size() != inputs.size()) {
    Refuse(kOp, absl::StrCat("there are ", gradients.size(), " gradients, must be one of each of ",
                             inputs.size(), " inputs"));
  }
  for (size_t i = 0; i < gradients.size() && status_.ok(); ++i) {
    if (!gradients[i].valid() || !Usable({gradients[i]}, kOp)) continue;
    if (TypeOf(gradients[i]) == TypeOf(inputs[i])) continue;
    Refuse(kOp, absl::StrCat("the gradient of input ", i, " is ", TypeOf(gradients[i]).ToString(),
                             ", must be ", TypeOf(inputs[i]).ToString()));
  }
  recording_ = ~0u;
  recorded.end_value = static_cast<uint32_t>(values_.size());
  recorded.gradients = std::move(gradients);
  ipu_ = ipu_before;
  stage_ = stage_before;
}

std::vector<Tensor> Graph::CopyRegion(const GradientRegion& region,
                                      const std::vector<Tensor>& cotangents) {
  std::map<uint32_t, uint32_t> copies;
  for (size_t i = 0; i < cotangents.size(); ++i) copies[region.cotangents[i].id] = cotangents[i].id;
  const auto copy_of = [&](uint32_t id) {
    const auto copy = copies.find(id);
    return copy == copies.end() ? id : copy->second;
  };
  const uint32_t number = values_[region.cotangents[0].id].region;
  for (uint32_t id = region.first_value; id < region.end_value; ++id) {
    if (values_[id].region != number) continue;
    Value copy = values_[id];
    copy.region = ~0u;
    copy.alias_of = copy_of(copy.alias_of);
    copy.gradient_to = copy_of(copy.gradient_to);
    copies[id] = static_cast<uint32_t>(values_.size());
    values_.push_back(std::move(copy));
  }
  for (Node node : region.nodes) {
    for (uint32_t& id : *node.instruction.mutable_inputs()) id = copy_of(id);
    for (uint32_t& id : *node.instruction.mutable_outputs()) id = copy_of(id);
    v1::Origin origin = origins_.at(node.origin);
    origin.set_phase(v1::Origin::BACKWARD);
    node.origin = origins_.Add(origin);
    nodes_.push_back(std::move(node));
  }
  std::vector<Tensor> gradients = region.gradients;
  for (Tensor& gradient : gradients) gradient.id = copy_of(gradient.id);
  return gradients;
}

void Graph::AddRegionGradients(const GradientRegion& region, GradientMap& gradients) {
  const v1::Origin origin = origins_.at(region.origin);
  backward_of_ = &origin;
  ipu_ = region.ipu;
  std::vector<Tensor> cotangents;
  for (Tensor output : region.outputs) {
    if (gradients.HasParts(output.id)) gradients.JoinParts(output.id);
    const TensorType type = TypeOf(output);
    const Tensor gradient = gradients.Get(output.id);
    cotangents.push_back(gradient.valid() ? Cast(gradient, type.type) : Constant(type, 0));
  }
  backward_of_ = nullptr;
  if (!status_.ok()) return;
  const std::vector<Tensor> passed = CopyRegion(region, cotangents);
  for (size_t i = 0; i < passed.size(); ++i) gradients.Add(region.inputs[i].id, passed[i]);
}

}  // namespace vpod::graph

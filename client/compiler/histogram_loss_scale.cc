// The loss scale that follows the sizes of float16 gradients: elements above an edge are counted in
// the micro-batches, and the factor of the loss scale changes behind the reduction of gradients.
#include "client/compiler/histogram_loss_scale.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "client/compiler/update.h"
#include "device/program/op.h"

namespace vpod::compiler {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::Instruction;
using program::v1::Origin;

namespace {

constexpr double kLargestFloat16 = 65504;
// A loss of float16 has a gradient of float16, which must be finite.
constexpr double kLeastScale = 0x1p-24, kMostScale = 0x1p24, kMostFloat16Scale = 0x1p15;
// The number of updates since the scale was last looked at, and the elements above the edge.
constexpr char kUpdatesName[] = "optimizer/lossScale/updates";
constexpr char kAboveName[] = "optimizer/lossScale/above";

bool IsView(const Instruction& instruction) {
  return program::FindOp(instruction.attributes_case())->view != nullptr;
}

}  // namespace

std::vector<Tensor> ValuesWithCountedGradients(const Graph& graph) {
  std::set<uint32_t> of_variables;  // roots
  for (Tensor variable : graph.variables()) of_variables.insert(variable.id);
  std::vector<Tensor> values;
  for (const graph::Node& node : graph.nodes()) {
    const auto& inputs = node.instruction.inputs();
    if (std::none_of(inputs.begin(), inputs.end(),
                     [&](uint32_t input) { return of_variables.contains(graph.RootOf(input)); }))
      continue;
    for (uint32_t output : node.instruction.outputs()) {
      of_variables.insert(output);
      if (graph.values()[output].type.type == FLOAT16) values.push_back({output});
    }
  }
  return values;
}

std::vector<Tensor> CountedGradients(const Graph& graph,
                                     absl::Span<const std::vector<Tensor>> gradients) {
  std::set<uint32_t> roots;
  for (const std::vector<Tensor>& of_value : gradients) {
    for (Tensor gradient : of_value) roots.insert(graph.RootOf(gradient.id));
  }
  std::vector<Tensor> counted;
  for (const graph::Node& node : graph.nodes()) {
    if (IsView(node.instruction)) continue;
    for (uint32_t output : node.instruction.outputs()) {
      const program::TensorType& type = graph.values()[output].type;
      if (roots.contains(output) && type.type == FLOAT16 && !type.empty())
        counted.push_back({output});
    }
  }
  return counted;
}

uint32_t Update::LargestOfBin(uint32_t ipu) {
  const auto [edge, is_new] = bin_edges_.try_emplace(ipu);
  if (!is_new) return edge->second;
  Instruction fill;
  fill.mutable_fill()->set_value(kLargestFloat16 *
                                 static_cast<double>(spec_.histogram_loss_scale->bin_edge));
  fill.add_outputs(edge->second = placement_.NewTensor(ipu, {.type = {FLOAT16, {}}}));
  placement_.Emit(ipu, Section::kSetup, std::move(fill));
  return edge->second;
}

void Update::CountGradient(uint32_t value, uint32_t ipu, uint32_t stage) {
  placement_.SetOrigin(kLossScaleName, Origin::BACKWARD, stage);
  uint32_t gradient = placement_.Place(value, ipu);
  if (!placement_.OrderOf(ipu, gradient))
    gradient = placement_.PlaceAs(value, ipu, Order::kRowMajor);
  gradient = placement_.Flat(ipu, gradient);
  const program::Dims dims = placement_.TensorAt(ipu, gradient).type.dims;
  const auto emit = [&](Instruction instruction, std::vector<uint32_t> inputs,
                        program::TensorType type) {
    instruction.mutable_inputs()->Add(inputs.begin(), inputs.end());
    const uint32_t output = placement_.NewTensor(ipu, {.type = std::move(type)});
    instruction.add_outputs(output);
    placement_.Emit(ipu, Section::kBody, std::move(instruction));
    return output;
  };
  Instruction size, is_above, as_float, sum, add;
  size.mutable_unary()->set_operator_(program::v1::ABSOLUTE);
  is_above.mutable_binary()->set_operator_(program::v1::GREATER);
  as_float.mutable_cast()->set_type(FLOAT32);
  sum.mutable_reduce()->set_operator_(program::v1::SUM);
  for (uint32_t axis = 0; axis < dims.size(); ++axis) sum.mutable_reduce()->add_axes(axis);
  const uint32_t sizes = emit(std::move(size), {gradient}, {FLOAT16, dims}),
                 flags = emit(std::move(is_above), {sizes, LargestOfBin(ipu)},
                              {program::v1::BOOL, dims}),
                 numbers = emit(std::move(as_float), {flags}, {FLOAT32, dims}),
                 above = emit(std::move(sum), {numbers}, {FLOAT32, {}});
  const auto [count, is_new] = counts_.try_emplace({ipu, stage});
  if (is_new) count->second = Cleared(ipu, {FLOAT32, {}}, 0);
  add.mutable_binary()->set_operator_(program::v1::ADD);
  for (uint32_t input : {count->second, above}) add.add_inputs(input);
  add.add_outputs(count->second);
  placement_.Emit(ipu, Section::kBody, std::move(add));
}

// All replicas count alike, and decide alike.
uint32_t Update::CountOfAll(uint32_t home) {
  std::optional<uint32_t> total;
  for (const auto& [place, count] : counts_) {
    const uint32_t here = MoveScalar(place.first, count, home);
    total = total ? EmitBinary(home, program::v1::ADD, *total, here) : here;
  }
  if (replicas_ == 1) return *total;
  Instruction reduce;
  reduce.mutable_all_reduce()->set_operator_(program::v1::SUM);
  reduce.add_inputs(*total);
  const uint32_t reduced = placement_.NewTensor(home, {.type = {FLOAT32, {}}});
  reduce.add_outputs(reduced);
  placement_.Emit(home, Section::kReduce, std::move(reduce));
  return reduced;
}

uint32_t Update::Choose(uint32_t ipu, uint32_t condition, uint32_t a, uint32_t b,
                        std::optional<uint32_t> output) {
  Instruction select;
  select.mutable_select();
  for (uint32_t input : {condition, a, b}) select.add_inputs(input);
  const uint32_t chosen = output ? *output : placement_.NewTensor(ipu, {.type = {FLOAT32, {}}});
  select.add_outputs(chosen);
  placement_.Emit(ipu, Section::kReduce, std::move(select));
  return chosen;
}

void Update::EmitHistogramLossScale() {
  using program::v1::ADD, program::v1::GREATER, program::v1::MULTIPLY, program::v1::SUBTRACT;
  placement_.SetOrigin(kLossScaleName, Origin::UPDATE);
  const uint32_t home = graph_.values()[loss_scale_.id].ipu;
  const uint32_t factor = placement_.Place(loss_scale_factor_.id, home);
  // The optimisers divide by this scale; the factor changes after they have run.
  const uint32_t scale = EmitBinary(home, MULTIPLY, placement_.Place(loss_scale_.id, home), factor);
  scales_[home] = scale;
  if (counts_.empty()) return;
  const auto number = [&](double value) { return Constant(home, static_cast<float>(value)); };
  const HistogramLossScale& options = *spec_.histogram_loss_scale;
  const auto state = [&](const char* name) {
    return placement_.NewTensor(home, {.type = {FLOAT32, {}}, .variable = name});
  };
  uint32_t above = CountOfAll(home);
  std::optional<uint32_t> is_due;
  if (options.period > 1) {
    const uint32_t sum = state(kAboveName), updates = state(kUpdatesName);
    above = EmitBinary(home, ADD, sum, above, sum);
    EmitBinary(home, ADD, updates, number(1), updates);
    is_due = EmitBinary(home, GREATER, updates, number(options.period - 0.5));
    above = EmitBinary(home, ADD, above, number(0));  // the sum begins again before it is compared
    for (uint32_t each : {sum, updates}) Choose(home, *is_due, number(0), each, each);
  }
  const double proportion = options.upper_proportion,
               elements = counted_elements_ * spec_.accumulation * replicas_ * options.period;
  const double largest =
      graph_.TypeOf(*spec_.loss).type == FLOAT16 ? kMostFloat16Scale : kMostScale;
  const uint32_t below = EmitBinary(home, SUBTRACT, number(elements), above);
  const uint32_t most = EmitBinary(home, MULTIPLY, below, number(proportion / (1 - proportion)));
  const uint32_t one = number(1),
                 up = Choose(home, EmitBinary(home, GREATER, scale, number(largest / 2)), one,
                             number(2)),
                 down = Choose(home, EmitBinary(home, GREATER, number(kLeastScale * 2), scale), one,
                               number(0.5));
  uint32_t change = Choose(home, EmitBinary(home, GREATER, above, most), down, up);
  if (is_due) change = Choose(home, *is_due, change, one);
  EmitBinary(home, MULTIPLY, factor, change, factor);
}

}  // namespace vpod::compiler

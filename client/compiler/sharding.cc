// The part of Update that shares the optimiser's state out among replicas (CompileOptions::
// tensor_shards): each receives the sum of its part of a gradient, updates that part of the
// weights, and all gather the weights again.
#include <algorithm>
#include <utility>
#include <variant>

#include "client/compiler/optimizer.h"
#include "client/compiler/update.h"

namespace vpod::compiler {

using graph::Value;
using program::v1::DataType;
using program::v1::FLOAT32;
using program::v1::Instruction;
using program::v1::ReplicaGroup;

namespace {

// PopART's minElementsForReplicatedTensorSharding: smaller state is not worth the collectives.
constexpr int64_t kFewestElements = 8192;

ReplicaGroup Group(ReplicaGroup::Kind kind, uint32_t size, uint32_t replicas) {
  ReplicaGroup group;
  if (size == replicas) return group;  // all
  group.set_kind(kind);
  group.set_size(size);
  return group;
}

}  // namespace

bool Update::IsSharded(size_t v) const {
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  const int64_t elements = variable.type.elements();
  const Optimizer& optimizer = OptimizerOf(spec_, GroupOf(spec_, variable.name));
  if (shards_ <= 1 || elements % shards_ != 0) return false;
  if (elements < (off_chip_state_ ? int64_t{shards_} : kFewestElements)) return false;
  // The place of an element in the variable decides how it is rounded.
  const bool has_halves =
      variable.type.type == program::v1::FLOAT16 || HasFloat16State(spec_, variable.name);
  if (rounds_ && has_halves) return false;
  // Steps that need norms: LARS asks for those of the gradient, and what may be left out cannot
  // communicate.
  if (std::holds_alternative<LarsOptions>(optimizer)) return false;
  if (std::holds_alternative<LambOptions>(optimizer) && spec_.automatic_loss_scale) return false;
  return !StepOf(optimizer, 1).state.empty();
}

// Whether replicas receive only their parts of a gradient: nothing asks for all of it.
bool Update::IsScattered(size_t v) const {
  return IsSharded(v) && !spec_.clip_norm && !spec_.automatic_loss_scale;
}

// In two steps, if there are several groups: first over the replicas of a group, unrounded, then
// over those that have the same part. The sum has the bits of a single one if the parts are a power
// of two: then a group is a subtree of the tree over all replicas (device/fabric/tree_reduce.h).
uint32_t Update::Scatter(size_t v, Reduction& reduction) {
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  const uint32_t ipu = variable.ipu;
  placement_.SetOrigin(variable.name, program::v1::Origin::UPDATE, variable.stage);
  const bool two_steps = shards_ < replicas_;
  if (two_steps) gradient_places_[v] = Widest(v);
  const LoweredTensor& gradient = placement_.TensorAt(ipu, gradient_places_[v]);
  const program::TensorType part = {FLOAT32, {gradient.type.elements() / shards_}};
  reduction.scatter.mutable_reduce_scatter()->set_operator_(program::v1::SUM);
  *reduction.scatter.mutable_reduce_scatter()->mutable_group() =
      Group(ReplicaGroup::CONSECUTIVE, shards_, replicas_);
  const uint32_t scattered =
      placement_.NewTensor(ipu, {.type = part, .wide_accumulator = two_steps});
  reduction.scatter.add_inputs(gradient_places_[v]);
  reduction.scatter.add_outputs(scattered);
  if (!two_steps) return scattered;
  reduction.across.mutable_all_reduce()->set_operator_(program::v1::SUM);
  *reduction.across.mutable_all_reduce()->mutable_group() =
      Group(ReplicaGroup::ORTHOGONAL, replicas_ / shards_, replicas_);
  const uint32_t reduced = placement_.NewTensor(ipu, {.type = part});
  reduction.across.add_inputs(scattered);
  reduction.across.add_outputs(reduced);
  return reduced;
}

// The gradient as a wide accumulator.
uint32_t Update::Widest(size_t v) {
  const uint32_t ipu = graph_.values()[graph_.variables()[v].id].ipu,
                 gradient = gradient_places_[v];
  const LoweredTensor tensor = placement_.TensorAt(ipu, gradient);
  if (tensor.wide_accumulator) return gradient;
  const uint32_t wide = placement_.NewTensor(ipu, {.type = tensor.type, .wide_accumulator = true});
  Instruction clear, add;
  clear.mutable_fill();
  clear.add_outputs(wide);
  add.mutable_accumulate();
  add.add_inputs(wide);
  add.add_inputs(gradient);
  add.add_outputs(wide);
  placement_.Emit(ipu, Section::kReduce, std::move(clear));
  placement_.Emit(ipu, Section::kReduce, std::move(add));
  return wide;
}

// This replica's part of a row-major tensor, which the next step may change.
uint32_t Update::PartOf(uint32_t ipu, uint32_t tensor) {
  const LoweredTensor whole = placement_.TensorAt(ipu, tensor);
  const DataType type = whole.type.type;
  const int64_t elements = whole.type.elements() / shards_;
  const uint32_t rows = placement_.AddView(
      ipu, {.type = {type, {shards_, elements}}, .storage = whole.storage, .offset = whole.offset});
  Instruction slice;
  slice.mutable_dynamic_slice()->add_axes(0);
  slice.mutable_dynamic_slice()->add_size(1);
  slice.add_inputs(rows);
  slice.add_inputs(NumberOfPart(ipu));
  const uint32_t row = placement_.NewTensor(ipu, {.type = {type, {1, elements}}});
  slice.add_outputs(row);
  placement_.Emit(ipu, Section::kReduce, std::move(slice));
  return placement_.AddView(
      ipu, {.type = {type, {elements}}, .storage = placement_.TensorAt(ipu, row).storage});
}

// INT32 [1].
uint32_t Update::NumberOfPart(uint32_t ipu) {
  const auto [number, is_new] = part_numbers_.try_emplace(ipu);
  if (!is_new) return number->second;
  const auto emit = [&](Instruction instruction, const std::vector<uint32_t>& inputs,
                        const program::TensorType& type) {
    instruction.mutable_inputs()->Add(inputs.begin(), inputs.end());
    const uint32_t output = placement_.NewTensor(ipu, {.type = type});
    instruction.add_outputs(output);
    placement_.Emit(ipu, Section::kSetup, std::move(instruction));
    return output;
  };
  Instruction index, shards, remainder, cast;
  index.mutable_replica_index();
  shards.mutable_fill()->set_value(shards_);
  remainder.mutable_binary()->set_operator_(program::v1::REMAINDER);
  cast.mutable_cast()->set_type(program::v1::INT32);
  const program::TensorType word = {program::v1::UINT32, {}};
  const uint32_t replica = emit(std::move(index), {}, word),
                 divisor = emit(std::move(shards), {}, word),
                 part = emit(std::move(remainder), {replica, divisor}, word),
                 scalar = emit(std::move(cast), {part}, {program::v1::INT32, {}});
  number->second = placement_.AddView(ipu, {.type = {program::v1::INT32, {1}},
                                            .storage = placement_.TensorAt(ipu, scalar).storage});
  return number->second;
}

void Update::GatherWeights(uint32_t ipu, uint32_t part, uint32_t weights) {
  Instruction& gather = gathers_[ipu];
  *gather.mutable_all_gather()->mutable_group() =
      Group(ReplicaGroup::CONSECUTIVE, shards_, replicas_);
  gather.add_inputs(part);
  gather.add_outputs(weights);
}

// LAMB needs the norms of all parts: it sums up squares, all replicas add theirs, and it steps.
void Update::SplitLamb(uint32_t ipu, Made& made) {
  Instruction step = made.instructions[0];
  Instruction& moments = made.instructions[0];
  const program::v1::Lamb lamb = step.lamb();
  moments.mutable_lamb_moments()->set_gradient_scale(lamb.gradient_scale());
  moments.mutable_lamb_moments()->set_maximize(lamb.maximize());
  const uint32_t squares = placement_.NewTensor(ipu, {.type = {FLOAT32, {2}}});
  moments.set_outputs(0, squares);
  Instruction reduce;
  reduce.mutable_all_reduce()->set_operator_(program::v1::SUM);
  *reduce.mutable_all_reduce()->mutable_group() =
      Group(ReplicaGroup::CONSECUTIVE, shards_, replicas_);
  reduce.add_inputs(squares);
  reduce.add_outputs(squares);
  step.mutable_lamb_step();
  step.set_inputs(1, squares);
  step.mutable_outputs()->Truncate(1);
  made.instructions.push_back(std::move(reduce));
  made.instructions.push_back(std::move(step));
}

}  // namespace vpod::compiler

#include "client/compiler/placement.h"

#include <algorithm>
#include <numeric>

#include "device/program/op.h"

namespace vpod::compiler {
namespace {

using graph::Origin;
using graph::Value;
using program::v1::Instruction;

// For fewer than three dimensions, all are row-major.
program::Dims StridesFor(const program::TensorType& type, Order order) {
  switch (order) {
    case Order::kChannelsLast:
      return program::ChannelsLastStrides(type.dims);
    case Order::kOutputsLast:
      return program::OutputsLastStrides(type.dims);
    default:
      return program::RowMajorStrides(type.dims);
  }
}

// Whether channels lie closer together than pixels, of which some, or all, may be one and the same.
bool HasChannelsInnermost(const LoweredTensor& tensor) {
  if (tensor.type.rank() <= 2) return false;
  for (size_t axis = 2; axis < tensor.strides.size(); ++axis) {
    const bool moves = tensor.type.dims[axis] > 1 && tensor.strides[axis] != 0;
    if (moves && (tensor.strides[1] == 0 || tensor.strides[axis] < tensor.strides[1])) return false;
  }
  return true;
}

}  // namespace

std::set<uint32_t> FindFilters(const graph::Graph& graph, Rounding rounding) {
  std::map<uint32_t, const graph::Node*> producers;  // by value
  std::vector<uint32_t> weights;
  for (const graph::Node& node : graph.nodes()) {
    const Instruction& instruction = node.instruction;
    for (uint32_t output : instruction.outputs()) producers[output] = &node;
    if (instruction.has_convolution() &&
        instruction.convolution().pass() != program::v1::Convolution::WEIGHT_GRADIENT)
      weights.push_back(instruction.inputs(1));
  }
  std::set<uint32_t> filters, seen;
  while (!weights.empty()) {
    const uint32_t id = weights.back();
    weights.pop_back();
    if (!seen.insert(id).second) continue;
    const Value& value = graph.values()[id];
    if (value.origin == Origin::kVariable) filters.insert(id);
    const auto producer = producers.find(id);
    if (producer == producers.end()) continue;
    const Instruction& instruction = producer->second->instruction;
    if (!program::FindOp(instruction.attributes_case())->elementwise) continue;
    for (uint32_t input : instruction.inputs()) {
      if (graph.values()[input].type.dims == value.type.dims) weights.push_back(input);
    }
  }
  // A buffer or variable may be assigned what an op made row-major.
  for (graph::Tensor buffer : graph.buffers()) filters.erase(buffer.id);
  for (const graph::Assignment& each : graph.assignments()) filters.erase(each.variable.id);
  if (rounding != Rounding::kNearest) {
    std::erase_if(
        filters, [&](uint32_t id) { return graph.values()[id].type.type == program::v1::FLOAT16; });
  }
  return filters;
}

Placement::Placement(const GraphProgram& program)
    : graph_(program.graph), filters_(program.filters) {
  lowered_.ipus.resize(program.ipus);
  for (const auto& [ipu, buffers] : graph_.remote_buffers()) {
    // The checks let nobody use the buffers of an IPU that a replica does not have.
    if (ipu < program.ipus) lowered_.ipus[ipu].remote_buffers = buffers;
  }
}

void Placement::SetOrigin(const std::string& name, program::v1::Origin::Phase phase,
                          uint32_t stage) {
  origin_.Clear();
  origin_.set_scope(name);
  origin_.set_phase(phase);
  origin_.set_stage(stage);
}

void Placement::Emit(uint32_t ipu, Section section, Instruction instruction) {
  program::v1::Origin origin = origin_;
  if (origin.op().empty()) origin.set_op(program::LabelOf(instruction));
  lowered_.ipus[ipu].sections[static_cast<int>(section)].push_back(
      {std::move(instruction), std::move(origin)});
}

uint32_t Placement::NewTensor(uint32_t ipu, LoweredTensor tensor) {
  tensor.storage = lowered_.ipus[ipu].num_storages++;
  return AddView(ipu, std::move(tensor));
}

uint32_t Placement::AddView(uint32_t ipu, LoweredTensor tensor) {
  if (tensor.strides.empty()) tensor.strides = program::RowMajorStrides(tensor.type.dims);
  lowered_.ipus[ipu].tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(lowered_.ipus[ipu].tensors.size() - 1);
}

uint32_t Placement::Flat(uint32_t ipu, uint32_t index) {
  if (Lies(ipu, index, Order::kRowMajor)) return index;
  LoweredTensor flat = TensorAt(ipu, index);
  std::vector<size_t> axes(flat.strides.size());
  std::iota(axes.begin(), axes.end(), 0);
  const program::Dims dims = flat.type.dims;
  // Dimensions of 1 come first: their strides say nothing.
  const auto stride = [&](size_t axis) { return dims[axis] == 1 ? INT64_MAX : flat.strides[axis]; };
  std::stable_sort(axes.begin(), axes.end(),
                   [&](size_t a, size_t b) { return stride(a) > stride(b); });
  for (size_t i = 0; i < axes.size(); ++i) flat.type.dims[i] = dims[axes[i]];
  flat.variable.clear();
  flat.strides.clear();
  return AddView(ipu, std::move(flat));
}

bool Placement::Lies(uint32_t ipu, uint32_t index, Order order) const {
  const LoweredTensor& tensor = TensorAt(ipu, index);
  const program::Dims wanted = StridesFor(tensor.type, order);
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    if (tensor.type.dims[axis] != 1 && tensor.strides[axis] != wanted[axis]) return false;
  }
  return tensor.offset % 64 == 0;
}

std::optional<Order> Placement::OrderOf(uint32_t ipu, uint32_t index) const {
  for (Order order : {Order::kRowMajor, Order::kChannelsLast, Order::kOutputsLast}) {
    if (Lies(ipu, index, order)) return order;
  }
  return std::nullopt;
}

Order Placement::OrderLike(uint32_t ipu, uint32_t index) const {
  if (const auto order = OrderOf(ipu, index); order == Order::kOutputsLast) return *order;
  return HasChannelsInnermost(TensorAt(ipu, index)) ? Order::kChannelsLast : Order::kRowMajor;
}

uint32_t Placement::Make(uint32_t id, uint32_t ipu, Order order) {
  const Value& value = graph_.values()[id];
  const bool variable = value.origin == Origin::kVariable && ipu == value.ipu;
  const uint32_t index = NewTensor(ipu, {.type = value.type,
                                         .variable = variable ? value.name : "",
                                         .strides = StridesFor(value.type, order)});
  SetPlace(id, ipu, index);
  return index;
}

uint32_t Placement::Place(uint32_t id, uint32_t ipu) {
  const auto found = placed_.find({id, ipu});
  if (found != placed_.end()) return found->second.index;
  const Value& value = graph_.values()[id];
  const uint32_t root = graph_.RootOf(id);
  if (root != id) {
    const LoweredTensor& source = TensorAt(ipu, RowMajor(root, ipu));
    const uint32_t index =
        AddView(ipu, {.type = value.type, .storage = source.storage, .offset = source.offset});
    SetPlace(id, ipu, index);
    return index;
  }
  const uint32_t index =
      Make(id, ipu, filters_.contains(id) ? Order::kOutputsLast : Order::kRowMajor);
  if (value.origin == Origin::kConstant) {
    Instruction fill;
    fill.mutable_fill()->set_value(value.constant);
    if (value.elements != nullptr) fill.mutable_fill()->set_elements(*value.elements);
    fill.add_outputs(index);
    Emit(ipu, Section::kSetup, std::move(fill));
  }
  return index;
}

uint32_t Placement::PlaceAs(uint32_t id, uint32_t ipu, Order order) {
  const uint32_t index = Place(id, ipu);
  if (Lies(ipu, index, order)) return index;
  uint32_t& converted = placed_[{id, ipu}].converted[static_cast<size_t>(order)];
  if (converted != ~0u) return converted;
  const Value& value = graph_.values()[id];
  const program::Dims strides = StridesFor(value.type, order);
  if (value.origin == Origin::kConstant && value.elements == nullptr) {
    // Equal elements lie in any layout.
    const uint32_t storage = TensorAt(ipu, index).storage;
    return converted = AddView(ipu, {.type = value.type, .storage = storage, .strides = strides});
  }
  converted = NewTensor(ipu, {.type = value.type, .strides = strides});
  Instruction copy;
  copy.mutable_copy();
  copy.add_inputs(index);
  copy.add_outputs(converted);
  const bool is_constant = value.origin == Origin::kConstant;
  Emit(ipu, is_constant ? Section::kSetup : Section::kBody, std::move(copy));
  return converted;
}

void Placement::Bring(uint32_t id, uint32_t ipu) {
  const uint32_t root = graph_.RootOf(id);
  const Value& value = graph_.values()[root];
  if (value.origin == Origin::kConstant || value.ipu == ipu || placed_.contains({root, ipu}))
    return;
  if (value.type.empty()) {
    Make(root, ipu, Order::kRowMajor);
    return;
  }
  const Order order = OrderOf(value.ipu, Place(root, value.ipu)).value_or(Order::kRowMajor);
  const uint32_t source = Flat(value.ipu, PlaceAs(root, value.ipu, order));
  AddMove(Section::kBody, value.ipu, source, ipu, Flat(ipu, Make(root, ipu, order)));
}

void Placement::AddMove(Section section, uint32_t from_ipu, uint32_t from, uint32_t to_ipu,
                        uint32_t to) {
  program::v1::Move& move = lowered_.moves.emplace_back();
  move.set_from_ipu(from_ipu);
  move.set_from_tensor(from);
  move.set_to_ipu(to_ipu);
  move.set_to_tensor(to);
  Instruction send, receive;
  send.mutable_exchange()->set_exchange(static_cast<uint32_t>(lowered_.moves.size() - 1));
  receive = send;
  send.add_inputs(from);
  receive.add_outputs(to);
  Emit(from_ipu, section, std::move(send));
  Emit(to_ipu, section, std::move(receive));
}

uint32_t Placement::Fetch(uint32_t id, uint32_t ipu) {
  Bring(id, ipu);
  return RowMajor(id, ipu);
}

uint32_t Placement::AddRemoteBuffer(uint32_t ipu, program::v1::RemoteBuffer buffer) {
  std::vector<program::v1::RemoteBuffer>& buffers = lowered_.ipus[ipu].remote_buffers;
  buffers.push_back(std::move(buffer));
  return static_cast<uint32_t>(buffers.size() - 1);
}

uint32_t Placement::AddStream(std::string name, bool to_device, uint32_t ipu,
                              const graph::TensorType& type, bool periodic) {
  lowered_.streams.push_back({std::move(name), to_device, ipu, type, periodic});
  return static_cast<uint32_t>(lowered_.streams.size() - 1);
}

std::vector<uint32_t> Placement::ValuesIn(uint32_t ipu, uint32_t storage) const {
  std::vector<uint32_t> values;
  for (const auto& [place, of_value] : placed_) {
    if (place.second != ipu) continue;
    const auto lies_there = [&](uint32_t index) {
      return index != ~0u && TensorAt(ipu, index).storage == storage;
    };
    if (lies_there(of_value.index) ||
        std::any_of(of_value.converted.begin(), of_value.converted.end(), lies_there))
      values.push_back(place.first);
  }
  return values;
}

std::vector<std::pair<uint32_t, uint32_t>> Placement::StoragesFromOutside() const {
  std::vector<std::pair<uint32_t, uint32_t>> storages;
  for (const auto& [place, of_value] : placed_) {
    const auto& [id, ipu] = place;
    if (graph_.values()[id].origin != Origin::kOperation)
      storages.emplace_back(ipu, TensorAt(ipu, of_value.index).storage);
  }
  return storages;
}

}  // namespace vpod::compiler

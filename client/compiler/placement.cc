#include "client/compiler/placement.h"

namespace vpod::compiler {
namespace {

using graph::Origin;
using graph::Value;
using program::v1::Instruction;

program::Dims StridesFor(const program::TensorType& type, bool channels_last) {
  return channels_last && type.rank() > 2 ? program::ChannelsLastStrides(type.dims)
                                          : program::RowMajorStrides(type.dims);
}

}  // namespace

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
  program_.ipus[ipu].sections[static_cast<int>(section)].push_back(
      {std::move(instruction), std::move(origin)});
}

uint32_t Placement::NewTensor(uint32_t ipu, LoweredTensor tensor) {
  tensor.storage = program_.ipus[ipu].num_storages++;
  return AddView(ipu, std::move(tensor));
}

uint32_t Placement::AddView(uint32_t ipu, LoweredTensor tensor) {
  if (tensor.strides.empty()) tensor.strides = program::RowMajorStrides(tensor.type.dims);
  program_.ipus[ipu].tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(program_.ipus[ipu].tensors.size() - 1);
}

bool Placement::Lies(uint32_t ipu, uint32_t index, bool channels_last) const {
  const LoweredTensor& tensor = TensorAt(ipu, index);
  const program::Dims wanted = StridesFor(tensor.type, channels_last);
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    if (tensor.type.dims[axis] != 1 && tensor.strides[axis] != wanted[axis]) return false;
  }
  return tensor.offset % 64 == 0;
}

bool Placement::HasChannelsInnermost(uint32_t ipu, uint32_t index) const {
  const LoweredTensor& tensor = TensorAt(ipu, index);
  if (tensor.type.rank() <= 2 || tensor.strides[1] == 0) return false;
  for (size_t axis = 2; axis < tensor.strides.size(); ++axis) {
    const bool moves = tensor.type.dims[axis] > 1 && tensor.strides[axis] != 0;
    if (moves && tensor.strides[axis] < tensor.strides[1]) return false;
  }
  return true;
}

uint32_t Placement::Make(uint32_t id, uint32_t ipu, bool channels_last) {
  const Value& value = graph_.values()[id];
  const bool variable = value.origin == Origin::kVariable && ipu == value.ipu;
  const uint32_t index = NewTensor(ipu, {.type = value.type,
                                         .variable = variable ? value.name : "",
                                         .strides = StridesFor(value.type, channels_last)});
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
  const uint32_t index = Make(id, ipu, /*channels_last=*/false);
  if (value.origin == Origin::kConstant) {
    Instruction fill;
    fill.mutable_fill()->set_value(value.constant);
    fill.add_outputs(index);
    Emit(ipu, Section::kSetup, std::move(fill));
  }
  return index;
}

uint32_t Placement::PlaceAs(uint32_t id, uint32_t ipu, bool channels_last) {
  const uint32_t index = Place(id, ipu);
  if (Lies(ipu, index, channels_last)) return index;
  Places& places = placed_[{id, ipu}];
  uint32_t& converted = channels_last ? places.channels_last : places.row_major;
  if (converted != ~0u) return converted;
  const Value& value = graph_.values()[id];
  const program::Dims strides = StridesFor(value.type, channels_last);
  if (value.origin == Origin::kConstant) {
    // Equal elements lie in any layout.
    const uint32_t storage = TensorAt(ipu, index).storage;
    return converted = AddView(ipu, {.type = value.type, .storage = storage, .strides = strides});
  }
  converted = NewTensor(ipu, {.type = value.type, .strides = strides});
  Instruction copy;
  copy.mutable_copy();
  copy.add_inputs(index);
  copy.add_outputs(converted);
  Emit(ipu, Section::kBody, std::move(copy));
  return converted;
}

void Placement::Bring(uint32_t id, uint32_t ipu) {
  const uint32_t root = graph_.RootOf(id);
  const Value& value = graph_.values()[root];
  if (value.origin == Origin::kConstant || value.ipu == ipu || placed_.contains({root, ipu}))
    return;
  if (value.type.empty()) {
    Make(root, ipu, /*channels_last=*/false);
    return;
  }
  const uint32_t source = RowMajor(root, value.ipu);
  AddMove(Section::kBody, value.ipu, source, ipu, Make(root, ipu, /*channels_last=*/false));
}

void Placement::AddMove(Section section, uint32_t from_ipu, uint32_t from, uint32_t to_ipu,
                        uint32_t to) {
  program::v1::Move& move = program_.moves.emplace_back();
  move.set_from_ipu(from_ipu);
  move.set_from_tensor(from);
  move.set_to_ipu(to_ipu);
  move.set_to_tensor(to);
  Instruction send, receive;
  send.mutable_exchange()->set_exchange(static_cast<uint32_t>(program_.moves.size() - 1));
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

uint32_t Placement::AddStream(std::string name, bool to_device, uint32_t ipu,
                              const graph::TensorType& type) {
  program_.streams.push_back({std::move(name), to_device, ipu, type});
  return static_cast<uint32_t>(program_.streams.size() - 1);
}

bool Placement::IsDense(uint32_t ipu, uint32_t index) const {
  return TensorAt(ipu, index).offset == 0 &&
         (Lies(ipu, index, /*channels_last=*/false) || Lies(ipu, index, /*channels_last=*/true));
}

std::vector<uint32_t> Placement::ValuesIn(uint32_t ipu, uint32_t storage) const {
  std::vector<uint32_t> values;
  for (const auto& [place, of_value] : placed_) {
    if (place.second != ipu) continue;
    for (uint32_t index : {of_value.index, of_value.row_major, of_value.channels_last}) {
      if (index == ~0u || TensorAt(ipu, index).storage != storage) continue;
      values.push_back(place.first);
      break;
    }
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

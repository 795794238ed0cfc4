#include "client/compiler/lowering.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/compiler/fusion.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Origin;
using graph::Tensor;
using graph::Value;
using program::v1::Instruction;

class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramSpec& spec, const CompileOptions& options)
      : graph_(graph), spec_(spec), options_(options) {
    result_.ipus.resize(options.ipus_per_replica);
  }

  absl::StatusOr<LoweredProgram> Run() {
    const auto first_backward = static_cast<uint32_t>(graph_.values().size());
    std::vector<Tensor> gradients;
    if (spec_.loss.has_value()) {
      if (spec_.loss_scale) {
        graph_.SetIpu(graph_.values()[spec_.loss->id].ipu);
        loss_scale_ =
            graph_.Buffer(kLossScaleName, {program::v1::FLOAT32, {}}, {*spec_.loss_scale});
      }
      gradients = graph_.Gradients(*spec_.loss, graph_.variables(), loss_scale_);
    }
    VPOD_RETURN_IF_ERROR(graph_.status());
    for (const Value& value : graph_.values()) {
      if (value.ipu >= options_.ipus_per_replica) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the graph uses IPU ", value.ipu, " of a replica of ", options_.ipus_per_replica));
      }
    }
    FindNeeded(gradients);
    EmitInputs();
    std::vector<graph::Node> nodes;
    for (size_t i : needed_nodes_) nodes.push_back(graph_.nodes()[i]);
    if (options_.fusion) nodes = Fuse(graph_, std::move(nodes), results_, first_backward);
    for (size_t v = 0; v < gradients.size(); ++v) {
      if (gradients[v].valid()) gradients_of_[Root(gradients[v].id)].push_back(v);
    }
    gradient_places_.resize(gradients.size());
    FindValuesMadeInBuffers(nodes);
    for (const graph::Node& node : nodes) {
      EmitNode(node);
      // Added to its accumulator at once, a gradient takes memory for a moment only.
      for (uint32_t value : node.instruction.outputs()) EmitGradientsOf(value, gradients);
    }
    if (spec_.loss.has_value()) {
      EmitAssignments();
      EmitUpdate(gradients);
    }
    EmitOutputs();
    return std::move(result_);
  }

 private:
  // The value whose bytes a reshape shares.
  uint32_t Root(uint32_t id) const {
    while (graph_.values()[id].alias_of != ~0u) id = graph_.values()[id].alias_of;
    return id;
  }

  void FindNeeded(const std::vector<Tensor>& gradients) {
    std::vector<uint32_t> pending;
    for (const auto& output : graph_.outputs()) pending.push_back(Root(output.value.id));
    for (Tensor gradient : gradients) {
      if (gradient.valid()) pending.push_back(Root(gradient.id));
    }
    if (spec_.loss.has_value()) {
      for (const auto& assignment : graph_.assignments())
        pending.push_back(Root(assignment.value.id));
    }
    results_.insert(pending.begin(), pending.end());
    std::map<uint32_t, size_t> producer;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (uint32_t id : graph_.nodes()[i].instruction.outputs()) producer[id] = i;
    }
    std::set<uint32_t> seen;
    while (!pending.empty()) {
      const uint32_t id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      if (graph_.values()[id].origin == Origin::kInput) needed_inputs_.insert(id);
      const auto it = producer.find(id);
      if (it == producer.end() || !needed_nodes_.insert(it->second).second) continue;
      for (uint32_t read : graph_.nodes()[it->second].instruction.inputs())
        pending.push_back(Root(read));
    }
  }

  std::vector<Instruction>& At(uint32_t ipu, Section section) {
    return result_.ipus[ipu].sections[static_cast<int>(section)];
  }

  // Row-major, unless the tensor has strides.
  uint32_t NewTensor(uint32_t ipu, LoweredTensor tensor) {
    tensor.storage = result_.ipus[ipu].num_storages++;
    return AddView(ipu, std::move(tensor));
  }

  uint32_t AddView(uint32_t ipu, LoweredTensor tensor) {
    if (tensor.strides.empty()) tensor.strides = program::RowMajorStrides(tensor.type.dims);
    result_.ipus[ipu].tensors.push_back(std::move(tensor));
    return static_cast<uint32_t>(result_.ipus[ipu].tensors.size() - 1);
  }

  // Where a value is on an IPU: the tensor in which it was made, and the same elements in the
  // layouts that somebody needed.
  struct Places {
    uint32_t index = ~0u;
    uint32_t row_major = ~0u, channels_last = ~0u;
  };

  static program::Dims StridesFor(const program::TensorType& type, bool channels_last) {
    return channels_last && type.rank() > 2 ? program::ChannelsLastStrides(type.dims)
                                            : program::RowMajorStrides(type.dims);
  }

  // Whether a tensor lies as an op wants it.
  bool Lies(uint32_t ipu, uint32_t index, bool channels_last) const {
    const LoweredTensor& tensor = result_.ipus[ipu].tensors[index];
    const program::Dims wanted = StridesFor(tensor.type, channels_last);
    for (size_t axis = 0; axis < wanted.size(); ++axis) {
      if (tensor.type.dims[axis] != 1 && tensor.strides[axis] != wanted[axis]) return false;
    }
    return tensor.offset % 64 == 0;
  }

  // Whether channels lie closer together than pixels, of which some may be one and the same.
  bool HasChannelsInnermost(uint32_t ipu, uint32_t index) const {
    const LoweredTensor& tensor = result_.ipus[ipu].tensors[index];
    if (tensor.type.rank() <= 2 || tensor.strides[1] == 0) return false;
    for (size_t axis = 2; axis < tensor.strides.size(); ++axis) {
      const bool moves = tensor.type.dims[axis] > 1 && tensor.strides[axis] != 0;
      if (moves && tensor.strides[axis] < tensor.strides[1]) return false;
    }
    return true;
  }

  // A tensor that is to hold a value on `ipu`.
  uint32_t Make(uint32_t id, uint32_t ipu, bool channels_last) {
    const Value& value = graph_.values()[id];
    const bool variable = value.origin == Origin::kVariable && ipu == value.ipu;
    const uint32_t index = NewTensor(ipu, {.type = value.type,
                                           .variable = variable ? value.name : "",
                                           .strides = StridesFor(value.type, channels_last)});
    placed_[{id, ipu}] = {index};
    return index;
  }

  // Index on `ipu` of a value that is there already or is made there now (variables at home,
  // constants anywhere), in whatever layout.
  uint32_t Place(uint32_t id, uint32_t ipu) {
    const auto found = placed_.find({id, ipu});
    if (found != placed_.end()) return found->second.index;
    const Value& value = graph_.values()[id];
    const uint32_t root = Root(id);
    if (root != id) {
      const LoweredTensor& source = result_.ipus[ipu].tensors[RowMajor(root, ipu)];
      const uint32_t index =
          AddView(ipu, {.type = value.type, .storage = source.storage, .offset = source.offset});
      placed_[{id, ipu}] = {index};
      return index;
    }
    const uint32_t index = Make(id, ipu, /*channels_last=*/false);
    if (value.origin == Origin::kConstant) {
      Instruction fill;
      fill.mutable_fill()->set_value(value.constant);
      fill.add_outputs(index);
      At(ipu, Section::kSetup).push_back(std::move(fill));
    }
    return index;
  }

  // As Place, in the given layout.
  uint32_t PlaceAs(uint32_t id, uint32_t ipu, bool channels_last) {
    const uint32_t index = Place(id, ipu);
    if (Lies(ipu, index, channels_last)) return index;
    Places& places = placed_[{id, ipu}];
    uint32_t& converted = channels_last ? places.channels_last : places.row_major;
    if (converted != ~0u) return converted;
    const Value& value = graph_.values()[id];
    const program::Dims strides = StridesFor(value.type, channels_last);
    if (value.origin == Origin::kConstant) {
      // Equal elements lie in any layout.
      const uint32_t storage = result_.ipus[ipu].tensors[index].storage;
      return converted = AddView(ipu, {.type = value.type, .storage = storage, .strides = strides});
    }
    converted = NewTensor(ipu, {.type = value.type, .strides = strides});
    Instruction copy;
    copy.mutable_copy();
    copy.add_inputs(index);
    copy.add_outputs(converted);
    At(ipu, Section::kBody).push_back(std::move(copy));
    return converted;
  }
  uint32_t RowMajor(uint32_t id, uint32_t ipu) { return PlaceAs(id, ipu, false); }

  // Brings a value that is read over from its home when that is another IPU.
  void Bring(uint32_t id, uint32_t ipu) {
    const uint32_t root = Root(id);
    const Value& value = graph_.values()[root];
    if (value.origin == Origin::kConstant || value.ipu == ipu || placed_.contains({root, ipu}))
      return;
    const uint32_t source = RowMajor(root, value.ipu);
    AddMove(Section::kBody, value.ipu, source, ipu, Make(root, ipu, /*channels_last=*/false));
  }

  void AddMove(Section section, uint32_t from_ipu, uint32_t from, uint32_t to_ipu, uint32_t to) {
    program::v1::Move& move = result_.moves.emplace_back();
    move.set_from_ipu(from_ipu);
    move.set_from_tensor(from);
    move.set_to_ipu(to_ipu);
    move.set_to_tensor(to);
    Instruction send, receive;
    send.mutable_exchange()->set_exchange(static_cast<uint32_t>(result_.moves.size() - 1));
    receive = send;
    send.add_inputs(from);
    receive.add_outputs(to);
    At(from_ipu, section).push_back(std::move(send));
    At(to_ipu, section).push_back(std::move(receive));
  }

  // A value that is read, in row-major order.
  uint32_t Fetch(uint32_t id, uint32_t ipu) {
    Bring(id, ipu);
    return RowMajor(id, ipu);
  }

  uint32_t AddStream(std::string name, bool to_device, uint32_t ipu,
                     const graph::TensorType& type) {
    result_.streams.push_back({std::move(name), to_device, ipu, type});
    return static_cast<uint32_t>(result_.streams.size() - 1);
  }

  void EmitInputs() {
    for (Tensor input : graph_.inputs()) {
      if (!needed_inputs_.contains(input.id)) continue;
      const Value& value = graph_.values()[input.id];
      Instruction in;
      in.mutable_stream_in()->set_stream(AddStream(value.name, true, value.ipu, value.type));
      in.add_outputs(Place(input.id, value.ipu));
      At(value.ipu, Section::kBody).push_back(std::move(in));
    }
  }

  // The layouts that an op asks for. What takes any layout keeps that of its largest input, so that
  // chains of element-by-element ops after a convolution need no copies.
  void EmitNode(const graph::Node& node) {
    Instruction instruction = node.instruction;
    const program::OpDef& op = *program::FindOp(instruction.attributes_case());
    if (op.view != nullptr && AddViewOf(node, op)) return;
    const auto layout = [&](bool output, int position) {
      return op.layout == nullptr ? program::Layout::kRowMajor
                                  : op.layout(node.instruction, {output, position});
    };
    bool keeps_channels_last = false;
    int64_t largest = 0;
    for (int i = 0; i < instruction.inputs_size(); ++i) {
      const uint32_t id = instruction.inputs(i);
      Bring(id, node.ipu);
      if (layout(false, i) != program::Layout::kStrided) {
        const bool channels_last = layout(false, i) == program::Layout::kChannelsLast;
        instruction.set_inputs(i, PlaceAs(id, node.ipu, channels_last));
        continue;
      }
      const uint32_t index = Place(id, node.ipu);
      instruction.set_inputs(i, index);
      const program::TensorType& type = graph_.values()[id].type;
      const bool same_in_both = graph_.values()[id].origin == Origin::kConstant;
      if (same_in_both || type.elements() <= largest) continue;
      largest = type.elements();
      keeps_channels_last = HasChannelsInnermost(node.ipu, index);
    }
    for (int i = 0; i < instruction.outputs_size(); ++i) {
      const bool channels_last =
          layout(true, i) == program::Layout::kChannelsLast ||
          (layout(true, i) == program::Layout::kStrided && keeps_channels_last);
      instruction.set_outputs(i, MakeOutput(instruction.outputs(i), node.ipu, channels_last));
    }
    At(node.ipu, Section::kBody).push_back(std::move(instruction));
  }

  uint32_t MakeOutput(uint32_t id, uint32_t ipu, bool channels_last) {
    const auto buffer = made_in_buffers_.find(id);
    if (buffer == made_in_buffers_.end()) return Make(id, ipu, channels_last);
    const uint32_t index = Place(buffer->second, ipu);
    placed_[{id, ipu}] = {index};
    return index;
  }

  // Makes the output of a node a view of its input. False for a buffer, whose value may change
  // before the view is read.
  bool AddViewOf(const graph::Node& node, const program::OpDef& op) {
    const uint32_t input = node.instruction.inputs(0), output = node.instruction.outputs(0);
    for (Tensor buffer : graph_.buffers()) {
      if (Root(input) == buffer.id) return false;
    }
    Bring(input, node.ipu);
    const LoweredTensor source = result_.ipus[node.ipu].tensors[Place(input, node.ipu)];
    program::View view = op.view(node.instruction, source.type, source.strides);
    const uint64_t skipped = static_cast<uint64_t>(view.offset) * program::SizeOf(source.type.type);
    placed_[{output, node.ipu}] = {AddView(node.ipu, {.type = graph_.values()[output].type,
                                                      .storage = source.storage,
                                                      .offset = source.offset + skipped,
                                                      .strides = std::move(view.strides)})};
    return true;
  }

  // A value that is only assigned to a buffer is made there, if nobody reads the buffer later.
  void FindValuesMadeInBuffers(const std::vector<graph::Node>& nodes) {
    if (!spec_.loss.has_value()) return;
    std::map<uint32_t, size_t> producers, last_readers;  // by value
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (uint32_t id : nodes[i].instruction.outputs()) producers[id] = i;
      for (uint32_t id : nodes[i].instruction.inputs()) last_readers[Root(id)] = i;
    }
    for (const auto& output : graph_.outputs()) last_readers[Root(output.value.id)] = nodes.size();
    for (const auto& [buffer, value] : graph_.assignments()) {
      const auto producer = producers.find(value.id);
      if (producer == producers.end() || last_readers.contains(value.id)) continue;
      const graph::Node& node = nodes[producer->second];
      const program::OpDef& op = *program::FindOp(node.instruction.attributes_case());
      const auto reader = last_readers.find(buffer.id);
      const bool free = reader == last_readers.end() || reader->second <= producer->second;
      const bool elementwise = op.elementwise || node.instruction.has_map();
      if (free && elementwise && node.ipu == graph_.values()[buffer.id].ipu)
        made_in_buffers_[value.id] = buffer.id;
    }
  }

  void EmitAssignments() {
    for (const auto& [buffer, assigned] : graph_.assignments()) {
      if (made_in_buffers_.contains(assigned.id)) continue;
      const uint32_t ipu = graph_.values()[buffer.id].ipu;
      Instruction copy;
      copy.mutable_copy();
      copy.add_inputs(Fetch(assigned.id, ipu));
      copy.add_outputs(Place(buffer.id, ipu));
      At(ipu, Section::kBody).push_back(std::move(copy));
    }
  }

  void EmitOutputs() {
    for (const auto& output : graph_.outputs()) {
      const uint32_t ipu = graph_.values()[Root(output.value.id)].ipu;
      const uint32_t tensor = Fetch(output.value.id, ipu);
      Instruction out;
      out.add_inputs(tensor);
      out.mutable_stream_out()->set_stream(
          AddStream(output.name, false, ipu, graph_.TypeOf(output.value)));
      At(ipu, Section::kBody).push_back(std::move(out));
    }
  }

  // Accumulates in the body; all-reduces and updates after it. Gradients that are reduced are
  // float32, so that the sum of many float16 gradients does not overflow before it is scaled.
  void EmitUpdate(const std::vector<Tensor>& gradients) {
    std::map<uint32_t, Instruction> reduce;  // by IPU
    std::map<uint32_t, std::vector<Instruction>> updates;
    for (size_t v = 0; v < gradients.size(); ++v) {
      // A variable that the loss does not depend on keeps its value, as in PyTorch.
      const Tensor variable = graph_.variables()[v];
      if (!gradients[v].valid()) {
        gradient_places_[v] = Place(variable.id, graph_.values()[variable.id].ipu);
      } else {
        EmitGradientsOf(Root(gradients[v].id), gradients);  // of what no node makes
      }
    }
    const auto readers = ReadersOfStorages(gradients);
    for (size_t v = 0; v < gradients.size(); ++v) {
      if (!gradients[v].valid()) continue;
      const Value& variable = graph_.values()[graph_.variables()[v].id];
      const uint32_t ipu = variable.ipu;
      const LoweredTensor& gradient = result_.ipus[ipu].tensors[gradient_places_[v]];
      const bool in_place = !gradient.wide_accumulator && readers.at({ipu, gradient.storage}) == 1;
      const uint32_t reduced =
          in_place ? gradient_places_[v]
                   : NewTensor(ipu, {.type = {program::v1::FLOAT32, variable.type.dims}});
      reduce[ipu].mutable_all_reduce()->set_operator_(program::v1::SUM);
      reduce[ipu].add_inputs(gradient_places_[v]);
      reduce[ipu].add_outputs(reduced);
      updates[ipu].push_back(MakeUpdate(v, reduced));
    }
    for (auto& [ipu, instruction] : reduce) {
      At(ipu, Section::kReduce).push_back(instruction);
      if (steps_.contains(ipu)) CountStep(ipu);
      for (Instruction& update : updates[ipu])
        At(ipu, Section::kUpdate).push_back(std::move(update));
    }
    if (spec_.automatic_loss_scale) EmitAutomaticLossScale(reduce);
  }

  // For the variables whose gradient a value is.
  void EmitGradientsOf(uint32_t value, const std::vector<Tensor>& gradients) {
    const auto of = gradients_of_.find(value);
    if (of == gradients_of_.end()) return;
    for (size_t v : of->second) gradient_places_[v] = EmitGradient(v, gradients[v]);
    gradients_of_.erase(of);
  }

  // The gradient of variable number `v` as it is reduced: the sum over micro-batches, or in
  // float32.
  uint32_t EmitGradient(size_t v, Tensor value) {
    const Value& variable = graph_.values()[graph_.variables()[v].id];
    const uint32_t ipu = variable.ipu, gradient = Fetch(value.id, ipu);
    if (spec_.accumulation > 1) return EmitAccumulation(ipu, gradient, variable.type.dims);
    if (variable.type.type == program::v1::FLOAT32) return gradient;
    Instruction cast;
    cast.mutable_cast()->set_type(program::v1::FLOAT32);
    cast.add_inputs(gradient);
    const uint32_t widened = NewTensor(ipu, {.type = {program::v1::FLOAT32, variable.type.dims}});
    cast.add_outputs(widened);
    At(ipu, Section::kReduce).push_back(std::move(cast));
    return widened;
  }

  // How many gradients lie in each storage, and what else there does not die with the micro-batch:
  // only a gradient that is alone may be reduced in place.
  std::map<std::pair<uint32_t, uint32_t>, int> ReadersOfStorages(
      const std::vector<Tensor>& gradients) const {
    std::map<std::pair<uint32_t, uint32_t>, int> readers;  // of (IPU, storage)
    for (size_t v = 0; v < gradients.size(); ++v) {
      const uint32_t ipu = graph_.values()[graph_.variables()[v].id].ipu;
      if (gradients[v].valid())
        ++readers[{ipu, result_.ipus[ipu].tensors[gradient_places_[v]].storage}];
    }
    for (const auto& [place, of_value] : placed_) {
      const auto& [id, ipu] = place;
      if (graph_.values()[id].origin != Origin::kOperation)
        ++readers[{ipu, result_.ipus[ipu].tensors[of_value.index].storage}];
    }
    return readers;
  }

  // One gradient that is not finite keeps all IPUs from updating. All replicas decide alike, since
  // they look at the reduced gradients.
  void EmitAutomaticLossScale(const std::map<uint32_t, Instruction>& reduce) {
    if (reduce.empty()) return;
    const uint32_t home = graph_.values()[loss_scale_.id].ipu;
    const LoweredTensor flag{.type = {program::v1::BOOL, {}}};
    std::optional<uint32_t> finite;  // on the loss scale's IPU
    for (const auto& [ipu, instruction] : reduce) {
      Instruction check;
      check.mutable_all_finite();
      *check.mutable_inputs() = instruction.outputs();
      uint32_t here = NewTensor(ipu, flag);
      check.add_outputs(here);
      At(ipu, Section::kReduce).push_back(std::move(check));
      if (ipu != home) {
        const uint32_t arrived = NewTensor(home, flag);
        AddMove(Section::kReduce, ipu, here, home, arrived);
        here = arrived;
      }
      if (finite) {
        Instruction both;
        both.mutable_binary()->set_operator_(program::v1::LOGICAL_AND);
        both.add_inputs(*finite);
        both.add_inputs(here);
        here = NewTensor(home, flag);
        both.add_outputs(here);
        At(home, Section::kReduce).push_back(std::move(both));
      }
      finite = here;
    }
    for (const auto& [ipu, instruction] : reduce) {
      uint32_t here = *finite;
      if (ipu != home) {
        here = NewTensor(ipu, flag);
        AddMove(Section::kReduce, home, *finite, ipu, here);
      }
      result_.ipus[ipu].update_condition = here;
    }
    Instruction adapt;
    const uint32_t scale = Place(loss_scale_.id, home);
    const uint32_t tracker =
        NewTensor(home, {.type = {program::v1::INT32, {}}, .variable = kGrowthTrackerName});
    for (uint32_t tensor : {scale, tracker, *finite}) adapt.add_inputs(tensor);
    for (uint32_t tensor : {scale, tracker}) adapt.add_outputs(tensor);
    adapt.mutable_update_loss_scale()->set_growth(spec_.automatic_loss_scale->growth);
    adapt.mutable_update_loss_scale()->set_backoff(spec_.automatic_loss_scale->backoff);
    adapt.mutable_update_loss_scale()->set_interval(spec_.automatic_loss_scale->interval);
    At(home, Section::kFinish).push_back(std::move(adapt));
  }

  // The optimiser's instruction for variable number `v`.
  Instruction MakeUpdate(size_t v, uint32_t gradient) {
    const Tensor id = graph_.variables()[v];
    const Value& variable = graph_.values()[id.id];
    const uint32_t ipu = variable.ipu, weights = Place(id.id, ipu);
    const auto parameters = static_cast<int64_t>(HyperParameters(spec_).size());
    Instruction update;
    update.add_inputs(weights);
    update.add_inputs(gradient);
    update.add_inputs(Shared(
        hyper_parameters_, ipu,
        {.type = {program::v1::FLOAT32, {parameters}}, .variable = HyperParametersName(ipu)}));
    update.add_inputs(LossScale(ipu));
    update.add_outputs(weights);
    const bool mean = spec_.reduction == GradientReduction::kMean;
    const float scale =
        mean ? 1.0f / static_cast<float>(uint64_t{spec_.accumulation} * options_.total_replicas)
             : 1.0f;
    std::vector<const char*> state;
    if (spec_.adam) {
      program::v1::Adam* adam = update.mutable_adam();
      adam->set_gradient_scale(scale);
      adam->set_decoupled_weight_decay(spec_.adam->decoupled_weight_decay);
      adam->set_maximize(spec_.adam->maximize);
      state = {"Accl1___", "Accl2___"};
      if (spec_.adam->amsgrad) state.push_back("AcclMax___");
    } else {
      program::v1::Sgd* sgd = update.mutable_sgd();
      sgd->set_gradient_scale(scale);
      sgd->set_nesterov(spec_.sgd.nesterov);
      sgd->set_maximize(spec_.sgd.maximize);
      if (spec_.sgd.momentum != 0) state = {"Accl___"};
    }
    if (state.empty()) return update;
    update.add_inputs(Shared(
        steps_, ipu, {.type = {program::v1::FLOAT32, {}}, .variable = OptimizerStepName(ipu)}));
    for (const char* prefix : state) {
      const uint32_t tensor = NewTensor(ipu, {.type = {program::v1::FLOAT32, variable.type.dims},
                                              .variable = absl::StrCat(prefix, variable.name)});
      update.add_inputs(tensor);
      update.add_outputs(tensor);
    }
    return update;
  }

  void CountStep(uint32_t ipu) {
    const uint32_t one = NewTensor(ipu, {.type = {program::v1::FLOAT32, {}}});
    Instruction fill, count;
    fill.mutable_fill()->set_value(1);
    fill.add_outputs(one);
    At(ipu, Section::kSetup).push_back(std::move(fill));
    count.mutable_binary()->set_operator_(program::v1::ADD);
    count.add_inputs(steps_.at(ipu));
    count.add_inputs(one);
    count.add_outputs(steps_.at(ipu));
    At(ipu, Section::kUpdate).push_back(std::move(count));
  }

  uint32_t LossScale(uint32_t ipu) {
    if (loss_scale_.valid()) return Fetch(loss_scale_.id, ipu);
    const auto found = unit_scales_.find(ipu);
    if (found != unit_scales_.end()) return found->second;
    const uint32_t index = NewTensor(ipu, {.type = {program::v1::FLOAT32, {}}});
    Instruction fill;
    fill.mutable_fill()->set_value(1);
    fill.add_outputs(index);
    At(ipu, Section::kSetup).push_back(std::move(fill));
    return unit_scales_[ipu] = index;
  }

  // A tensor that all updates on an IPU share.
  uint32_t Shared(std::map<uint32_t, uint32_t>& by_ipu, uint32_t ipu, LoweredTensor tensor) {
    const auto found = by_ipu.find(ipu);
    if (found != by_ipu.end()) return found->second;
    return by_ipu[ipu] = NewTensor(ipu, std::move(tensor));
  }

  uint32_t EmitAccumulation(uint32_t ipu, uint32_t gradient, const program::Dims& dims) {
    const uint32_t accumulator =
        NewTensor(ipu, {.type = {program::v1::FLOAT32, dims}, .wide_accumulator = true});
    Instruction clear;
    clear.mutable_fill();
    clear.add_outputs(accumulator);
    At(ipu, Section::kClear).push_back(std::move(clear));
    Instruction accumulate;
    accumulate.mutable_accumulate();
    accumulate.add_inputs(accumulator);
    accumulate.add_inputs(gradient);
    accumulate.add_outputs(accumulator);
    At(ipu, Section::kBody).push_back(std::move(accumulate));
    return accumulator;
  }

  Graph graph_;  // a copy: gradients are added to it
  const ProgramSpec& spec_;
  const CompileOptions& options_;
  LoweredProgram result_;
  std::set<size_t> needed_nodes_;
  std::set<uint32_t> results_;  // values that others than the nodes read
  std::set<uint32_t> needed_inputs_;
  std::map<std::pair<uint32_t, uint32_t>, Places> placed_;  // of (value, IPU)
  std::map<uint32_t, uint32_t> made_in_buffers_;            // of a value, the buffer
  std::map<uint32_t, std::vector<size_t>> gradients_of_;    // by value, variables' numbers
  std::vector<uint32_t> gradient_places_;                   // by the variable's number
  // By IPU.
  std::map<uint32_t, uint32_t> hyper_parameters_, steps_, unit_scales_;
  Tensor loss_scale_;  // a buffer of the graph, if there is one
};

}  // namespace

std::string HyperParametersName(uint32_t ipu) {
  return absl::StrCat("optimizer/hyperParameters/ipu", ipu);
}
std::string OptimizerStepName(uint32_t ipu) { return absl::StrCat("optimizer/step/ipu", ipu); }

std::vector<float> HyperParameters(const ProgramSpec& spec) {
  if (const auto& adam = spec.adam)
    return {adam->learning_rate, adam->weight_decay, adam->beta1, adam->beta2, adam->epsilon};
  const SgdOptions& sgd = spec.sgd;
  return {sgd.learning_rate, sgd.weight_decay, sgd.momentum, sgd.dampening};
}

absl::StatusOr<LoweredProgram> Lower(const Graph& graph, const ProgramSpec& spec,
                                     const CompileOptions& options) {
  return Lowering(graph, spec, options).Run();
}

}  // namespace vpod::compiler

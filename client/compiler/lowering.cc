#include "client/compiler/lowering.h"

#include <set>

#include "absl/strings/str_cat.h"
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
    std::vector<Tensor> gradients;
    if (spec_.loss.has_value()) gradients = graph_.Gradients(*spec_.loss, graph_.variables());
    VPOD_RETURN_IF_ERROR(graph_.status());
    for (const Value& value : graph_.values()) {
      if (value.ipu >= options_.ipus_per_replica) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the graph uses IPU ", value.ipu, " of a replica of ", options_.ipus_per_replica));
      }
    }
    FindNeeded(gradients);
    EmitInputs();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (needed_nodes_.contains(i)) EmitNode(graph_.nodes()[i]);
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
    for (Tensor gradient : gradients) pending.push_back(Root(gradient.id));
    if (spec_.loss.has_value()) {
      for (const auto& assignment : graph_.assignments())
        pending.push_back(Root(assignment.value.id));
    }
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

  uint32_t NewTensor(uint32_t ipu, LoweredTensor tensor) {
    LoweredIpu& lowered = result_.ipus[ipu];
    tensor.storage = lowered.num_storages++;
    lowered.tensors.push_back(std::move(tensor));
    return static_cast<uint32_t>(lowered.tensors.size() - 1);
  }

  // Where a value is on an IPU: the tensor in which it was made, and the same elements in the other
  // layout once somebody needed them so.
  struct Places {
    uint32_t index = ~0u;
    uint32_t converted = ~0u;
  };

  bool IsChannelsLast(uint32_t ipu, uint32_t tensor) const {
    return result_.ipus[ipu].tensors[tensor].channels_last;
  }

  // Whether the two layouts of a shape differ.
  static bool LayoutMatters(const program::TensorType& type) {
    if (type.rank() <= 2) return false;
    program::v1::Tensor tensor;
    tensor.mutable_dims()->Add(type.dims.begin(), type.dims.end());
    return !program::LiesAs(tensor, program::ChannelsLastStrides(type.dims));
  }

  // A tensor that is to hold a value on `ipu`.
  uint32_t Make(uint32_t id, uint32_t ipu, bool channels_last) {
    const Value& value = graph_.values()[id];
    const bool variable = value.origin == Origin::kVariable && ipu == value.ipu;
    const uint32_t index =
        NewTensor(ipu, {.type = value.type,
                        .variable = variable ? value.name : "",
                        .channels_last = channels_last && LayoutMatters(value.type)});
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
      const uint32_t source = RowMajor(root, ipu);
      const uint32_t storage = result_.ipus[ipu].tensors[source].storage;
      const uint32_t index = AddView(ipu, {.type = value.type, .storage = storage});
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

  uint32_t AddView(uint32_t ipu, LoweredTensor tensor) {
    result_.ipus[ipu].tensors.push_back(std::move(tensor));
    return static_cast<uint32_t>(result_.ipus[ipu].tensors.size() - 1);
  }

  // As Place, in the given layout.
  uint32_t PlaceAs(uint32_t id, uint32_t ipu, bool channels_last) {
    const uint32_t index = Place(id, ipu);
    const Value& value = graph_.values()[id];
    if (!LayoutMatters(value.type) || IsChannelsLast(ipu, index) == channels_last) return index;
    uint32_t& converted = placed_[{id, ipu}].converted;
    if (converted != ~0u) return converted;
    if (value.origin == Origin::kConstant) {
      // Equal elements lie in either layout.
      const uint32_t storage = result_.ipus[ipu].tensors[index].storage;
      converted =
          AddView(ipu, {.type = value.type, .storage = storage, .channels_last = channels_last});
      return converted;
    }
    converted = NewTensor(ipu, {.type = value.type, .channels_last = channels_last});
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
    const uint32_t target = Make(root, ipu, /*channels_last=*/false);
    program::v1::Move& move = result_.moves.emplace_back();
    move.set_from_ipu(value.ipu);
    move.set_from_tensor(source);
    move.set_to_ipu(ipu);
    move.set_to_tensor(target);
    Instruction send, receive;
    send.mutable_exchange()->set_exchange(static_cast<uint32_t>(result_.moves.size() - 1));
    receive = send;
    send.add_inputs(source);
    receive.add_outputs(target);
    At(value.ipu, Section::kBody).push_back(std::move(send));
    At(ipu, Section::kBody).push_back(std::move(receive));
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
      keeps_channels_last = IsChannelsLast(node.ipu, index);
    }
    for (int i = 0; i < instruction.outputs_size(); ++i) {
      const bool channels_last =
          layout(true, i) == program::Layout::kChannelsLast ||
          (layout(true, i) == program::Layout::kStrided && keeps_channels_last);
      instruction.set_outputs(i, Make(instruction.outputs(i), node.ipu, channels_last));
    }
    At(node.ipu, Section::kBody).push_back(std::move(instruction));
  }

  void EmitAssignments() {
    for (const auto& [buffer, assigned] : graph_.assignments()) {
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

  // Accumulates in the body; all-reduces and updates after it.
  void EmitUpdate(const std::vector<Tensor>& gradients) {
    std::map<uint32_t, Instruction> reduce;  // by IPU
    std::map<uint32_t, std::vector<Instruction>> updates;
    const bool mean = spec_.reduction == GradientReduction::kMean;
    for (size_t v = 0; v < gradients.size(); ++v) {
      const Value& variable = graph_.values()[graph_.variables()[v].id];
      const uint32_t ipu = variable.ipu;
      uint32_t gradient = Fetch(gradients[v].id, ipu);
      if (spec_.accumulation > 1) gradient = EmitAccumulation(ipu, gradient, variable.type.dims);
      const bool wide = result_.ipus[ipu].tensors[gradient].wide_accumulator;
      const uint32_t reduced = NewTensor(
          ipu,
          {{wide ? program::v1::FLOAT32 : variable.type.type, variable.type.dims}, false, "", 0});
      reduce[ipu].mutable_all_reduce()->set_operator_(program::v1::SUM);
      reduce[ipu].add_inputs(gradient);
      reduce[ipu].add_outputs(reduced);
      uint32_t update = reduced;
      if (wide && variable.type.type != program::v1::FLOAT32) {
        update = NewTensor(ipu, {variable.type, false, "", 0});
        Instruction cast;
        cast.mutable_cast()->set_type(variable.type.type);
        cast.add_inputs(reduced);
        cast.add_outputs(update);
        updates[ipu].push_back(std::move(cast));
      }
      Instruction instruction;
      const uint32_t weights = Place(graph_.variables()[v].id, ipu);
      for (uint32_t input : {weights, update, LearningRate(ipu)}) instruction.add_inputs(input);
      instruction.add_outputs(weights);
      if (spec_.sgd.momentum != 0) {
        const uint32_t velocity =
            NewTensor(ipu, {variable.type, false, absl::StrCat("Accl___", variable.name), 0});
        instruction.add_inputs(velocity);
        instruction.add_outputs(velocity);
      }
      program::v1::Sgd* sgd = instruction.mutable_sgd();
      sgd->set_momentum(spec_.sgd.momentum);
      sgd->set_dampening(spec_.sgd.dampening);
      sgd->set_weight_decay(spec_.sgd.weight_decay);
      sgd->set_nesterov(spec_.sgd.nesterov);
      sgd->set_gradient_scale(
          mean ? 1.0f / static_cast<float>(uint64_t{spec_.accumulation} * options_.total_replicas)
               : 1.0f);
      updates[ipu].push_back(std::move(instruction));
    }
    for (auto& [ipu, instruction] : reduce) {
      At(ipu, Section::kUpdate).push_back(std::move(instruction));
      for (Instruction& update : updates[ipu])
        At(ipu, Section::kUpdate).push_back(std::move(update));
    }
  }

  uint32_t EmitAccumulation(uint32_t ipu, uint32_t gradient, const program::Dims& dims) {
    const uint32_t accumulator = NewTensor(ipu, {{program::v1::FLOAT32, dims}, true, "", 0});
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

  uint32_t LearningRate(uint32_t ipu) {
    const auto found = learning_rates_.find(ipu);
    if (found != learning_rates_.end()) return found->second;
    const uint32_t index =
        NewTensor(ipu, {{program::v1::FLOAT32, {}}, false, LearningRateName(ipu), 0});
    learning_rates_[ipu] = index;
    return index;
  }

  Graph graph_;  // a copy: gradients are added to it
  const ProgramSpec& spec_;
  const CompileOptions& options_;
  LoweredProgram result_;
  std::set<size_t> needed_nodes_;
  std::set<uint32_t> needed_inputs_;
  std::map<std::pair<uint32_t, uint32_t>, Places> placed_;  // of (value, IPU)
  std::map<uint32_t, uint32_t> learning_rates_;
};

}  // namespace

std::string LearningRateName(uint32_t ipu) { return absl::StrCat("learningRate/ipu", ipu); }

absl::StatusOr<LoweredProgram> Lower(const Graph& graph, const ProgramSpec& spec,
                                     const CompileOptions& options) {
  return Lowering(graph, spec, options).Run();
}

}  // namespace vpod::compiler

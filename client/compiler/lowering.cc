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

  // Accumulates in the body; all-reduces and updates after it. Gradients that are reduced are
  // float32, so that the sum of many float16 gradients does not overflow before it is scaled.
  void EmitUpdate(const std::vector<Tensor>& gradients) {
    std::map<uint32_t, Instruction> reduce;  // by IPU
    std::map<uint32_t, std::vector<Instruction>> updates;
    for (size_t v = 0; v < gradients.size(); ++v) {
      const Value& variable = graph_.values()[graph_.variables()[v].id];
      const uint32_t ipu = variable.ipu;
      uint32_t gradient = Fetch(gradients[v].id, ipu);
      const graph::TensorType type{program::v1::FLOAT32, variable.type.dims};
      if (spec_.accumulation > 1) {
        gradient = EmitAccumulation(ipu, gradient, type.dims);
      } else if (variable.type.type != program::v1::FLOAT32) {
        Instruction cast;
        cast.mutable_cast()->set_type(type.type);
        cast.add_inputs(gradient);
        gradient = NewTensor(ipu, {type, false, "", 0});
        cast.add_outputs(gradient);
        At(ipu, Section::kReduce).push_back(std::move(cast));
      }
      const uint32_t reduced = NewTensor(ipu, {type, false, "", 0});
      reduce[ipu].mutable_all_reduce()->set_operator_(program::v1::SUM);
      reduce[ipu].add_inputs(gradient);
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
    update.add_inputs(
        Shared(hyper_parameters_, ipu,
               {{program::v1::FLOAT32, {parameters}}, false, HyperParametersName(ipu), 0}));
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
    update.add_inputs(
        Shared(steps_, ipu, {{program::v1::FLOAT32, {}}, false, OptimizerStepName(ipu), 0}));
    for (const char* prefix : state) {
      const uint32_t tensor = NewTensor(ipu, {{program::v1::FLOAT32, variable.type.dims},
                                              false,
                                              absl::StrCat(prefix, variable.name),
                                              0});
      update.add_inputs(tensor);
      update.add_outputs(tensor);
    }
    return update;
  }

  void CountStep(uint32_t ipu) {
    const uint32_t one = NewTensor(ipu, {{program::v1::FLOAT32, {}}, false, "", 0});
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
    const uint32_t index = NewTensor(ipu, {{program::v1::FLOAT32, {}}, false, "", 0});
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

  Graph graph_;  // a copy: gradients are added to it
  const ProgramSpec& spec_;
  const CompileOptions& options_;
  LoweredProgram result_;
  std::set<size_t> needed_nodes_;
  std::set<uint32_t> needed_inputs_;
  std::map<std::pair<uint32_t, uint32_t>, Places> placed_;  // of (value, IPU)
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

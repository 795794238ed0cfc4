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
    if (spec_.loss.has_value()) EmitUpdate(gradients);
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
    std::map<uint32_t, size_t> producer;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      program::ForEachTensor(graph_.nodes()[i].instruction,
                             [&](uint32_t id, program::Access access) {
                               if (program::Writes(access)) producer[id] = i;
                             });
    }
    std::set<uint32_t> seen;
    while (!pending.empty()) {
      const uint32_t id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      if (graph_.values()[id].origin == Origin::kInput) needed_inputs_.insert(id);
      const auto it = producer.find(id);
      if (it == producer.end() || !needed_nodes_.insert(it->second).second) continue;
      program::ForEachTensor(graph_.nodes()[it->second].instruction,
                             [&](uint32_t read, program::Access access) {
                               if (program::Reads(access)) pending.push_back(Root(read));
                             });
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

  // Index on `ipu` of a value that is there already or is made there now (variables at home,
  // constants anywhere).
  uint32_t Place(uint32_t id, uint32_t ipu) {
    const auto found = placed_.find({id, ipu});
    if (found != placed_.end()) return found->second;
    const Value& value = graph_.values()[id];
    uint32_t index;
    const uint32_t root = Root(id);
    if (root != id) {
      const uint32_t storage = result_.ipus[ipu].tensors[Place(root, ipu)].storage;
      result_.ipus[ipu].tensors.push_back({value.type, false, "", storage});
      index = static_cast<uint32_t>(result_.ipus[ipu].tensors.size() - 1);
    } else {
      const bool variable = value.origin == Origin::kVariable && ipu == value.ipu;
      index = NewTensor(ipu, {value.type, false, variable ? value.name : "", 0});
      if (value.origin == Origin::kConstant) {
        Instruction fill;
        fill.mutable_fill()->set_output(index);
        fill.mutable_fill()->set_value(value.constant);
        At(ipu, Section::kSetup).push_back(std::move(fill));
      }
    }
    placed_[{id, ipu}] = index;
    return index;
  }

  // As Place, for a value that is read: brings it over from its home when that is another IPU.
  uint32_t Fetch(uint32_t id, uint32_t ipu) {
    const uint32_t root = Root(id);
    const Value& value = graph_.values()[root];
    if (value.origin != Origin::kConstant && value.ipu != ipu && !placed_.contains({root, ipu})) {
      const uint32_t source = Place(root, value.ipu);
      const uint32_t target = Place(root, ipu);
      Instruction send, receive;
      send.mutable_send()->set_tensor(source);
      send.mutable_send()->set_to_ipu(ipu);
      send.mutable_send()->set_channel(next_channel_);
      receive.mutable_receive()->set_tensor(target);
      receive.mutable_receive()->set_from_ipu(value.ipu);
      receive.mutable_receive()->set_channel(next_channel_++);
      At(value.ipu, Section::kBody).push_back(std::move(send));
      At(ipu, Section::kBody).push_back(std::move(receive));
    }
    return Place(id, ipu);
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
      in.mutable_stream_in()->set_tensor(Place(input.id, value.ipu));
      At(value.ipu, Section::kBody).push_back(std::move(in));
    }
  }

  void EmitNode(const graph::Node& node) {
    Instruction instruction = node.instruction;
    program::RenumberTensors(instruction, [&](uint32_t id, program::Access access) {
      return program::Reads(access) ? Fetch(id, node.ipu) : Place(id, node.ipu);
    });
    At(node.ipu, Section::kBody).push_back(std::move(instruction));
  }

  void EmitOutputs() {
    for (const auto& output : graph_.outputs()) {
      const uint32_t ipu = graph_.values()[Root(output.value.id)].ipu;
      const uint32_t tensor = Fetch(output.value.id, ipu);
      Instruction out;
      out.mutable_stream_out()->set_tensor(tensor);
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
      program::v1::AllReduce* all_reduce = reduce[ipu].mutable_all_reduce();
      all_reduce->set_operator_(program::v1::SUM);
      all_reduce->add_inputs(gradient);
      all_reduce->add_outputs(reduced);
      uint32_t update = reduced;
      if (wide && variable.type.type != program::v1::FLOAT32) {
        update = NewTensor(ipu, {variable.type, false, "", 0});
        Instruction cast;
        cast.mutable_cast()->set_input(reduced);
        cast.mutable_cast()->set_output(update);
        updates[ipu].push_back(std::move(cast));
      }
      Instruction instruction;
      program::v1::Sgd* sgd = instruction.mutable_sgd();
      sgd->set_weights(Place(graph_.variables()[v].id, ipu));
      sgd->set_gradient(update);
      sgd->set_learning_rate(LearningRate(ipu));
      if (spec_.sgd.momentum != 0) {
        sgd->set_has_velocity(true);
        sgd->set_velocity(
            NewTensor(ipu, {variable.type, false, absl::StrCat("Accl___", variable.name), 0}));
      }
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
    clear.mutable_fill()->set_output(accumulator);
    At(ipu, Section::kClear).push_back(std::move(clear));
    Instruction accumulate;
    accumulate.mutable_accumulate()->set_gradient(gradient);
    accumulate.mutable_accumulate()->set_accumulator(accumulator);
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
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> placed_;  // (value, IPU) -> tensor
  std::map<uint32_t, uint32_t> learning_rates_;
  uint32_t next_channel_ = 0;
};

}  // namespace

std::string LearningRateName(uint32_t ipu) { return absl::StrCat("learningRate/ipu", ipu); }

absl::StatusOr<LoweredProgram> Lower(const Graph& graph, const ProgramSpec& spec,
                                     const CompileOptions& options) {
  return Lowering(graph, spec, options).Run();
}

}  // namespace vpod::compiler

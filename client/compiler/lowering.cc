#include "client/compiler/lowering.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/compiler/fusion.h"
#include "client/compiler/passes.h"
#include "client/compiler/placement.h"
#include "client/compiler/random_rounding.h"
#include "client/compiler/update.h"
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
  Lowering(const Graph& graph, const ProgramSpec& spec, const CompileOptions& options,
           PassDump& dump)
      : graph_(graph),
        spec_(spec),
        options_(options),
        dump_(dump),
        placement_(graph_, options.ipus_per_replica) {
    graph_.SetReplicas(options.total_replicas);
  }

  absl::StatusOr<LoweredProgram> Run() {
    const auto first_backward = static_cast<uint32_t>(graph_.values().size());
    const std::vector<Tensor> gradients = AddGradients();
    RandomRounding rounding(graph_, spec_, options_);
    VPOD_RETURN_IF_ERROR(graph_.status());
    VPOD_RETURN_IF_ERROR(CheckIpus());
    VPOD_RETURN_IF_ERROR(Done("gradients", Stage::kGraph, graph_.nodes()));
    std::vector<uint32_t> results = rounding.Values();
    const std::set<size_t> first_nodes = NodesFor(results);
    for (Tensor gradient : gradients) {
      if (gradient.valid()) results.push_back(placement_.Root(gradient.id));
    }
    FindNeeded(std::move(results));
    std::vector<graph::Node> nodes;
    for (size_t i : first_nodes) nodes.push_back(graph_.nodes()[i]);
    for (size_t i : needed_nodes_) {
      if (!first_nodes.contains(i)) nodes.push_back(graph_.nodes()[i]);
    }
    VPOD_RETURN_IF_ERROR(Done("needed", Stage::kGraph, nodes));
    if (options_.fusion && !rounding.enabled()) {
      nodes = Fuse(graph_, std::move(nodes), results_, first_backward);
      VPOD_RETURN_IF_ERROR(Done("fusion", Stage::kFused, nodes));
    }
    FindLastReaders(nodes);
    FindValuesMadeInBuffers(nodes);
    Update update(graph_, spec_, options_, gradients, loss_scale_, rounding, placement_);
    EmitInputs();
    for (size_t i = 0; i < nodes.size(); ++i) {
      EmitNode(nodes[i], i, rounding);
      for (uint32_t value : nodes[i].instruction.outputs()) update.Accumulate(value);
    }
    if (spec_.loss.has_value()) {
      EmitAssignments();
      update.Emit();
    }
    EmitOutputs();
    LoweredProgram program = placement_.Take();
    VPOD_RETURN_IF_ERROR(CheckStage("lowering", program));
    VPOD_RETURN_IF_ERROR(dump_.Add(spec_.name, "lowering", program));
    return program;
  }

 private:
  absl::Status Done(absl::string_view pass, Stage stage, const std::vector<graph::Node>& nodes) {
    VPOD_RETURN_IF_ERROR(CheckStage(pass, stage, nodes));
    return dump_.Add(spec_.name, pass, graph_, nodes);
  }

  absl::Status CheckIpus() const {
    const auto check = [&](const std::string& what, uint32_t ipu) {
      if (ipu < options_.ipus_per_replica) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          what, " is on IPU ", ipu, ", a replica has IPUs 0 to ", options_.ipus_per_replica - 1));
    };
    for (const Value& value : graph_.values()) {
      if (!value.name.empty())
        VPOD_RETURN_IF_ERROR(check(absl::StrCat("'", value.name, "'"), value.ipu));
    }
    for (const graph::Node& node : graph_.nodes())
      VPOD_RETURN_IF_ERROR(check(program::NameOf(graph_.origins().at(node.origin)), node.ipu));
    return absl::OkStatus();
  }

  // The gradients of the loss, if there is one, with respect to the variables.
  std::vector<Tensor> AddGradients() {
    if (!spec_.loss.has_value()) return {};
    if (spec_.loss_scale) {
      graph_.SetIpu(graph_.values()[spec_.loss->id].ipu);
      loss_scale_ = graph_.Buffer(kLossScaleName, {program::v1::FLOAT32, {}}, {*spec_.loss_scale});
    }
    return graph_.Gradients(*spec_.loss, graph_.variables(), loss_scale_);
  }

  // Finds the nodes that the results of the program need; the others are not computed.
  void FindNeeded(std::vector<uint32_t> results) {
    for (const auto& output : graph_.outputs()) results.push_back(placement_.Root(output.value.id));
    if (spec_.loss.has_value()) {
      for (const auto& assignment : graph_.assignments())
        results.push_back(placement_.Root(assignment.value.id));
    }
    results_.insert(results.begin(), results.end());
    std::set<size_t> stores;  // nodes without outputs: what they do is seen later
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Instruction& instruction = graph_.nodes()[i].instruction;
      if (!instruction.outputs().empty()) continue;
      stores.insert(i);
      for (uint32_t read : instruction.inputs()) results.push_back(placement_.Root(read));
    }
    needed_nodes_ = NodesFor(std::move(results));
    needed_nodes_.merge(stores);
  }

  // The nodes that make values, and all that these read. Notes the inputs among them.
  std::set<size_t> NodesFor(std::vector<uint32_t> pending) {
    std::map<uint32_t, size_t> producer;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (uint32_t id : graph_.nodes()[i].instruction.outputs()) producer[id] = i;
    }
    std::set<size_t> needed;
    std::set<uint32_t> seen;
    while (!pending.empty()) {
      const uint32_t id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      if (graph_.values()[id].origin == Origin::kInput) needed_inputs_.insert(id);
      const auto it = producer.find(id);
      if (it == producer.end() || !needed.insert(it->second).second) continue;
      for (uint32_t read : graph_.nodes()[it->second].instruction.inputs())
        pending.push_back(placement_.Root(read));
    }
    return needed;
  }

  void EmitInputs() {
    for (Tensor input : graph_.inputs()) {
      if (!needed_inputs_.contains(input.id)) continue;
      const Value& value = graph_.values()[input.id];
      placement_.SetOrigin(value.name);
      Instruction in;
      in.mutable_stream_in()->set_stream(
          placement_.AddStream(value.name, true, value.ipu, value.type));
      in.add_outputs(placement_.Place(input.id, value.ipu));
      placement_.Emit(value.ipu, Section::kBody, std::move(in));
    }
  }

  // The layouts that an op asks for. What takes any layout keeps that of its largest input, so that
  // chains of element-by-element ops after a convolution need no copies.
  void EmitNode(const graph::Node& node, size_t number, RandomRounding& rounding) {
    Instruction instruction = node.instruction;
    const program::OpDef& op = *program::FindOp(instruction.attributes_case());
    placement_.SetOrigin(graph_.origins().at(node.origin));
    if (op.view != nullptr && AddViewOf(node, op)) return;
    const auto layout = [&](bool output, int position) {
      return op.layout == nullptr ? program::Layout::kRowMajor
                                  : op.layout(node.instruction, {output, position});
    };
    bool keeps_channels_last = false;
    int64_t largest = 0;
    for (int i = 0; i < instruction.inputs_size(); ++i) {
      const uint32_t id = instruction.inputs(i);
      placement_.Bring(id, node.ipu);
      if (layout(false, i) != program::Layout::kStrided) {
        const bool channels_last = layout(false, i) == program::Layout::kChannelsLast;
        instruction.set_inputs(i, placement_.PlaceAs(id, node.ipu, channels_last));
        continue;
      }
      const uint32_t index = placement_.Place(id, node.ipu);
      instruction.set_inputs(i, index);
      const program::TensorType& type = graph_.values()[id].type;
      const bool same_in_both = graph_.values()[id].origin == Origin::kConstant;
      if (same_in_both || type.elements() <= largest) continue;
      largest = type.elements();
      keeps_channels_last = placement_.HasChannelsInnermost(node.ipu, index);
    }
    if (op.updates && MayUpdateInPlace(node, number, instruction)) {
      // Both by a new name: the tensor that is updated may have been made under another.
      const LoweredTensor updated = placement_.TensorAt(node.ipu, instruction.inputs(0));
      const uint32_t place = placement_.AddView(node.ipu, updated);
      instruction.set_inputs(0, place);
      instruction.set_outputs(0, place);
      placement_.SetPlace(node.instruction.outputs(0), node.ipu, place);
    } else {
      for (int i = 0; i < instruction.outputs_size(); ++i) {
        const bool channels_last =
            layout(true, i) == program::Layout::kChannelsLast ||
            (layout(true, i) == program::Layout::kStrided && keeps_channels_last);
        instruction.set_outputs(i, MakeOutput(instruction.outputs(i), node.ipu, channels_last));
      }
    }
    // The first value that it makes has a number of its own in the graph.
    if (op.rounds)
      rounding.Apply(node.instruction.outputs(0), node.ipu, Section::kBody, placement_,
                     instruction);
    placement_.Emit(node.ipu, Section::kBody, std::move(instruction));
  }

  uint32_t MakeOutput(uint32_t id, uint32_t ipu, bool channels_last) {
    const auto buffer = made_in_buffers_.find(id);
    if (buffer == made_in_buffers_.end()) return placement_.Make(id, ipu, channels_last);
    const uint32_t index = placement_.Place(buffer->second, ipu);
    placement_.SetPlace(id, ipu, index);
    return index;
  }

  // Makes the output of a node a view of its input. False for a buffer, whose value may change
  // before the view is read.
  bool AddViewOf(const graph::Node& node, const program::OpDef& op) {
    const uint32_t input = node.instruction.inputs(0), output = node.instruction.outputs(0);
    for (Tensor buffer : graph_.buffers()) {
      if (placement_.Root(input) == buffer.id) return false;
    }
    if (graph_.values()[output].type.empty()) {
      placement_.Make(output, node.ipu, /*channels_last=*/false);
      return true;
    }
    placement_.Bring(input, node.ipu);
    const LoweredTensor source = placement_.TensorAt(node.ipu, placement_.Place(input, node.ipu));
    program::View view = op.view(node.instruction, source.type, source.strides);
    const uint64_t skipped = static_cast<uint64_t>(view.offset) * program::SizeOf(source.type.type);
    placement_.SetPlace(output, node.ipu,
                        placement_.AddView(node.ipu, {.type = graph_.values()[output].type,
                                                      .storage = source.storage,
                                                      .offset = source.offset + skipped,
                                                      .strides = std::move(view.strides)}));
    return true;
  }

  // Whether nobody needs what the first input of a node holds after it, so that the output takes
  // its place. `lowered` has the node's tensors.
  bool MayUpdateInPlace(const graph::Node& node, size_t number, const Instruction& lowered) const {
    if (made_in_buffers_.contains(node.instruction.outputs(0))) return false;
    const uint32_t updated = lowered.inputs(0);
    const uint32_t storage = placement_.TensorAt(node.ipu, updated).storage;
    if (!placement_.IsDense(node.ipu, updated)) return false;
    for (int i = 1; i < lowered.inputs_size(); ++i) {
      if (placement_.TensorAt(node.ipu, lowered.inputs(i)).storage == storage) return false;
    }
    const std::vector<uint32_t> values = placement_.ValuesIn(node.ipu, storage);
    return std::all_of(values.begin(), values.end(), [&](uint32_t value) {
      const uint32_t root = placement_.Root(value);
      const auto reader = last_readers_.find(root);
      return graph_.values()[root].origin == Origin::kOperation && !results_.contains(root) &&
             (reader == last_readers_.end() || reader->second <= number);
    });
  }

  // The number of the last node that reads a value, in whatever shape.
  void FindLastReaders(const std::vector<graph::Node>& nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (uint32_t id : nodes[i].instruction.inputs()) last_readers_[placement_.Root(id)] = i;
    }
  }

  // A value that is only assigned to a buffer is made there, if nobody reads the buffer later.
  void FindValuesMadeInBuffers(const std::vector<graph::Node>& nodes) {
    if (!spec_.loss.has_value()) return;
    std::map<uint32_t, size_t> producers;  // by value
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (uint32_t id : nodes[i].instruction.outputs()) producers[id] = i;
    }
    std::set<uint32_t> sent;
    for (const auto& output : graph_.outputs()) sent.insert(placement_.Root(output.value.id));
    for (const auto& [buffer, value] : graph_.assignments()) {
      const auto producer = producers.find(value.id);
      if (producer == producers.end() || last_readers_.contains(value.id) ||
          sent.contains(value.id) || sent.contains(buffer.id))
        continue;
      const graph::Node& node = nodes[producer->second];
      const auto reader = last_readers_.find(buffer.id);
      const bool free = reader == last_readers_.end() || reader->second <= producer->second;
      if (free && WritesOverItsInput(node, buffer.id) && node.ipu == graph_.values()[buffer.id].ipu)
        made_in_buffers_[value.id] = buffer.id;
    }
  }

  // Whether the output may lie over a buffer that the node itself may read.
  bool WritesOverItsInput(const graph::Node& node, uint32_t buffer) const {
    const program::OpDef& op = *program::FindOp(node.instruction.attributes_case());
    if (op.elementwise || node.instruction.has_map()) return true;
    // Buffers are row-major.
    if (op.layout != nullptr &&
        op.layout(node.instruction, {true, 0}) == program::Layout::kChannelsLast)
      return false;
    const auto& inputs = node.instruction.inputs();
    return op.updates && std::none_of(inputs.begin() + 1, inputs.end(),
                                      [&](uint32_t id) { return placement_.Root(id) == buffer; });
  }

  void EmitAssignments() {
    for (const auto& [buffer, assigned] : graph_.assignments()) {
      if (made_in_buffers_.contains(assigned.id)) continue;
      const uint32_t ipu = graph_.values()[buffer.id].ipu;
      placement_.SetOrigin(graph_.values()[buffer.id].name);
      Instruction copy;
      copy.mutable_copy();
      copy.add_inputs(placement_.Fetch(assigned.id, ipu));
      copy.add_outputs(placement_.Place(buffer.id, ipu));
      placement_.Emit(ipu, Section::kBody, std::move(copy));
    }
  }

  void EmitOutputs() {
    for (const auto& output : graph_.outputs()) {
      const uint32_t ipu = graph_.values()[placement_.Root(output.value.id)].ipu;
      placement_.SetOrigin(output.name);
      const uint32_t tensor = placement_.Fetch(output.value.id, ipu);
      Instruction out;
      out.add_inputs(tensor);
      out.mutable_stream_out()->set_stream(
          placement_.AddStream(output.name, false, ipu, graph_.TypeOf(output.value)));
      placement_.Emit(ipu, Section::kBody, std::move(out));
    }
  }

  Graph graph_;  // a copy: gradients are added to it
  const ProgramSpec& spec_;
  const CompileOptions& options_;
  PassDump& dump_;
  Placement placement_;
  std::set<size_t> needed_nodes_;
  std::set<uint32_t> results_;  // values that others than the nodes read
  std::set<uint32_t> needed_inputs_;
  std::map<uint32_t, size_t> last_readers_;       // by value, nodes by their numbers
  std::map<uint32_t, uint32_t> made_in_buffers_;  // of a value, the buffer
  Tensor loss_scale_;                             // a buffer of the graph, if there is one
};

}  // namespace

absl::StatusOr<LoweredProgram> Lower(const Graph& graph, const ProgramSpec& spec,
                                     const CompileOptions& options, PassDump& dump) {
  return Lowering(graph, spec, options, dump).Run();
}

}  // namespace vpod::compiler

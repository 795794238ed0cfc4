#include "client/compiler/lowering.h"

#include <optional>

#include "client/compiler/backward.h"
#include "client/compiler/dead_code.h"
#include "client/compiler/fusion.h"
#include "client/compiler/in_place.h"
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
using program::Form;
using program::v1::Instruction;

class Lowering {
 public:
  Lowering(const Graph& graph, const ProgramSpec& spec, const CompileOptions& options,
           PassDump& dump)
      : graph_(graph),
        spec_(spec),
        trains_(spec.loss.has_value()),
        options_(options),
        dump_(dump),
        placement_(graph_, options.ipus_per_replica, options.rounding != Rounding::kNearest) {
    graph_.SetReplicas(options.total_replicas);
  }

  absl::StatusOr<LoweredProgram> Run() {
    const auto first_backward = static_cast<uint32_t>(graph_.values().size());
    const LossGradients gradients = AddLossGradients(graph_, spec_);
    RandomRounding rounding(graph_, spec_, options_);
    VPOD_RETURN_IF_ERROR(graph_.status());
    VPOD_RETURN_IF_ERROR(Done("gradients", Form::kGraph, graph_.nodes()));

    std::vector<uint32_t> results;
    for (const auto& of_variable : gradients.of_variables) {
      for (Tensor gradient : of_variable) results.push_back(gradient.id);
    }
    LiveCode live = FindLiveCode(graph_, trains_, rounding.Values(), std::move(results));
    VPOD_RETURN_IF_ERROR(Done("dead-code", Form::kGraph, live.nodes));

    if (options_.fusion && !rounding.enabled()) {
      live.nodes = Fuse(graph_, std::move(live.nodes), live.results, first_backward);
      VPOD_RETURN_IF_ERROR(Done("fusion", Form::kFused, live.nodes));
    }
    LoweredProgram program = Emit(live, gradients, rounding);
    VPOD_RETURN_IF_ERROR(CheckForm("lowering", program));
    VPOD_RETURN_IF_ERROR(dump_.Add(spec_.name, "lowering", program));
    return program;
  }

 private:
  absl::Status Done(absl::string_view pass, program::Form form,
                    const std::vector<graph::Node>& nodes) {
    VPOD_RETURN_IF_ERROR(CheckForm(pass, form, nodes));
    return dump_.Add(spec_.name, pass, graph_, nodes);
  }

  LoweredProgram Emit(const LiveCode& live, const LossGradients& gradients,
                      RandomRounding& rounding) {
    const InPlace in_place(graph_, live.nodes, live.results, trains_, placement_);
    Update update(graph_, spec_, options_, live.nodes, gradients, rounding, placement_);
    EmitInputs(live);
    for (size_t i = 0; i < live.nodes.size(); ++i) {
      EmitNode(live.nodes[i], i, in_place, rounding);
      update.AfterNode(i);
    }
    EmitOutputs();  // before assignments: an output of a buffer has the value before
    if (trains_) {
      EmitAssignments(in_place);
      update.Emit();
    }
    return placement_.Take();
  }

  void EmitInputs(const LiveCode& live) {
    for (Tensor input : graph_.inputs()) {
      if (!live.inputs.contains(input.id)) continue;
      const Value& value = graph_.values()[input.id];
      placement_.SetOrigin(value.name, program::v1::Origin::FORWARD, value.stage);
      Instruction in;
      in.mutable_stream_in()->set_stream(
          placement_.AddStream(value.name, true, value.ipu, value.type));
      in.add_outputs(placement_.Place(input.id, value.ipu));
      placement_.Emit(value.ipu, Section::kBody, std::move(in));
    }
  }

  // The layouts that an op asks for. An op that takes any layout keeps that of its largest input,
  // so that chains of element-by-element ops after a convolution need no copies.
  void EmitNode(const graph::Node& node, size_t number, const InPlace& in_place,
                RandomRounding& rounding) {
    Instruction instruction = node.instruction;
    const program::OpDef& op = *program::FindOp(instruction.attributes_case());
    placement_.SetOrigin(graph_.origins().at(node.origin));
    if (op.view != nullptr && AddViewOf(node, op)) return;
    const auto layout = [&](bool output, int position) {
      return op.layout == nullptr ? program::Layout::kRowMajor
                                  : op.layout(node.instruction, {output, position});
    };
    Order like_largest = Order::kRowMajor;
    int64_t largest = 0;
    for (int i = 0; i < instruction.inputs_size(); ++i) {
      const uint32_t id = instruction.inputs(i);
      placement_.Bring(id, node.ipu);
      const uint32_t index = placement_.Place(id, node.ipu);
      instruction.set_inputs(i, index);
      if (layout(false, i) != program::Layout::kStrided) {
        const Order order = OrderFor(
            layout(false, i), placement_.OrderOf(node.ipu, index).value_or(Order::kRowMajor));
        instruction.set_inputs(i, placement_.PlaceAs(id, node.ipu, order));
        continue;
      }
      const program::TensorType& type = graph_.values()[id].type;
      const bool same_in_both = graph_.values()[id].origin == Origin::kConstant;
      if (same_in_both || type.elements() <= largest) continue;
      largest = type.elements();
      like_largest = placement_.OrderLike(node.ipu, index);
    }
    if (op.updates && in_place.MayUpdate(node, number, instruction)) {
      // Both by a new name: the tensor that is updated may have been made under another.
      const LoweredTensor updated = placement_.TensorAt(node.ipu, instruction.inputs(0));
      const uint32_t place = placement_.AddView(node.ipu, updated);
      instruction.set_inputs(0, place);
      instruction.set_outputs(0, place);
      placement_.SetPlace(node.instruction.outputs(0), node.ipu, place);
    } else {
      for (int i = 0; i < instruction.outputs_size(); ++i) {
        const Order order = layout(true, i) == program::Layout::kStrided
                                ? like_largest
                                : OrderFor(layout(true, i), /*dense=*/Order::kOutputsLast);
        instruction.set_outputs(i, MakeOutput(instruction.outputs(i), node.ipu, order, in_place));
      }
    }
    // The first value that it makes has a number of its own in the graph.
    if (op.rounds)
      rounding.Apply(node.instruction.outputs(0), node.ipu, Section::kBody, placement_,
                     instruction);
    placement_.Emit(node.ipu, Section::kBody, std::move(instruction));
  }

  // The order that an op asks for; `dense` if any order is right.
  static Order OrderFor(program::Layout layout, Order dense) {
    if (layout == program::Layout::kDense) return dense;
    return layout == program::Layout::kChannelsLast ? Order::kChannelsLast : Order::kRowMajor;
  }

  uint32_t MakeOutput(uint32_t id, uint32_t ipu, Order order, const InPlace& in_place) {
    const std::optional<uint32_t> buffer = in_place.BufferOf(id);
    if (!buffer) return placement_.Make(id, ipu, order);
    const uint32_t index = placement_.Place(*buffer, ipu);
    placement_.SetPlace(id, ipu, index);
    return index;
  }

  // Makes the output of a node a view of its input. False for a buffer, whose value may change
  // before the view is read.
  bool AddViewOf(const graph::Node& node, const program::OpDef& op) {
    const uint32_t input = node.instruction.inputs(0), output = node.instruction.outputs(0);
    for (Tensor buffer : graph_.buffers()) {
      if (graph_.RootOf(input) == buffer.id) return false;
    }
    if (graph_.values()[output].type.empty()) {
      placement_.Make(output, node.ipu, Order::kRowMajor);
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

  // All at once: a buffer that is assigned to another one gives its value before.
  void EmitAssignments(const InPlace& in_place) {
    struct Source {
      graph::Assignment assignment;
      uint32_t tensor;
    };
    std::vector<Source> sources;
    for (const graph::Assignment& assignment : graph_.assignments()) {
      if (in_place.BufferOf(assignment.value.id)) continue;
      const Value& buffer = graph_.values()[assignment.buffer.id];
      placement_.SetOrigin(buffer.name, program::v1::Origin::FORWARD, buffer.stage);
      uint32_t tensor = placement_.Fetch(assignment.value.id, buffer.ipu);
      const Value& value = graph_.values()[graph_.RootOf(assignment.value.id)];
      if (value.origin == Origin::kVariable && value.ipu == buffer.ipu) {
        const uint32_t kept = placement_.NewTensor(buffer.ipu, {.type = buffer.type});
        EmitCopy(buffer.ipu, tensor, kept);
        tensor = kept;
      }
      sources.push_back({assignment, tensor});
    }
    for (const auto& [assignment, tensor] : sources) {
      const Value& buffer = graph_.values()[assignment.buffer.id];
      placement_.SetOrigin(buffer.name, program::v1::Origin::FORWARD, buffer.stage);
      EmitCopy(buffer.ipu, tensor, placement_.Place(assignment.buffer.id, buffer.ipu));
    }
  }

  void EmitCopy(uint32_t ipu, uint32_t from, uint32_t to) {
    Instruction copy;
    copy.mutable_copy();
    copy.add_inputs(from);
    copy.add_outputs(to);
    placement_.Emit(ipu, Section::kBody, std::move(copy));
  }

  void EmitOutputs() {
    for (const auto& output : graph_.outputs()) {
      const Value& value = graph_.values()[graph_.RootOf(output.value.id)];
      const uint32_t ipu = value.ipu;
      placement_.SetOrigin(output.name, program::v1::Origin::FORWARD, value.stage);
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
  const bool trains_;
  const CompileOptions& options_;
  PassDump& dump_;
  Placement placement_;
};

}  // namespace

program::v1::Tensor Describe(const LoweredTensor& tensor, uint64_t offset) {
  program::v1::Tensor entry;
  entry.set_type(tensor.type.type);
  entry.mutable_dims()->Add(tensor.type.dims.begin(), tensor.type.dims.end());
  entry.set_offset(offset);
  entry.set_wide_accumulator(tensor.wide_accumulator);
  if (!program::LiesAs(entry, tensor.strides))
    entry.mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
  return entry;
}

absl::StatusOr<LoweredProgram> Lower(const Graph& graph, const ProgramSpec& spec,
                                     const CompileOptions& options, PassDump& dump) {
  return Lowering(graph, spec, options, dump).Run();
}

}  // namespace vpod::compiler

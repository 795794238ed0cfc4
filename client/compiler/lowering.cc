#include "client/compiler/lowering.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "client/compiler/in_place.h"
#include "client/compiler/placement.h"
#include "client/compiler/random_rounding.h"
#include "client/compiler/update.h"
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
  explicit Lowering(const GraphProgram& program)
      : program_(program),
        graph_(program.graph),
        placement_(program),
        rounding_(program, placement_),
        in_place_(program, placement_) {}

  LoweredProgram Run() {
    Update update(program_, rounding_, placement_);
    EmitInputs();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      EmitNode(graph_.nodes()[i], i);
      update.AfterNode(i);
    }
    EmitOutputs();  // before assignments: an output of a buffer has the value before
    EmitAssignments();
    if (program_.trains()) update.Emit();
    LoweredProgram lowered = placement_.Take();
    lowered.name = program_.spec.name;
    lowered.device_iterations = program_.spec.device_iterations;
    lowered.accumulation = program_.spec.accumulation;
    lowered.output_period = program_.spec.output_period;
    return lowered;
  }

 private:
  // Leaves out inputs that nothing reads.
  void EmitInputs() {
    std::set<uint32_t> read = ResultsOf(program_);
    for (const graph::Node& node : graph_.nodes()) {
      for (uint32_t id : node.instruction.inputs()) read.insert(graph_.RootOf(id));
    }
    for (Tensor input : graph_.inputs()) {
      if (!read.contains(input.id)) continue;
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
  void EmitNode(const graph::Node& node, size_t number) {
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
      const bool any_order = graph_.values()[id].origin == Origin::kConstant &&
                             graph_.values()[id].elements == nullptr;
      if (any_order || type.elements() <= largest) continue;
      largest = type.elements();
      like_largest = placement_.OrderLike(node.ipu, index);
    }
    if (op.updates && in_place_.MayUpdate(node, number, instruction)) {
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
        instruction.set_outputs(i, MakeOutput(instruction.outputs(i), node.ipu, order));
      }
    }
    // The first value that it makes has a number of its own in the graph; computed again, it is
    // rounded as before.
    if (op.rounds) {
      const uint32_t value = node.instruction.outputs(0);
      const auto original = program_.recomputed.find(value);
      rounding_.Apply(original == program_.recomputed.end() ? value : original->second, node.ipu,
                      Section::kBody, instruction);
    }
    placement_.Emit(node.ipu, Section::kBody, std::move(instruction));
  }

  // The order that an op asks for; `dense` if any order is right.
  static Order OrderFor(program::Layout layout, Order dense) {
    if (layout == program::Layout::kDense) return dense;
    return layout == program::Layout::kChannelsLast ? Order::kChannelsLast : Order::kRowMajor;
  }

  uint32_t MakeOutput(uint32_t id, uint32_t ipu, Order order) {
    const std::optional<uint32_t> buffer = in_place_.BufferOf(id);
    if (!buffer) return placement_.Make(id, ipu, order);
    const uint32_t index = placement_.Place(*buffer, ipu);
    placement_.SetPlace(id, ipu, index);
    return index;
  }

  // Makes the output of a node a view of its input. False for a buffer or a variable that is
  // assigned, whose value may change before the view is read.
  bool AddViewOf(const graph::Node& node, const program::OpDef& op) {
    const uint32_t input = node.instruction.inputs(0), output = node.instruction.outputs(0);
    for (Tensor buffer : graph_.buffers()) {
      if (graph_.RootOf(input) == buffer.id) return false;
    }
    for (const graph::Assignment& assignment : graph_.assignments()) {
      if (graph_.RootOf(input) == assignment.variable.id) return false;
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

  // All at once: a variable that is assigned to another one gives its value before.
  void EmitAssignments() {
    struct Source {
      graph::Assignment assignment;
      uint32_t tensor;
    };
    std::vector<Source> sources;
    for (const graph::Assignment& assignment : graph_.assignments()) {
      if (in_place_.BufferOf(assignment.value.id)) continue;
      const Value& variable = graph_.values()[assignment.variable.id];
      placement_.SetOrigin(variable.name, program::v1::Origin::FORWARD, variable.stage);
      uint32_t tensor = placement_.Fetch(assignment.value.id, variable.ipu);
      const Value& value = graph_.values()[graph_.RootOf(assignment.value.id)];
      if (value.origin == Origin::kVariable && value.ipu == variable.ipu) {
        const uint32_t kept = placement_.NewTensor(variable.ipu, {.type = variable.type});
        EmitCopy(variable.ipu, tensor, kept);
        tensor = kept;
      }
      sources.push_back({assignment, tensor});
    }
    for (const auto& [assignment, tensor] : sources) {
      const Value& variable = graph_.values()[assignment.variable.id];
      placement_.SetOrigin(variable.name, program::v1::Origin::FORWARD, variable.stage);
      EmitCopy(variable.ipu, tensor, placement_.Place(assignment.variable.id, variable.ipu));
    }
  }

  void EmitCopy(uint32_t ipu, uint32_t from, uint32_t to) {
    Instruction copy;
    copy.mutable_copy();
    copy.add_inputs(from);
    copy.add_outputs(to);
    placement_.Emit(ipu, Section::kBody, std::move(copy));
  }

  // The stage of the operation that makes a gradient: its value has none of its own.
  uint32_t StageOfMaker(uint32_t gradient) const {
    for (const graph::Node& node : graph_.nodes()) {
      const auto& made = node.instruction.outputs();
      if (std::find(made.begin(), made.end(), gradient) != made.end())
        return graph_.origins().at(node.origin).stage();
    }
    return graph_.values()[gradient].stage;  // a constant
  }

  void EmitOutputs() {
    for (const auto& output : graph_.outputs()) {
      const Value& value = graph_.values()[graph_.RootOf(output.value.id)];
      const uint32_t ipu = value.ipu;
      const uint32_t root = graph_.RootOf(output.value.id);
      if (root < program_.first_backward) {
        placement_.SetOrigin(output.name, program::v1::Origin::FORWARD, value.stage);
      } else {
        placement_.SetOrigin(output.name, program::v1::Origin::BACKWARD, StageOfMaker(root));
      }
      const graph::TensorType& type = graph_.TypeOf(output.value);
      const OutputMode mode = OutputModeOf(program_.spec, output.name);
      uint32_t tensor = placement_.Fetch(output.value.id, ipu);
      Section section = Section::kBody;
      if (mode == OutputMode::kFinal || mode == OutputMode::kSum) {
        tensor = Collect(ipu, tensor, type, mode);
        section = Section::kEnd;
      }
      Instruction out;
      out.add_inputs(tensor);
      out.mutable_stream_out()->set_stream(
          placement_.AddStream(output.name, false, ipu, type, mode == OutputMode::kEveryN));
      placement_.Emit(ipu, section, std::move(out));
    }
  }

  // The last value that a tensor has in a run, or the sum of all.
  uint32_t Collect(uint32_t ipu, uint32_t tensor, const graph::TensorType& type, OutputMode mode) {
    const uint32_t collected = placement_.NewTensor(ipu, {.type = type});
    Instruction clear;
    clear.mutable_fill();
    clear.add_outputs(collected);
    placement_.Emit(ipu, Section::kSetup, std::move(clear));
    if (mode == OutputMode::kFinal) {
      EmitCopy(ipu, tensor, collected);
      return collected;
    }
    Instruction add;
    add.mutable_binary()->set_operator_(program::v1::ADD);
    add.add_inputs(collected);
    add.add_inputs(tensor);
    add.add_outputs(collected);
    placement_.Emit(ipu, Section::kBody, std::move(add));
    return collected;
  }

  const GraphProgram& program_;
  const Graph& graph_;
  Placement placement_;
  RandomRounding rounding_;
  const InPlace in_place_;
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

std::vector<uint32_t> TensorsOf(const Instruction& instruction) {
  std::vector<uint32_t> tensors(instruction.inputs().begin(), instruction.inputs().end());
  tensors.insert(tensors.end(), instruction.outputs().begin(), instruction.outputs().end());
  if (instruction.has_rounding()) {
    tensors.push_back(instruction.rounding().seed());
    tensors.push_back(instruction.rounding().counter());
  }
  return tensors;
}

LoweredProgram Lower(const GraphProgram& program) { return Lowering(program).Run(); }

}  // namespace vpod::compiler

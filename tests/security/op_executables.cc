#include "tests/security/op_executables.h"

#include <string>
#include <utility>

#include "device/program/op.h"

namespace vpod::testing {

namespace v1 = program::v1;
using program::TensorType;

namespace {

// The function, stream and remote buffer that an instruction refers to: number 0 of each.
void AddSurroundings(v1::Executable& executable, const v1::Instruction& instruction) {
  v1::Ipu& ipu = *executable.mutable_ipus(0);
  if (program::FindOp(instruction.attributes_case())->role == program::Role::kControl) {
    v1::Instruction& fill = *ipu.add_functions()->add_instructions();
    fill.mutable_fill();
    fill.add_outputs(AddTensor({v1::FLOAT32, {2}}, ipu));
  }
  if (instruction.has_remote_load() || instruction.has_remote_store()) {
    v1::RemoteBuffer& buffer = *ipu.add_remote_buffers();
    buffer.set_name("rows");
    buffer.set_type(v1::FLOAT32);
    buffer.add_dims(8);
    buffer.set_rows(2);
  }
  if (program::StreamOf(instruction).has_value()) {
    v1::Stream& entry = *executable.add_streams();
    entry.set_name("data");
    entry.set_to_device(instruction.has_stream_in());
    entry.set_type(v1::FLOAT32);
    entry.add_dims(8);
    entry.set_transfers_per_run(1);
  }
}

// Stores images with the channels innermost where the op wants them so, and weights as the compiler
// does.
void StoreAsAsked(const v1::Instruction& instruction, const program::OpDef& def, v1::Ipu& ipu) {
  const auto store = [&](bool output, int position, uint32_t index) {
    v1::Tensor& tensor = *ipu.mutable_tensors(static_cast<int>(index));
    const program::Layout layout = def.layout(instruction, {output, position});
    const program::Dims dims = program::TypeOf(tensor).dims;
    const program::Dims strides =
        layout == program::Layout::kChannelsLast ? program::ChannelsLastStrides(dims)
        : layout == program::Layout::kDense      ? program::OutputsLastStrides(dims)
                                                 : program::RowMajorStrides(dims);
    if (strides == program::RowMajorStrides(dims) || tensor.strides_size() > 0) return;
    tensor.mutable_strides()->Add(strides.begin(), strides.end());
  };
  for (int i = 0; i < instruction.inputs_size(); ++i) store(false, i, instruction.inputs(i));
  for (int i = 0; i < instruction.outputs_size(); ++i) store(true, i, instruction.outputs(i));
}

}  // namespace

uint32_t AddTensor(const TensorType& type, v1::Ipu& ipu, bool wide_accumulator) {
  v1::Tensor& tensor = *ipu.add_tensors();
  tensor.set_wide_accumulator(wide_accumulator);
  tensor.set_type(type.type);
  tensor.mutable_dims()->Add(type.dims.begin(), type.dims.end());
  tensor.set_offset(ipu.arena_bytes());
  ipu.set_arena_bytes(ipu.arena_bytes() + (program::ArenaBytes(tensor) + 63) / 64 * 64);
  return static_cast<uint32_t>(ipu.tensors_size() - 1);
}

v1::Executable ExecutableOf(const SmallOp& op) {
  v1::Executable executable;
  executable.set_ipus_per_replica(1);
  v1::Ipu& ipu = *executable.add_ipus();
  v1::Instruction instruction = Attributes(op);
  const program::OpDef& def = *program::FindOp(instruction.attributes_case());
  program::Types outputs = op.outputs;
  if (def.infer != nullptr) outputs = *program::InferTypes(instruction, op.inputs);
  for (const TensorType& type : op.inputs) {
    const bool accumulator = instruction.has_accumulate() && instruction.inputs().empty();
    instruction.add_inputs(AddTensor(type, ipu, accumulator));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    uint32_t tensor = ~0u;
    for (const program::InPlace& pair : def.in_place) {
      if (pair.output == static_cast<int>(i)) tensor = instruction.inputs(pair.input);
    }
    instruction.add_outputs(tensor != ~0u ? tensor : AddTensor(outputs[i], ipu));
  }
  AddSurroundings(executable, instruction);
  if (def.layout != nullptr) StoreAsAsked(instruction, def, ipu);
  for (int i = 0; i < ipu.tensors_size(); ++i) {
    if (ipu.tensors(i).wide_accumulator() || !program::IsDense(ipu.tensors(i))) continue;
    v1::Variable& variable = *executable.add_variables();
    variable.set_name("v" + std::to_string(i));
    variable.set_tensor(static_cast<uint32_t>(i));
  }
  *ipu.add_functions()->add_instructions() = std::move(instruction);
  v1::Program& program = *executable.add_programs();
  program.set_name("main");
  program.add_functions(static_cast<uint32_t>(ipu.functions_size() - 1));
  return executable;
}

}  // namespace vpod::testing

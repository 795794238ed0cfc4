#include "tools/device_check/program_builder.h"

#include "device/base/status.h"
#include "device/program/executable.h"

namespace vpod::tools {

namespace v1 = program::v1;

Steps::Steps(v1::Ipu* ipu) : ipu_(ipu), function_(static_cast<uint32_t>(ipu->functions_size())) {
  ipu->add_functions();
}

v1::Instruction* Steps::Add(const std::vector<uint32_t>& inputs,
                            const std::vector<uint32_t>& outputs) {
  v1::Instruction* step = ipu_->mutable_functions(static_cast<int>(function_))->add_instructions();
  step->mutable_inputs()->Add(inputs.begin(), inputs.end());
  step->mutable_outputs()->Add(outputs.begin(), outputs.end());
  return step;
}

void Steps::Fill(uint32_t tensor, double value) {
  Add({}, {tensor})->mutable_fill()->set_value(value);
}

void Steps::Copy(uint32_t input, uint32_t output) { Add({input}, {output})->mutable_copy(); }

void Steps::Transpose(uint32_t matrix, uint32_t output) {
  v1::Transpose* step = Add({matrix}, {output})->mutable_transpose();
  step->add_permutation(1);
  step->add_permutation(0);
}

void Steps::Expand(uint32_t input, uint32_t output) {
  *Add({input}, {output})->mutable_expand()->mutable_dims() =
      ipu_->tensors(static_cast<int>(output)).dims();
}

void Steps::Binary(v1::BinaryOperator op, uint32_t a, uint32_t b, uint32_t output) {
  Add({a, b}, {output})->mutable_binary()->set_operator_(op);
}

void Steps::MatMul(uint32_t a, uint32_t b, uint32_t output, program::v1::DataType partials) {
  Add({a, b}, {output})->mutable_mat_mul()->mutable_plan()->set_partials(partials);
}

void Steps::Reduce(v1::ReduceOperator op, uint32_t input, uint32_t output,
                   const std::vector<uint32_t>& axes) {
  v1::Reduce* step = Add({input}, {output})->mutable_reduce();
  step->set_operator_(op);
  step->mutable_axes()->Add(axes.begin(), axes.end());
}

void Steps::StreamIn(uint32_t stream, uint32_t tensor) {
  Add({}, {tensor})->mutable_stream_in()->set_stream(stream);
}

void Steps::StreamOut(uint32_t stream, uint32_t tensor) {
  Add({tensor}, {})->mutable_stream_out()->set_stream(stream);
}

void Steps::RemoteLoad(uint32_t buffer, uint32_t row, uint32_t tensor) {
  Add({row}, {tensor})->mutable_remote_load()->set_buffer(buffer);
}

void Steps::Repeat(uint32_t count, const Steps& body) {
  v1::Repeat* step = Add({}, {})->mutable_repeat();
  step->set_function(body.function());
  step->set_count(count);
}

uint32_t AddTensor(v1::Ipu& ipu, const program::TensorType& type) {
  v1::Tensor* tensor = ipu.add_tensors();
  tensor->set_type(type.type);
  for (int64_t dim : type.dims) tensor->add_dims(dim);
  tensor->set_offset(ipu.arena_bytes());
  ipu.set_arena_bytes(ipu.arena_bytes() + (type.bytes() + 63) / 64 * 64);
  return static_cast<uint32_t>(ipu.tensors_size() - 1);
}

ProgramBuilder::ProgramBuilder() {
  executable_.set_ipus_per_replica(1);
  executable_.add_ipus();
}

uint32_t ProgramBuilder::Tensor(const program::TensorType& type) {
  return AddTensor(*executable_.mutable_ipus(0), type);
}

uint32_t ProgramBuilder::View(uint32_t tensor, const std::vector<int64_t>& dims) {
  v1::Ipu& ipu = *executable_.mutable_ipus(0);
  v1::Tensor view = ipu.tensors(static_cast<int>(tensor));
  view.mutable_dims()->Assign(dims.begin(), dims.end());
  *ipu.add_tensors() = std::move(view);
  return static_cast<uint32_t>(ipu.tensors_size() - 1);
}

uint32_t ProgramBuilder::RemoteBuffer(const std::string& name, const program::TensorType& row,
                                      uint32_t rows) {
  v1::Ipu& ipu = *executable_.mutable_ipus(0);
  v1::RemoteBuffer* buffer = ipu.add_remote_buffers();
  buffer->set_name(name);
  buffer->set_type(row.type);
  buffer->mutable_dims()->Assign(row.dims.begin(), row.dims.end());
  buffer->set_rows(rows);
  return static_cast<uint32_t>(ipu.remote_buffers_size() - 1);
}

uint32_t ProgramBuilder::Stream(const std::string& name, Direction direction,
                                const program::TensorType& type, uint32_t transfers_per_run,
                                uint32_t tiles) {
  v1::Stream* stream = executable_.add_streams();
  stream->set_name(name);
  stream->set_to_device(direction == Direction::kToDevice);
  stream->set_type(type.type);
  for (int64_t dim : type.dims) stream->add_dims(dim);
  stream->set_transfers_per_run(transfers_per_run);
  stream->set_tiles(tiles);
  return static_cast<uint32_t>(executable_.streams_size() - 1);
}

Steps ProgramBuilder::Program(const std::string& name) {
  v1::Program* program = executable_.add_programs();
  program->set_name(name);
  const Steps entry = Function();
  program->add_functions(entry.function());
  return entry;
}

absl::StatusOr<compiler::Compiled> ProgramBuilder::Compile() const {
  VPOD_ASSIGN_OR_RETURN(auto executable, program::Executable::Make(executable_));
  return compiler::Compiled{std::move(executable), {}};
}

}  // namespace vpod::tools

#include "tools/device_check/program_builder.h"

#include "device/program/executable.h"

namespace vpod::tools {

namespace v1 = program::v1;

void Steps::Fill(uint32_t tensor, double value) {
  v1::Fill* step = list_->Add()->mutable_fill();
  step->set_output(tensor);
  step->set_value(value);
}

void Steps::Binary(v1::BinaryOperator op, uint32_t a, uint32_t b, uint32_t output) {
  v1::Binary* step = list_->Add()->mutable_binary();
  step->set_operator_(op);
  step->set_a(a);
  step->set_b(b);
  step->set_output(output);
}

void Steps::MatMul(uint32_t a, uint32_t b, uint32_t output) {
  v1::MatMul* step = list_->Add()->mutable_mat_mul();
  step->set_a(a);
  step->set_b(b);
  step->set_output(output);
}

void Steps::Reduce(v1::ReduceOperator op, uint32_t input, uint32_t output,
                   const std::vector<uint32_t>& axes) {
  v1::Reduce* step = list_->Add()->mutable_reduce();
  step->set_operator_(op);
  step->set_input(input);
  step->set_output(output);
  for (uint32_t axis : axes) step->add_axes(axis);
}

void Steps::StreamIn(uint32_t stream, uint32_t tensor) {
  v1::StreamIn* step = list_->Add()->mutable_stream_in();
  step->set_stream(stream);
  step->set_tensor(tensor);
}

void Steps::StreamOut(uint32_t stream, uint32_t tensor) {
  v1::StreamOut* step = list_->Add()->mutable_stream_out();
  step->set_stream(stream);
  step->set_tensor(tensor);
}

Steps Steps::Repeat(uint32_t count) {
  v1::Repeat* step = list_->Add()->mutable_repeat();
  step->set_count(count);
  return Steps(step->mutable_body());
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
  return Steps(program->add_blocks()->mutable_instructions());
}

compiler::Compiled ProgramBuilder::Compiled() const {
  return {program::Serialize(executable_), {}};
}

}  // namespace vpod::tools

// Builds the executables of test programs directly: one IPU a replica, every tensor at a place of
// its own. Test programs need to say exactly what runs, which a compiler is free to change.
//
//   ProgramBuilder builder;
//   const uint32_t data = builder.Tensor({UINT32, {1472, 64}});
//   const uint32_t in = builder.Stream("in", Direction::kToDevice, {UINT32, {1472, 64}});
//   builder.Program("write").StreamIn(in, data);
//   VPOD_ASSIGN_OR_RETURN(const auto compiled, builder.Compile());
//   session::Session::Create(std::move(device), compiled);
#pragma once

#include <string>
#include <vector>

#include "client/compiler/compiler.h"
#include "device/program/tensor_type.h"
#include "proto/program/v1/program.pb.h"

namespace vpod::tools {

// A function that grows: the entry of a program, or what a repeat executes. Valid as long as its
// IPU. Arguments are indices of tensors and streams.
class Steps {
 public:
  // A new function of the IPU.
  explicit Steps(program::v1::Ipu* ipu);
  uint32_t function() const { return function_; }

  void Fill(uint32_t tensor, double value);
  void Copy(uint32_t input, uint32_t output);
  void Transpose(uint32_t matrix, uint32_t output);
  // Broadcasts to the shape of the output.
  void Expand(uint32_t input, uint32_t output);
  void Binary(program::v1::BinaryOperator op, uint32_t a, uint32_t b, uint32_t output);
  // `partials` is the type of partial results, FLOAT16 only for operands of it.
  void MatMul(uint32_t a, uint32_t b, uint32_t output, program::v1::DataType partials);
  void Reduce(program::v1::ReduceOperator op, uint32_t input, uint32_t output,
              const std::vector<uint32_t>& axes);
  void StreamIn(uint32_t stream, uint32_t tensor);
  void StreamOut(uint32_t stream, uint32_t tensor);
  // `row` is an INT32 scalar.
  void RemoteLoad(uint32_t buffer, uint32_t row, uint32_t tensor);
  // Executes a function that has its instructions already.
  void Repeat(uint32_t count, const Steps& body);

 private:
  program::v1::Instruction* Add(const std::vector<uint32_t>& inputs,
                                const std::vector<uint32_t>& outputs);

  program::v1::Ipu* ipu_;
  uint32_t function_;
};

// Adds a tensor to an IPU, at a place of its own; its index.
uint32_t AddTensor(program::v1::Ipu& ipu, const program::TensorType& type);

enum class Direction { kToDevice, kFromDevice };

class ProgramBuilder {
 public:
  ProgramBuilder();

  uint32_t Tensor(const program::TensorType& type);
  // The elements of a tensor in other dimensions.
  uint32_t View(uint32_t tensor, const std::vector<int64_t>& dims);
  // A buffer of such rows in streaming memory, which begins with zeros.
  uint32_t RemoteBuffer(const std::string& name, const program::TensorType& row, uint32_t rows);
  // `tiles` 0: all of the IPU exchange with the host.
  uint32_t Stream(const std::string& name, Direction direction, const program::TensorType& type,
                  uint32_t transfers_per_run = 1, uint32_t tiles = 0);
  // A function for a repeat of a program that comes after it.
  Steps Function() { return Steps(executable_.mutable_ipus(0)); }
  Steps Program(const std::string& name);

  // Programs are numbered in the order of their making.
  const program::v1::Executable& executable() const { return executable_; }
  // An executable without variables, for a session. InvalidArgument if it exceeds the limits of a
  // machine.
  absl::StatusOr<compiler::Compiled> Compile() const;

 private:
  program::v1::Executable executable_;
};

}  // namespace vpod::tools

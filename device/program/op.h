// The op table: what the rooms above need to know of each op before they look into it. A row is in
// the file of its family in ops/, and says which of an instruction's fields are tensors and what
// types they may have. Other rooms have tables of their own: kernels in device/engine/kernels,
// prices in device/model, derivatives in client/graph/gradients. A test walks all four
// (tests/ops/op_tables_test.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/program/executable.h"

namespace vpod::program {

// How an instruction uses a tensor. kUpdate reads it and writes it in place.
enum class Access { kRead, kWrite, kUpdate };

inline bool Reads(Access access) { return access != Access::kWrite; }
inline bool Writes(Access access) { return access != Access::kRead; }

// Who executes an instruction.
enum class Role {
  kKernel,      // a kernel of its IPU
  kCollective,  // meets other replicas
  kExchange,    // meets another IPU of the replica
  kStream,      // meets the host
  kControl,     // executes other instructions
};

// A field of an op's message that holds a tensor index, or a list of them.
struct Operand {
  const char* field;
  Access access;
  const char* present = nullptr;  // a field that is true when the operand exists; null: always
};

// The tensors of one IPU and the rest of an executable, against which instructions are checked.
class Operands {
 public:
  Operands(const v1::Executable& executable, uint32_t ipu, const Limits& limits)
      : executable_(executable), ipu_(ipu), limits_(limits) {}

  const v1::Executable& executable() const { return executable_; }
  uint32_t ipu() const { return ipu_; }

  // InvalidArgument if there is no such tensor.
  absl::StatusOr<const v1::Tensor*> Any(uint32_t index) const;
  // The type of a tensor that ordinary operations may touch: not of a wide accumulator.
  absl::StatusOr<TensorType> Plain(uint32_t index) const;
  // InvalidArgument unless the tensor is plain and has that type.
  absl::Status Expect(uint32_t index, const TensorType& expected) const;
  // `results` times `each` multiply-adds or comparisons, against the limit of one instruction.
  absl::Status CheckOperations(int64_t results, std::initializer_list<int64_t> each) const;

 private:
  const v1::Executable& executable_;
  const uint32_t ipu_;
  const Limits& limits_;
};

struct OpDef {
  v1::Instruction::StepCase kind;
  Role role;
  std::vector<Operand> operands;  // those that are read first
  // The type rule. The instruction is of this kind. InvalidArgument says what does not fit.
  absl::Status (*check)(const v1::Instruction& instruction, const Operands& tensors);
};

// Null for a kind that is none.
const OpDef* FindOp(v1::Instruction::StepCase kind);
// "mat_mul", as the field of Instruction is called.
const std::string& OpName(v1::Instruction::StepCase kind);

// Calls `visit` for each tensor of an instruction, not of a Repeat's body.
void ForEachTensor(const v1::Instruction& instruction,
                   const std::function<void(uint32_t index, Access access)>& visit);
// Replaces each tensor index by what `renumber` returns for it.
void RenumberTensors(v1::Instruction& instruction,
                     const std::function<uint32_t(uint32_t index, Access access)>& renumber);

// --- By family, for FindOp ---
std::vector<OpDef> CollectiveOps();
std::vector<OpDef> ControlOps();
std::vector<OpDef> Conv2dOps();
std::vector<OpDef> DataMovementOps();
std::vector<OpDef> ElementwiseOps();
std::vector<OpDef> LossOps();
std::vector<OpDef> MatMulOps();
std::vector<OpDef> OptimizerOps();
std::vector<OpDef> PoolOps();
std::vector<OpDef> ReduceOps();
std::vector<OpDef> TransferOps();

}  // namespace vpod::program

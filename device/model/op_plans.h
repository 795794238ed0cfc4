// The table of tile plans: for each op, what it does on the tiles of an IPU. A row is in the file
// of its family.
#pragma once

#include <vector>

#include "device/model/tile_plan.h"

namespace vpod::model {

using program::v1::Instruction;

// An instruction's surroundings: the types of the tensors of its IPU and the job.
class PlanContext {
 public:
  PlanContext(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology)
      : executable_(executable), ipu_(ipu), topology_(topology) {}

  const program::v1::Executable& executable() const { return executable_; }
  const Topology& topology() const { return topology_; }

  program::TensorType Type(uint32_t tensor) const {
    return program::TypeOf(
        executable_.ipus(static_cast<int>(ipu_)).tensors(static_cast<int>(tensor)));
  }
  uint64_t Elements(uint32_t tensor) const {
    return static_cast<uint64_t>(Type(tensor).elements());
  }
  bool IsHalf(uint32_t tensor) const { return Type(tensor).type == program::v1::FLOAT16; }
  // The plan of an op that is one element-by-element vertex over a tensor.
  TilePlan Elementwise(uint32_t tensor, double cycles_per_vector) const {
    return {{ElementwiseStep(Type(tensor), cycles_per_vector)}};
  }

 private:
  const program::v1::Executable& executable_;
  const uint32_t ipu_;
  const Topology& topology_;
};

// Worker cycles for one 64-bit vector of an element-by-element function.
double UnaryCycles(program::v1::UnaryOperator op, bool half);
double BinaryCycles(program::v1::BinaryOperator op, bool half);

struct PlanDef {
  program::OpKind kind;
  // A pure function of the instruction, the types and the topology. The instruction is valid and of
  // this kind; the functions that it executes are planned by themselves.
  TilePlan (*plan)(const Instruction& instruction, const PlanContext& context);
};

// Every op has a row. Null if no op has this kind.
const PlanDef* FindPlan(program::OpKind kind);

// Plan of a valid instruction.
TilePlan Plan(const Instruction& instruction, const PlanContext& context);

// --- By family, for FindPlan ---
std::vector<PlanDef> BatchNormPlans();
std::vector<PlanDef> CollectivePlans();
std::vector<PlanDef> ControlPlans();
std::vector<PlanDef> ConvolutionPlans();
std::vector<PlanDef> DataMovementPlans();
std::vector<PlanDef> ElementwisePlans();
std::vector<PlanDef> GatherPlans();
std::vector<PlanDef> LayerNormPlans();
std::vector<PlanDef> LinePlans();
std::vector<PlanDef> LossPlans();
std::vector<PlanDef> MatMulPlans();
std::vector<PlanDef> OptimizerPlans();
std::vector<PlanDef> PoolingPlans();
std::vector<PlanDef> RandomPlans();
std::vector<PlanDef> ReducePlans();
std::vector<PlanDef> SoftmaxPlans();
std::vector<PlanDef> TransferPlans();

}  // namespace vpod::model

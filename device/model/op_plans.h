// The table of tile plans: for each op, what it does on the tiles of an IPU. A row is in the file
// of its family.
#pragma once

#include <vector>

#include "device/model/plan_context.h"
#include "device/model/tile_plan.h"

namespace vpod::model {

using program::v1::Instruction;

// Worker cycles of an element-by-element function for some elements at a time: those of a 64-bit
// vector, 4 of float16 or 2 of float32, or one.
struct WorkerCycles {
  double cycles;
  uint64_t elements;
  bool operator==(const WorkerCycles&) const = default;
};
WorkerCycles UnaryCycles(program::v1::UnaryOperator op, program::v1::DataType type);
WorkerCycles BinaryCycles(program::v1::BinaryOperator op, program::v1::DataType type);
// For a sum or product with a vector that all pixels or rows have in common (spec/planner.md 5).
inline constexpr double kBroadcastCycles = 1.2;

// Where the results of an op lie, for those that read them (PlanContext).
enum class ResultsLie {
  kAsComputed,   // where the op leaves them
  kInPlace,      // where their tensors lie, whatever the layout of these
  kLikeOperand,  // the first one as the first operand of its shape does; as computed if none has it
};

struct PlanDef {
  program::OpKind kind;
  // A pure function of the instruction, the types and the topology. The instruction is valid and of
  // this kind; the functions that it executes are planned by themselves.
  TilePlan (*plan)(const Instruction& instruction, const PlanContext& context);
  ResultsLie results = ResultsLie::kAsComputed;
  // An optimiser: input 0 is a weight, outputs after the first are its state.
  bool optimizer = false;
};

// Every op has a row. Null if no op has this kind.
const PlanDef* FindPlan(program::OpKind kind);

// Plan of a valid instruction.
TilePlan Plan(const Instruction& instruction, const PlanContext& context);
// Its price, without the functions that it executes.
Cost Price(const Instruction& instruction, const PlanContext& context);

// A vertex over the elements of a tensor where they lie, and the plan of an op that is no more.
PlanStep ElementwiseStep(const PlanContext& context, uint32_t tensor, double cycles_per_vector);
PlanStep ElementwiseStep(const PlanContext& context, uint32_t tensor, const WorkerCycles& cycles);
TilePlan ElementwisePlan(const PlanContext& context, uint32_t tensor, double cycles_per_vector);

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

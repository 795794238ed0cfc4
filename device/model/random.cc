#include "device/arch/vertex_cycles.h"
#include "device/model/op_plans.h"

namespace vpod::model {

// The hardware makes 64 random bits in a cycle of a worker; the distributions take passes of
// arithmetic (F20).
std::vector<PlanDef> RandomPlans() {
  return {{Instruction::kReplicaIndex,
           [](const Instruction& instruction, const PlanContext& context) {
             return ElementwisePlan(context, instruction.outputs(0), 1);
           }},
          {Instruction::kRandom, [](const Instruction& instruction, const PlanContext& context) {
             const auto distribution = instruction.random().distribution();
             return ElementwisePlan(context, instruction.outputs(0),
                                    distribution == program::v1::Random::BITS ? 1
                                    : distribution == program::v1::Random::UNIFORM
                                        ? arch::kPassCycles
                                        : 4 * arch::kPassCycles);
           }}};
}

}  // namespace vpod::model

#include "device/program/ops/map.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kSteps{"map_c1", "There are 1 to 32 steps."};
static_assert(kMostMapSteps == 32);
constexpr Constraint kElementwise{"map_c2",
                                  "Each step is an operation that is done element by element."};
constexpr Constraint kBareSteps{"map_c3", "No step has outputs or a rounding."};
constexpr Constraint kEarlier{"map_c4",
                              "The inputs of a step are inputs of the map or earlier steps."};
constexpr Constraint kRead{"map_c5",
                           "All inputs of the map and all steps but the last are read by a step."};

absl::StatusOr<TensorType> StepType(const v1::Instruction& step, const Types& values) {
  const OpDef* op = FindOp(step.attributes_case());
  if (op == nullptr || !op->elementwise) {
    return Broken(kElementwise,
                  absl::StrCat(OpName(step.attributes_case()), " is not done element by element"));
  }
  if (step.outputs_size() != 0 || step.has_rounding())
    return Broken(kBareSteps, "steps of a map have no outputs and no rounding");
  Types inputs;
  for (uint32_t input : step.inputs()) {
    if (input >= values.size()) {
      return Broken(kEarlier, absl::StrCat("value ", input, " does not exist yet, there are ",
                                           values.size()));
    }
    inputs.push_back(values[input]);
  }
  VPOD_ASSIGN_OR_RETURN(const Types outputs, InferTypes(step, inputs));
  return outputs[0];
}

absl::StatusOr<Types> MapType(const v1::Instruction& instruction,
                              absl::Span<const TensorType> inputs) {
  const auto& steps = instruction.map().steps();
  if (steps.empty() || steps.size() > kMostMapSteps) {
    return Broken(kSteps,
                  absl::StrCat("a map has 1 to ", kMostMapSteps, " steps, not ", steps.size()));
  }
  Types values(inputs.begin(), inputs.end());
  std::vector<bool> read(values.size() + static_cast<size_t>(steps.size()));
  for (const v1::Instruction& step : steps) {
    VPOD_ASSIGN_OR_RETURN(TensorType type, StepType(step, values));
    for (uint32_t input : step.inputs()) read[input] = true;
    values.push_back(std::move(type));
  }
  read.pop_back();
  for (size_t value = 0; value < read.size(); ++value) {
    if (!read[value]) return Broken(kRead, absl::StrCat("no step reads value ", value));
  }
  // All broadcast to the last, since each was read on the way to it.
  return Types{values.back()};
}

}  // namespace

std::vector<OpDef> MapOps() {
  return {{.kind = v1::Instruction::kMap,
           .role = Role::kKernel,
           .inputs = {1, kMostMapInputs},
           .outputs = {1, 1},
           .infer = MapType,
           .constraints = {kSteps, kElementwise, kBareSteps, kEarlier, kRead},
           .form = Form::kFused,
           .operations =
               [](const v1::Instruction& instruction, absl::Span<const TensorType>,
                  absl::Span<const TensorType> outputs) {
                 return static_cast<double>(outputs[0].elements()) * instruction.map().steps_size();
               },
           .layout = AnyLayout}};
}

}  // namespace vpod::program

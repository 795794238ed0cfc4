#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kInputs{"random_c1",
                             "The seed is uint32 [2], counter and stream are uint32 scalars."};
constexpr Constraint kDistribution{"random_c2", "The distribution is BITS, UNIFORM or NORMAL."};
constexpr Constraint kType{"random_c3", "The output is uint32 with BITS, otherwise floats."};

absl::StatusOr<TensorType> RandomType(const v1::Random& op, absl::Span<const TensorType> inputs) {
  VPOD_RETURN_IF_ERROR(CheckInput(kInputs, "seed", inputs[0], {v1::UINT32, {2}}));
  VPOD_RETURN_IF_ERROR(CheckInput(kInputs, "counter", inputs[1], {v1::UINT32, {}}));
  VPOD_RETURN_IF_ERROR(CheckInput(kInputs, "stream", inputs[2], {v1::UINT32, {}}));
  TensorType output{op.type(), Dims(op.dims().begin(), op.dims().end())};
  VPOD_RETURN_IF_ERROR(Check(output));
  if (op.distribution() < v1::Random::BITS || op.distribution() > v1::Random::NORMAL) {
    return Broken(kDistribution, absl::StrCat("unknown random distribution ", op.distribution()));
  }
  const bool bits = op.distribution() == v1::Random::BITS;
  if (bits ? op.type() == v1::UINT32 : IsFloat(op.type())) return output;
  return Broken(kType,
                absl::StrCat(v1::Random::Distribution_Name(op.distribution()), " does not make ",
                             output.ToString(), bits ? ", must be uint32" : ", must be floats"));
}

}  // namespace

std::vector<OpDef> RandomOps() {
  return {
      {.kind = v1::Instruction::kReplicaIndex,
       .role = Role::kKernel,
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType>) -> absl::StatusOr<Types> {
         return Types{{v1::UINT32, {}}};
       },
       .own_data = true},
      {.kind = v1::Instruction::kRandom,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return OneOutput(RandomType(instruction.random(), inputs)); },
       .constraints = {kInputs, kDistribution, kType}},
  };
}

}  // namespace vpod::program

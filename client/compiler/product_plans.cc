#include "client/compiler/product_plans.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace vpod::compiler {

using program::v1::ProductPlan;

absl::Status CheckProductOptions(const CompileOptions& options) {
  const ProductOptions& products = options.products;
  if (products.partials != program::v1::FLOAT32 && products.partials != program::v1::FLOAT16) {
    return absl::InvalidArgumentError(absl::StrCat("the type of partial results is ",
                                                   program::Name(products.partials),
                                                   ", must be float32 or float16"));
  }
  const auto& proportions = products.memory_proportions;
  if (proportions.size() > options.ipus_per_replica) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_proportions has ", proportions.size(), " entries, but a replica has ",
                     options.ipus_per_replica, options.ipus_per_replica == 1 ? " IPU" : " IPUs"));
  }
  for (size_t ipu = 0; ipu < proportions.size(); ++ipu) {
    if (!proportions[ipu] || (*proportions[ipu] > 0 && *proportions[ipu] <= 1)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the memory proportion of IPU ", ipu, " is ",
                                                   *proportions[ipu],
                                                   ", must be above 0 and at most 1"));
  }
  return absl::OkStatus();
}

namespace {

// 0: the default.
float ProportionOf(const ProductOptions& options, size_t ipu) {
  const auto& proportions = options.memory_proportions;
  return ipu < proportions.size() ? proportions[ipu].value_or(0) : 0;
}

}  // namespace

void SetProductPlans(GraphProgram& program, const ProductOptions& options) {
  std::vector<graph::Node> nodes = program.graph.nodes();
  for (graph::Node& node : nodes) {
    program::v1::Instruction& op = node.instruction;
    if (!op.has_mat_mul() && !op.has_convolution()) continue;
    const bool half = program.graph.values()[op.inputs(0)].type.type == program::v1::FLOAT16;
    const bool half_partials = half && options.partials == program::v1::FLOAT16;
    const float proportion = ProportionOf(options, node.ipu);
    if (!half_partials && proportion == 0)
      continue;  // executables without options stay as they are
    ProductPlan& plan = op.has_mat_mul() ? *op.mutable_mat_mul()->mutable_plan()
                                         : *op.mutable_convolution()->mutable_plan();
    if (half_partials && plan.partials() == program::v1::DATA_TYPE_UNSPECIFIED)
      plan.set_partials(program::v1::FLOAT16);
    if (plan.memory_proportion() == 0) plan.set_memory_proportion(proportion);
  }
  program.graph.SetNodes(std::move(nodes));
}

}  // namespace vpod::compiler

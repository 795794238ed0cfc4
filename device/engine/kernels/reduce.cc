#include <algorithm>
#include <array>
#include <limits>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

using program::v1::ReduceOperator;

VPOD_SIMD void AddRow(double* sums, const float* row, size_t n) {
  for (size_t i = 0; i < n; ++i) sums[i] += row[i];
}
VPOD_SIMD void MaxRow(double* sums, const float* row, size_t n) {
  for (size_t i = 0; i < n; ++i) sums[i] = row[i] > sums[i] ? row[i] : sums[i];
}
VPOD_SIMD void MinRow(double* sums, const float* row, size_t n) {
  for (size_t i = 0; i < n; ++i) sums[i] = row[i] < sums[i] ? row[i] : sums[i];
}

double Initial(ReduceOperator op) {
  if (op == program::v1::MAX) return -std::numeric_limits<double>::infinity();
  if (op == program::v1::MIN) return std::numeric_limits<double>::infinity();
  return 0;
}

// Where each run of innermost elements goes. The innermost axes are either all kept (a row is added
// to a row of results) or all reduced (a row collapses to one result).
struct Plan {
  bool inner_reduced = false;
  size_t inner = 1;  // elements of a run
  program::Dims outer_dims,
      outer_to;  // axes outside the run, and their strides in the result (0 if reduced)
  size_t runs = 1;
};

Plan MakePlan(const program::Dims& input, absl::Span<const uint32_t> axes) {
  std::vector<bool> reduced(input.size());
  for (uint32_t axis : axes) reduced[axis] = true;
  program::Dims to(input.size(), 0);
  int64_t stride = 1;
  for (size_t i = input.size(); i-- > 0;) {
    if (!reduced[i]) {
      to[i] = stride;
      stride *= input[i];
    }
  }
  Plan plan;
  size_t axis = input.size();
  plan.inner_reduced = axis > 0 && reduced[axis - 1];
  while (axis > 0 && reduced[axis - 1] == plan.inner_reduced)
    plan.inner *= static_cast<size_t>(input[--axis]);
  for (size_t i = 0; i < axis; ++i) {
    plan.outer_dims.push_back(input[i]);
    plan.outer_to.push_back(to[i]);
    plan.runs *= static_cast<size_t>(input[i]);
  }
  return plan;
}

template <class Visit>
void ForRuns(const Plan& plan, const Visit& visit) {
  std::array<int64_t, program::kMaxRank> index{};
  for (size_t run = 0; run < plan.runs; ++run) {
    int64_t to = 0;
    for (size_t i = 0; i < plan.outer_dims.size(); ++i) to += index[i] * plan.outer_to[i];
    visit(run * plan.inner, static_cast<size_t>(to));
    for (size_t i = plan.outer_dims.size(); i-- > 0;) {
      if (++index[i] < plan.outer_dims[i]) break;
      index[i] = 0;
    }
  }
}

void ReduceFloats(ReduceOperator op, const Plan& plan, const float* in, double* sums) {
  ForRuns(plan, [&](size_t from, size_t to) {
    if (!plan.inner_reduced) {
      const auto row = op == program::v1::MAX ? MaxRow : op == program::v1::MIN ? MinRow : AddRow;
      row(sums + to, in + from, plan.inner);
      return;
    }
    double result = sums[to];
    for (size_t i = 0; i < plan.inner; ++i) {
      const double value = in[from + i];
      if (op == program::v1::MAX) {
        result = std::max(result, value);
      } else if (op == program::v1::MIN) {
        result = std::min(result, value);
      } else {
        result += value;
      }
    }
    sums[to] = result;
  });
}

void ReduceInts(ReduceOperator op, const Plan& plan, const int32_t* in, int32_t* out,
                size_t outputs) {
  std::fill_n(out, outputs,
              op == program::v1::MAX   ? std::numeric_limits<int32_t>::min()
              : op == program::v1::MIN ? std::numeric_limits<int32_t>::max()
                                       : 0);
  ForRuns(plan, [&](size_t from, size_t to) {
    for (size_t i = 0; i < plan.inner; ++i) {
      int32_t& result = out[plan.inner_reduced ? to : to + i];
      const int32_t value = in[from + i];
      if (op == program::v1::MAX) {
        result = std::max(result, value);
      } else if (op == program::v1::MIN) {
        result = std::min(result, value);
      } else {
        result = static_cast<int32_t>(static_cast<uint32_t>(result) + static_cast<uint32_t>(value));
      }
    }
  });
}

absl::StatusOr<Kernel> PrepareReduce(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Reduce& op = instruction.reduce();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const ReduceOperator function = op.operator_();
  const Plan plan = MakePlan(input.type.dims, op.axes());
  if (input.type.type == program::v1::INT32) {
    return [=](std::byte* arena) {
      ReduceInts(function, plan, input.As<int32_t>(arena), output.As<int32_t>(arena),
                 output.elements());
      return absl::OkStatus();
    };
  }
  const double scale = function == program::v1::MEAN ? static_cast<double>(output.elements()) /
                                                           static_cast<double>(input.elements())
                                                     : 1.0;
  return [=](std::byte* arena) {
    const size_t n = output.elements();
    const float* in = ReadFloats(input, arena, 0);
    auto* sums = reinterpret_cast<double*>(Scratch::OfThisThread().Get(1, n * sizeof(double)));
    std::fill_n(sums, n, Initial(function));
    ReduceFloats(function, plan, in, sums);
    float* out = WriteFloats(output, arena, 2);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(sums[i] * scale);
    StoreFloats(output, arena, out);
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareArgMax(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const auto length = static_cast<size_t>(input.type.dims.back());
  return [=](std::byte* arena) {
    const float* in = ReadFloats(input, arena, 0);
    auto* out = output.As<int32_t>(arena);
    for (size_t row = 0; row < output.elements(); ++row) {
      const float* first = in + row * length;
      out[row] = static_cast<int32_t>(std::max_element(first, first + length) - first);
    }
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<KernelDef> ReduceKernels() {
  return {{Instruction::kReduce, PrepareReduce}, {Instruction::kArgMax, PrepareArgMax}};
}

}  // namespace vpod::engine

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kPermutation{"view_c1",
                                  "The permutation names each dimension of the input once."};
constexpr Constraint kSliceEntries{
    "view_c2", "`begin`, `size` and `step` have an entry for each dimension of the input."};
constexpr Constraint kSlice{
    "view_c3",
    "Along each dimension, the slice has 0 elements or more, steps of 1 or more, and "
    "does not leave the input."};
constexpr Constraint kExpand{"view_c4",
                             "Counted from the last, the dimensions of the input stay or are 1."};

Dims DimsOf(const google::protobuf::RepeatedField<int64_t>& field) {
  return {field.begin(), field.end()};
}

absl::StatusOr<TensorType> TransposedType(const v1::Transpose& op, const TensorType& input) {
  std::vector<bool> seen(input.dims.size());
  bool fits = op.permutation_size() == input.rank();
  TensorType output{input.type, {}};
  for (int i = 0; fits && i < op.permutation_size(); ++i) {
    const uint32_t from = op.permutation(i);
    fits = from < seen.size() && !seen[from];
    if (!fits) break;
    seen[from] = true;
    output.dims.push_back(input.dims[from]);
  }
  if (fits) return output;
  return Broken(kPermutation, absl::StrCat("[", absl::StrJoin(op.permutation(), ","),
                                           "] is not a permutation of the dimensions of ",
                                           input.ToString(), ", 0 to ", input.rank() - 1));
}

absl::StatusOr<TensorType> SlicedType(const v1::Slice& op, const TensorType& input) {
  if (op.begin_size() != input.rank() || op.size_size() != input.rank() ||
      op.step_size() != input.rank()) {
    return Broken(kSliceEntries,
                  absl::StrCat("a slice of ", input.ToString(), " needs ", input.rank(),
                               " entries in each field, one for each dimension"));
  }
  for (int i = 0; i < input.rank(); ++i) {
    const int64_t dim = input.dims[static_cast<size_t>(i)], begin = op.begin(i), size = op.size(i),
                  step = op.step(i);
    // In this order nothing overflows. A slice without elements may begin at the end.
    const bool fits = begin >= 0 && begin <= dim && step >= 1 && size >= 0 && size <= dim &&
                      (size == 0 || (begin < dim && (dim - 1 - begin) / step >= size - 1));
    if (!fits) {
      return Broken(kSlice, absl::StrCat("a slice of ", size, " elements from ", begin,
                                         " in steps of ", step, " leaves dimension ", i, " of ",
                                         input.ToString(), ", elements 0 to ", dim - 1));
    }
  }
  return TensorType{input.type, DimsOf(op.size())};
}

absl::StatusOr<TensorType> ExpandedType(const v1::Expand& op, const TensorType& input) {
  TensorType output{input.type, DimsOf(op.dims())};
  VPOD_RETURN_IF_ERROR(Check(output));
  const absl::StatusOr<Dims> broadcast = BroadcastDims(input.dims, output.dims);
  if (broadcast.ok() && *broadcast == output.dims) return output;
  return Broken(kExpand,
                absl::StrCat(input.ToString(), " does not expand to [",
                             absl::StrJoin(output.dims, ","), "]: dimensions stay or were 1"));
}

}  // namespace

std::vector<OpDef> ViewOps() {
  return {
      {.kind = v1::Instruction::kTranspose,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(TransposedType(instruction.transpose(), inputs[0]));
       },
       .constraints = {kPermutation},
       .flops_per_operation = 0,
       .layout = AnyLayout,
       .view =
           [](const v1::Instruction& instruction, const TensorType&, const Dims& strides) {
             View view;
             for (uint32_t from : instruction.transpose().permutation())
               view.strides.push_back(strides[from]);
             return view;
           }},
      {.kind = v1::Instruction::kSlice,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(SlicedType(instruction.slice(), inputs[0]));
       },
       .constraints = {kSliceEntries, kSlice},
       .flops_per_operation = 0,
       .layout = AnyLayout,
       .view =
           [](const v1::Instruction& instruction, const TensorType&, const Dims& strides) {
             View view;
             for (size_t i = 0; i < strides.size(); ++i) {
               const auto axis = static_cast<int>(i);
               view.offset += instruction.slice().begin(axis) * strides[i];
               view.strides.push_back(instruction.slice().step(axis) * strides[i]);
             }
             return view;
           }},
      {.kind = v1::Instruction::kExpand,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(ExpandedType(instruction.expand(), inputs[0]));
       },
       .constraints = {kExpand},
       .flops_per_operation = 0,
       .layout = AnyLayout,
       .view =
           [](const v1::Instruction& instruction, const TensorType& input, const Dims& strides) {
             View view;
             view.strides.assign(
                 static_cast<size_t>(instruction.expand().dims_size()) - strides.size(), 0);
             for (size_t i = 0; i < strides.size(); ++i)
               view.strides.push_back(input.dims[i] == 1 ? 0 : strides[i]);
             return view;
           }},
  };
}

}  // namespace vpod::program

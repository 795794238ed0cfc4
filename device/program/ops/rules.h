// Type rules of the closed op set: given the types of the inputs, the type of the output, or
// InvalidArgument saying what does not fit. The graph builder infers shapes with them and the
// validator checks executables against them. An error ends with the label of the constraint that is
// broken: "groups is 3, must divide the 4 channels (conv_c5)".
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "device/program/op.h"

namespace vpod::program {

// --- For the rules themselves, in op.cc ---

// InvalidArgument: the message and the label of the constraint.
absl::Status Broken(const Constraint& constraint, absl::string_view message);
// The status of a check that serves several constraints: the same if it is ok, otherwise Broken.
absl::Status Labelled(const Constraint& constraint, const absl::Status& status);
// Broken with a message that names the input, unless it has the type that the other inputs ask for.
absl::Status CheckInput(const Constraint& constraint, const char* name, const TensorType& actual,
                        const TensorType& expected);

// --- The rules ---

// elementwise.cc
// By NumPy's rules. The error has no label: each op that broadcasts has a constraint of its own.
absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b);
absl::StatusOr<TensorType> UnaryType(v1::UnaryOperator op, const TensorType& input);
absl::StatusOr<TensorType> BinaryType(v1::BinaryOperator op, const TensorType& a,
                                      const TensorType& b);

// reduce.cc; axes ascending and without repetition
absl::StatusOr<TensorType> ReduceType(v1::ReduceOperator op, const TensorType& input,
                                      absl::Span<const uint32_t> axes);
absl::StatusOr<TensorType> ArgMaxType(const TensorType& input);

// matmul.cc
absl::StatusOr<TensorType> MatMulType(const TensorType& a, const TensorType& b, bool transpose_a,
                                      bool transpose_b);
// How products and convolutions of a type may be planned.
absl::Status CheckProductPlan(const Constraint& constraint, const v1::ProductPlan& plan,
                              v1::DataType type);

// convolution.cc: forward pass
absl::StatusOr<TensorType> ConvolutionType(const TensorType& image, const TensorType& weights,
                                           const v1::SlidingWindow& window, uint32_t groups);

// pooling.cc
absl::StatusOr<TensorType> PooledType(const TensorType& image, const v1::SlidingWindow& window);

// loss.cc: type of the loss of each row, [n]
absl::StatusOr<TensorType> SoftmaxCrossEntropyType(const TensorType& logits,
                                                   const TensorType& labels);

}  // namespace vpod::program

// Type rules of the closed op set: given the types of the inputs, the type of the output, or
// InvalidArgument saying what does not fit. The graph builder infers shapes with them and the
// validator checks executables against them.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// op.cc: InvalidArgument that names the input unless it has the type that the other inputs ask for.
absl::Status CheckInput(const char* name, const TensorType& actual, const TensorType& expected);

// elementwise.cc
absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b);  // NumPy rules
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

// convolution.cc: forward pass
absl::StatusOr<TensorType> ConvolutionType(const TensorType& image, const TensorType& weights,
                                           const v1::SlidingWindow& window, uint32_t groups);

// pooling.cc
absl::StatusOr<TensorType> PooledType(const TensorType& image, const v1::SlidingWindow& window);

// loss.cc: type of the loss of each row, [n]
absl::StatusOr<TensorType> SoftmaxCrossEntropyType(const TensorType& logits,
                                                   const TensorType& labels);

}  // namespace vpod::program

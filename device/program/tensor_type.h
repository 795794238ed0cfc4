// Type and shape of tensors, shared by the graph builder, the compiler, the validator and the
// engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program/v1/program.pb.h"

namespace vpod::program {

namespace v1 = ::vpod::program::v1;

inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxElements = int64_t{1} << 31;

using Dims = std::vector<int64_t>;
// Which operation an instruction is.
using OpKind = v1::Instruction::AttributesCase;

// Element type and dimensions, outermost first. A scalar has no dimensions.
struct TensorType {
  v1::DataType type = v1::FLOAT32;
  Dims dims;

  friend bool operator==(const TensorType&, const TensorType&) = default;
  int64_t elements() const;
  bool empty() const { return elements() == 0; }
  uint64_t bytes() const;
  int rank() const { return static_cast<int>(dims.size()); }
  // "float32[16,28,28,1]"
  std::string ToString() const;
};

// Bytes of one element; 0 for an unknown type.
uint64_t SizeOf(v1::DataType type);
// "float32", "bool" …
absl::string_view Name(v1::DataType type);
bool IsFloat(v1::DataType type);
bool IsInteger(v1::DataType type);  // not BOOL
bool IsSigned(v1::DataType type);   // integers
// InvalidArgument unless an integer or BOOL type has the value; floats have any.
absl::Status CheckValue(double value, v1::DataType type);

// InvalidArgument unless the type is known, the rank at most kMaxRank, every dimension 0 or more
// and the product of those that are not 0 at most kMaxElements.
absl::Status Check(const TensorType& type);

TensorType TypeOf(const v1::Tensor& tensor);
TensorType TypeOf(const v1::Stream& stream);
TensorType TypeOf(const v1::RemoteBuffer& buffer);  // of a row

// --- Layout ---

Dims RowMajorStrides(const Dims& dims);
// For images of [batch, channels, spatial dimensions…]: densely packed with the channels innermost.
Dims ChannelsLastStrides(const Dims& dims);
// For weights of [outputs, channels, spatial dimensions…]: densely packed as
// [spatial dimensions…, channels, outputs].
Dims OutputsLastStrides(const Dims& dims);
Dims StridesOf(const v1::Tensor& tensor);
// Whether the elements, if there are any, lie as with these strides; those of dimensions of 1 do
// not matter.
bool LiesAs(const v1::Tensor& tensor, const Dims& strides);
// Whether the elements lie densely, the dimensions in any order.
bool IsDense(const v1::Tensor& tensor);
// Whether no element lies on another, by the strides alone: each is above what those below it span.
bool ElementsLieApart(const v1::Tensor& tensor);
// InvalidArgument unless the strides are 0 or more, one for each dimension, not those of a
// row-major tensor or of one without elements, and span at most kMaxElements.
absl::Status CheckStrides(const v1::Tensor& tensor);

// Bytes from the tensor's first to behind its last in the emulator's arena (a wide accumulator
// takes 8 an element).
uint64_t ArenaBytes(const v1::Tensor& tensor);

}  // namespace vpod::program

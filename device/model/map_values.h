// Where the values of a fused map lie, which have no tensors of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program/tensor_type.h"

namespace vpod::model {

struct MapValue {
  program::TensorType type;
  // The value whose place it has: that of its step's first operand of its shape, as the result of
  // an operation by itself; else itself.
  uint32_t lies_like = 0;
};

// The inputs of a valid map, then its steps.
std::vector<MapValue> ValuesOf(const program::v1::Instruction& map,
                               const std::vector<program::TensorType>& inputs);

}  // namespace vpod::model

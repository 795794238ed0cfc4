#include "device/model/map_values.h"

#include <utility>

#include "device/program/op.h"

namespace vpod::model {

std::vector<MapValue> ValuesOf(const program::v1::Instruction& map,
                               const std::vector<program::TensorType>& inputs) {
  std::vector<MapValue> values;
  for (const program::TensorType& type : inputs)
    values.push_back({type, static_cast<uint32_t>(values.size())});
  for (const program::v1::Instruction& step : map.map().steps()) {
    program::Types operands;
    for (uint32_t operand : step.inputs()) operands.push_back(values[operand].type);
    MapValue value{program::InferTypes(step, operands).value()[0],
                   static_cast<uint32_t>(values.size())};
    for (uint32_t operand : step.inputs()) {
      if (values[operand].type.dims != value.type.dims) continue;
      value.lies_like = values[operand].lies_like;
      break;
    }
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace vpod::model

#include "device/model/op_prices.h"

namespace vpod::model {
namespace {

// The caller prices the functions that they execute.
Cost ControlPrice(const Instruction&, const PriceContext&) { return {}; }

}  // namespace

std::vector<PriceDef> ControlPrices() {
  return {{Instruction::kCall, ControlPrice},
          {Instruction::kRepeat, ControlPrice},
          {Instruction::kIf, ControlPrice},
          {Instruction::kWhile, ControlPrice}};
}

}  // namespace vpod::model

#include "device/model/op_prices.h"

namespace vpod::model {

std::vector<PriceDef> ControlPrices() {
  // Its body is priced by the caller.
  return {{Instruction::kRepeat, [](const Instruction&, const PriceContext&) { return Cost(); }}};
}

}  // namespace vpod::model

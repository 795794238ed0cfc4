#include <cmath>

#include "device/arch/hardware.h"
#include "device/model/ceil_div.h"
#include "device/model/cost.h"

namespace vpod::model {

Cycles ElementwiseCycles(uint64_t elements, program::v1::DataType type, double cycles_per_vector) {
  const uint64_t per_vector = std::max<uint64_t>(1, 8 / program::SizeOf(type));
  const uint64_t per_tile = CeilDiv(elements, arch::kTilesPerIpu);
  const uint64_t per_worker = CeilDiv(CeilDiv(per_tile, per_vector), arch::kWorkersPerTile);
  const auto loop =
      static_cast<uint64_t>(std::ceil(static_cast<double>(per_worker) * cycles_per_vector));
  return Cycles(arch::kWorkersPerTile * (20 + loop) + arch::kSupervisorCallCycles);
}

}  // namespace vpod::model

#include <cmath>

#include "device/arch/hardware.h"
#include "device/model/cost.h"

namespace vpod::model {

Cost AllReduceCost(uint64_t bytes, uint64_t elements, const Topology& topology) {
  Cost cost;
  const uint64_t n = topology.num_replicas;
  if (n <= 1) return cost;
  // Ring reduce-scatter and all-gather: each moves (n-1)/n of the bytes in n-1 steps.
  const double seconds = 2 * (static_cast<double>(n - 1) / static_cast<double>(n)) *
                             static_cast<double>(bytes) / arch::kRingBytesPerSecond +
                         2 * static_cast<double>(n - 1) * arch::kLinkHopSeconds;
  const uint64_t steps = 2 * (n - 1);
  cost.exchange = Cycles(static_cast<uint64_t>(std::ceil(seconds * topology.clock_hz)) +
                         steps * arch::kCollectiveStepCycles);
  cost.sync = arch::ExternalSyncCycles(static_cast<uint32_t>(n) * topology.ipus_per_replica,
                                       topology.clock_hz) *
              steps;
  // Each step of the reduce-scatter adds 1/n of the elements.
  cost.compute = ElementwiseCycles((elements + n - 1) / n, program::v1::FLOAT32, 3) * (n - 1);
  return cost;
}

}  // namespace vpod::model

// Costs of programs on the modelled hardware: virtual cycles and bytes, never wall time. Rules and
// their sources are in spec/hardware.md; the functions name its sections.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "device/arch/hardware.h"
#include "device/base/units.h"
#include "device/program/executable.h"

namespace vpod::model {

using base::Bytes;
using base::Cycles;

// Parameters of a price besides the program.
struct Topology {
  double clock_hz = 1.33e9;
  uint32_t num_replicas = 1;  // of the whole job
  uint32_t ipus_per_replica = 1;
  uint32_t ipus_per_domain = arch::kMaxIpusPerLinkDomain;  // of the partition in an IPU-Link domain
};

// Cycles of one step on one IPU, by what the IPU does meanwhile, and what passes its Host-Link.
struct Cost {
  Cycles compute;
  Cycles exchange;
  Cycles sync;
  Bytes from_host;
  Bytes to_host;

  Cycles total() const { return compute + exchange + sync; }
  Cost& operator+=(const Cost& other);
  friend Cost operator*(Cost cost, uint64_t times);
};

// Price of one step on IPU `ipu` of a replica, without the functions that it executes.
Cost Price(const program::v1::Executable& executable, uint32_t ipu,
           const program::v1::Instruction& instruction, const Topology& topology);

// Sum over a whole run of a program on one IPU, without waiting for others; both sides of an If,
// and as many rounds of a While as it may take.
Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology);

// Modelled bytes in use on one IPU: variables and temporaries after reuse, vertex code and state,
// control code, stacks.
Bytes MemoryUse(const program::v1::Executable& executable, uint32_t ipu);

// Memory of every IPU of a replica, or ResourceExhausted naming the IPU, the bytes over and the
// three largest tensors when one exceeds 897 MiB.
absl::StatusOr<std::vector<Bytes>> CheckMemory(const program::v1::Executable& executable);

// --- Rules, exposed for tests and for reports ---

// One AMP panel of `rows` rows on one tile (7.2 and F4): 16x16 for float16, 8x16 for float32.
Cycles AmpPanelCycles(uint64_t rows, program::v1::DataType type);
// A product of [m,k] and [k,n] spread over all tiles.
Cost MatMulCost(uint64_t m, uint64_t k, uint64_t n, program::v1::DataType type);
// An element-by-element vertex over all tiles (7.3): `cycles_per_vector` worker cycles for 64 bits.
Cycles ElementwiseCycles(uint64_t elements, program::v1::DataType type, double cycles_per_vector);
// Reduction of `inputs` elements to `outputs` (7.5 rule 5).
Cost ReduceCost(uint64_t inputs, uint64_t outputs, program::v1::DataType type);
// One exchange phase on the chip, the busiest tile receiving or sending `bytes_per_tile` (7.1,
// F10), with its sync.
Cost ExchangePhase(uint64_t bytes_per_tile);
// Cycles that syncing with the host adds to a transfer, if the host is ahead (2.6).
Cycles HostSyncCycles(const Topology& topology);
// A transfer between host and IPU in which `tiles` take part (F2, F19, 3.3).
Cost StreamCost(uint64_t bytes, uint32_t tiles, const Topology& topology);
// Data that a collective moves.
struct CollectiveLoad {
  program::OpKind kind = program::v1::Instruction::kAllReduce;
  uint64_t bytes = 0;     // on each replica, the larger of what goes in and comes out
  uint64_t elements = 0;  // as above
  uint64_t members = 1;   // of each group
  uint64_t stride = 1;    // between the replica numbers of members
};
// A collective (section 4, F17) with the additions of its reduction. Within an IPU-Link domain on a
// ring; across racks in phases, the middle one over GW-Links (F11, F16).
Cost CollectiveCost(const CollectiveLoad& load, const Topology& topology);
// Bytes that move between two IPUs of a replica.
struct InterIpuMove {
  uint64_t bytes;
  uint32_t from_ipu, to_ipu;
};
// An exchange between IPUs of a replica (3.2): moves go side by side, but those that leave, or
// reach, the same IPU share its links. The same for all IPUs that take part.
Cost InterIpuExchangeCost(const std::vector<InterIpuMove>& moves, const Topology& topology);

}  // namespace vpod::model

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

// Cycles of one instruction on one IPU, by what the IPU does meanwhile, what passes its Host-Link,
// and floating-point operations.
struct Cost {
  Cycles compute;
  Cycles exchange;
  Cycles sync;
  Bytes from_host;
  Bytes to_host;
  double flops = 0;

  Cycles total() const { return compute + exchange + sync; }
  Cost& operator+=(const Cost& other);
  friend Cost operator*(Cost cost, uint64_t times);
};

// Price of one instruction on IPU `ipu` of a replica, without the functions that it executes.
Cost Price(const program::v1::Executable& executable, uint32_t ipu,
           const program::v1::Instruction& instruction, const Topology& topology);

// Sum over a whole run of a program on one IPU, without waiting for others; both sides of an If,
// and as many rounds of a While as it may take.
Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology);

// Modelled bytes in use on one IPU: variables and temporaries after reuse, vertex code and state,
// control code, stacks.
Bytes MemoryUse(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology);

// Memory of every IPU of a replica, or ResourceExhausted naming the IPU, the bytes over and the
// three largest tensors when one exceeds 897 MiB.
absl::StatusOr<std::vector<Bytes>> CheckMemory(const program::v1::Executable& executable,
                                               const Topology& topology);

// Cycles of one AMP panel of `rows` rows on one tile (7.2 and F4): 16x16 for float16, 8x16 for
// float32.
Cycles AmpPanelCycles(uint64_t rows, program::v1::DataType type);
// Cycles that syncing with the host adds to a transfer, if the host is ahead (2.6).
Cycles HostSyncCycles(const Topology& topology);

}  // namespace vpod::model

// Costs of programs on the modelled hardware: virtual cycles and bytes, never wall time. Rules and
// their sources are in spec/hardware.md; the functions name its sections.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
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

// Cycles of one instruction on one IPU, by what the IPU does meanwhile, what passes its links, and
// floating-point operations.
struct Cost {
  Cycles compute;
  Cycles exchange;
  Cycles sync;
  Bytes from_host;
  Bytes to_host;
  double flops = 0;
  // Sent to other IPUs.
  Bytes over_ipu_links, over_gw_links;
  Bytes from_streaming_memory, to_streaming_memory;
  Cycles with_streaming_memory;  // of exchange and sync

  Cycles total() const { return compute + exchange + sync; }
  Cost& operator+=(const Cost& other);
  friend Cost operator*(Cost cost, uint64_t times);
};

// Sum over a whole run of a program on one IPU, without waiting for others. Conditions hold, and a
// While takes as many rounds as it may.
Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology);

// The sum over the tiles of an IPU of the most bytes that each has in use (tile_memory.h).
Bytes MemoryUse(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology);

// ResourceExhausted if a tile needs more than its 624 KiB: which IPU, how many tiles and by how
// much, the fullest tiles, what is on them and what to try, in the words of the front that compiled
// the executable. `use`, if there is one, gets the MemoryUse of each IPU of a replica, whether or
// not they fit.
absl::Status CheckMemory(const program::Executable& executable, const Topology& topology,
                         std::vector<Bytes>* use = nullptr);

// Cycles that syncing with the host adds to a transfer, if the host is ahead (2.6).
Cycles HostSyncCycles(const Topology& topology);

}  // namespace vpod::model

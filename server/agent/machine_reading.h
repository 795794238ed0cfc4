// Readings of the machines of an agent process for the exporter, at one moment.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/arch/hardware.h"
#include "device/machine/links.h"
#include "device/machine/machine.h"

namespace vpod::agent {

struct IpuReading {
  std::string partition;  // empty when free
  std::string user;       // the partition's owner
  std::string serial;     // of its board
  bool attached = false;
  bool error = false;  // of the status register, or of memory parity
  uint64_t parity_errors = 0;
  machine::SensorValues sensors;
  uint64_t host_rx_bytes = 0, host_tx_bytes = 0;  // of streams, since the start
};

struct MachineReading {
  std::string agent;  // id; the management address until the controller has told it
  std::array<IpuReading, arch::kIpusPerMachine> ipus;
  // By port; empty where none has ever carried anything and the process holds many machines.
  std::vector<machine::LinkReading> links;
};

}  // namespace vpod::agent

// HTTP exporter of an agent process: the metrics of its machines, on one listener for all of them.
#pragma once

#include <string>
#include <vector>

#include "device/arch/hardware.h"
#include "server/agent/agent.h"
#include "server/agent/machine_reading.h"
#include "server/http/exporter.h"
#include "server/http/metrics.h"
#include "server/http/server.h"

namespace vpod::http {

// `ticks` is the number of this reading.
std::string WriteMachineMetrics(const std::vector<agent::MachineReading>& machines,
                                const arch::MachineType& type, Format format, uint64_t ticks = 1);

// /metrics and /healthz. The agent outlives the server of these routes.
Routes MachineRoutes(agent::Agent& agent, Health health);

}  // namespace vpod::http

// The memory of a profile: what is on the tiles, and when.
#pragma once

#include <vector>

#include "client/profile/operations.h"
#include "client/pva/database.h"
#include "device/model/tile_memory.h"
#include "device/program/executable.h"

namespace vpod::profile {

// Fills the tables `variable`, `memory` and `liveness_step`. `memory` is that of each IPU.
void WriteMemoryTables(const program::Executable& executable, uint32_t program,
                       const ProgramOperations& operations, const model::Topology& topology,
                       const std::vector<model::IpuMemory>& memory, pva::Database& database);

}  // namespace vpod::profile

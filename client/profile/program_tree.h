// The program tree of a profile: functions, their instructions, and what these do on the tiles.
#pragma once

#include "client/profile/operations.h"
#include "client/pva/database.h"
#include "device/model/cost.h"
#include "device/program/executable.h"

namespace vpod::profile {

// Fills the tables `operation`, `program` and `graph`.
void WriteProgramTree(const program::Executable& executable, const ProgramOperations& operations,
                      const model::Topology& topology, pva::Database& database);

}  // namespace vpod::profile

// The pipelining pass: IPUs of a replica work on different micro-batches at the same time.
//
// A stage has a forward and, in programs that train, a backward part; each part has a position. In
// tick t, a position p works on micro-batch (t - p) / period, if that divides and exists; then the
// IPUs exchange what positions of this tick have made for others. A value that a later position of
// the same IPU reads is stashed: in a ring of as many places as there are micro-batches on the way.
#pragma once

#include "absl/status/status.h"
#include "client/compiler/graph_program.h"
#include "client/compiler/lowering.h"

namespace vpod::compiler {

// Splits the bodies of a lowered program into positions, unless it has a single stage.
// InvalidArgument: stages that are missing, on several IPUs or in the wrong order, and too few
// micro-batches to fill the pipeline. `off_chip_stashes`: they lie in streaming memory.
absl::Status MakePipeline(const GraphProgram& source, Schedule schedule, bool off_chip_stashes,
                          LoweredProgram& program);

}  // namespace vpod::compiler

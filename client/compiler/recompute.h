// The recomputation pass: what gradients read of the forward pass is computed again where they need
// it, so that memory does not hold it in between. Takes longer and changes no result.
//
// The gradients of a stage compute again what the same stage computed. Inputs, variables, values of
// other stages, outputs, scalars, values of Graph::Checkpoint, and what depends on buffers that
// micro-batches change are kept in any case.
#pragma once

#include "client/compiler/graph_program.h"

namespace vpod::compiler {

void Recompute(Recomputation recomputation, GraphProgram& program);

}  // namespace vpod::compiler

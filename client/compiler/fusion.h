// Fuses nodes: batch norm takes over the addition and the ReLU beside it, chains of
// element-by-element ops become maps. Results stay the same to the bit.
#pragma once

#include "client/compiler/graph_program.h"

namespace vpod::compiler {

// Forward nodes are not fused with those of the gradients, because that would keep what they read
// until then. The program must not round stochastically: each of its nodes would round by itself.
void Fuse(GraphProgram& program);

}  // namespace vpod::compiler

// Leaves out of a program what nobody needs: nodes whose values reach no output, gradient, buffer
// or remote buffer.
#pragma once

#include "client/compiler/graph_program.h"

namespace vpod::compiler {

// The nodes that make what roundings follow from come first then.
void RemoveDeadCode(GraphProgram& program);

}  // namespace vpod::compiler

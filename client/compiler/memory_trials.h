// Tries what may make a program fit that does not: it is compiled again with one change.
#pragma once

#include <string>

#include "client/compiler/compiler.h"
#include "client/graph/graph.h"
#include "device/model/memory_advice.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// The topology for which a compilation checks memory.
model::Topology TopologyOf(const CompileOptions& options);

// Why the executable of graph and options does not fit and what to try, each with the result of its
// trial. The trials take as long as one compilation for each piece of advice; a program that is
// large has none.
std::string WhyNotFit(const graph::Graph& graph, const CompileOptions& options,
                      const program::Executable& executable, const model::MemoryVerdict& verdict);

}  // namespace vpod::compiler

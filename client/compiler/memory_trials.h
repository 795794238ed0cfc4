// Tries what may make a program fit that does not: it is compiled again with one change.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/compiler/make_executable.h"
#include "client/graph/graph.h"
#include "device/model/memory_advice.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// The replicas that can share tensors out among them.
uint32_t ReplicasOfInstance(const CompileOptions& options);

// The topology for which a compilation checks memory.
model::Topology TopologyOf(const CompileOptions& options);

// Why the executable of graph and options does not fit and what to try, each with the result of its
// trial. The trials take as long as one compilation for each piece of advice; a program that is
// large has none. `before` is called before each step of them; its errors are returned.
absl::StatusOr<std::string> WhyNotFit(const graph::Graph& graph, const CompileOptions& options,
                                      const program::Executable& executable,
                                      const model::MemoryVerdict& verdict,
                                      const BeforeStep& before);

}  // namespace vpod::compiler

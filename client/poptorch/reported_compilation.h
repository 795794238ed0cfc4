// Compiles a model for a device, and leaves the profile of one that does not fit its IPUs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/graph/graph.h"

namespace vpod::poptorch {

// As compiler::CompileCached, with its `miss`. If a profile is asked for and the program does not
// fit, the error of the compiler, with what it has tried, is returned nevertheless; the profile is
// left without runs, and the error says where. With `debug.allowOutOfMemory` false there is none.
absl::StatusOr<compiler::Compiled> CompileOrReport(const graph::Graph& graph,
                                                   const compiler::CompileOptions& options,
                                                   const std::string& cache_directory,
                                                   const compiler::Progress& progress,
                                                   std::string* miss = nullptr);

}  // namespace vpod::poptorch

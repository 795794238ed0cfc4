// All passes of a compilation, one after the other.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/compiler/compiler.h"
#include "client/graph/graph.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// Calls `report` two times for each program and once more. An executable that does not fit the
// memory of an IPU is given, too. InvalidArgument: a mistake in the graph or the options.
absl::StatusOr<std::shared_ptr<const program::Executable>> MakeExecutable(
    const graph::Graph& graph, CompileOptions options,
    const std::function<void(absl::string_view step)>& report);

}  // namespace vpod::compiler

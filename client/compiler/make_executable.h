// All passes of a compilation, one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/compiler/compiler.h"
#include "client/graph/graph.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// A function that is called before each step with its name. An error ends the compilation.
using BeforeStep = std::function<absl::Status(absl::string_view step)>;
inline constexpr uint32_t kStepsOfProgram = 6;

// Calls `before` kStepsOfProgram times for each program and once more. An executable that does not
// fit the memory of an IPU is given, too. InvalidArgument: a mistake in the graph or the options.
// Other errors are those of `before`.
absl::StatusOr<std::shared_ptr<const program::Executable>> MakeExecutable(const graph::Graph& graph,
                                                                          CompileOptions options,
                                                                          const BeforeStep& before);

}  // namespace vpod::compiler

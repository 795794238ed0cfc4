// Compiled executables on disk, so that a graph is compiled once and not at each start. A file
// holds an executable without initial values: these follow from graph and options, which the caller
// has anyway, and are computed each time.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"

namespace vpod::compiler {

// Hexadecimal digits of SHA-256 of everything that an executable follows from: the graph without
// initial values, the options, and the program that compiles (by its linker's build id, which every
// change to compiler, op rules or their flags changes without anybody's doing). FailedPrecondition
// if this program was linked without an id. The environment is not part of it: CompileCached keeps
// nothing that depends on it.
absl::StatusOr<std::string> CacheKey(const graph::Graph& graph, const CompileOptions& options);

// As Compile, but takes the executable from a file of `directory` (made if it is missing) if it is
// there, and otherwise leaves it there. Several processes may use a directory at once. A file that
// is damaged, or is not of this graph, is replaced; what keeps the cache from being used is a
// warning in the log of Poplar, not an error. Without a directory nothing is cached. On a
// miss, `miss` says which parts of the key differ from the key of the nearest file, and is empty if
// there is no other file. A hit does not change `miss`.
absl::StatusOr<Compiled> CompileCached(const graph::Graph& graph, const CompileOptions& options,
                                       const std::string& directory, const Progress& progress = {},
                                       std::string* miss = nullptr);

}  // namespace vpod::compiler

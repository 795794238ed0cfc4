#include "client/poptorch/reported_compilation.h"

#include "absl/strings/str_cat.h"
#include "client/compiler/executable_cache.h"
#include "client/session/profiles.h"
#include "device/base/status.h"

namespace vpod::poptorch {
namespace {

// An IPUModel runs what does not fit; IPUs would refuse to load it.
bool AsksForReport(const compiler::CompileOptions& options) {
  return options.engine && options.engine->report.graph && options.engine->allow_out_of_memory &&
         !options.allow_out_of_memory;
}

// Leaves the profile of a program that does not fit.
absl::Status WriteReport(const graph::Graph& graph, compiler::CompileOptions options,
                         const compiler::Progress& progress) {
  options.allow_out_of_memory = true;
  absl::StatusOr<compiler::Compiled> compiled = compiler::Compile(graph, options, progress);
  if (!compiled.ok()) return compiled.status();
  compiled->fits = false;
  VPOD_ASSIGN_OR_RETURN(
      const auto profiler,
      session::StartProfiles(*compiled, *options.engine,
                             {.part = {.total_replicas = options.total_replicas}}));
  if (profiler == nullptr) return absl::ResourceExhaustedError("the disk is full");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<compiler::Compiled> CompileOrReport(const graph::Graph& graph,
                                                   const compiler::CompileOptions& options,
                                                   const std::string& cache_directory,
                                                   const compiler::Progress& progress,
                                                   std::string* miss) {
  compiler::CompileOptions asked = options;
  const bool reports = AsksForReport(options);
  if (reports) asked.engine->allow_out_of_memory = false;
  absl::StatusOr<compiler::Compiled> compiled =
      compiler::CompileCached(graph, asked, cache_directory, progress, miss);
  if (!reports || !absl::IsResourceExhausted(compiled.status())) return compiled;
  const absl::Status written = WriteReport(graph, asked, progress);
  return absl::ResourceExhaustedError(absl::StrCat(
      compiled.status().message(),
      written.ok() ? absl::StrCat(" A profile is in ", asked.engine->report.directory, ".")
                   : absl::StrCat(" There is no profile: ", written.message(), ".")));
}

}  // namespace vpod::poptorch

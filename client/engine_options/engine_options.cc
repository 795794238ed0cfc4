#include "client/engine_options/engine_options.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod {
namespace {

constexpr char kOptions[] = "POPLAR_ENGINE_OPTIONS";

template <class... Parts>
absl::Status Wrong(absl::string_view source, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", parts...));
}

// Options of the real library that change nothing here.
bool IsKnown(const std::string& name) {
  static const auto* const known =
      new std::set<std::string>{"autoReport.outputArchive",
                                "autoReport.outputDebugInfo",
                                "autoReport.outputLoweredVars",
                                "autoReport.outputSerializedGraph",
                                "autoReport.streamAtEachRun",
                                "debug.branchRecordFlush",
                                "debug.computeInstrumentationLevel",
                                "debug.floatPointOpException",
                                "debug.graphReportDestination",
                                "debug.instrument",
                                "debug.instrumentCompute",
                                "debug.instrumentControlFlow",
                                "debug.instrumentExternalExchange",
                                "debug.loweredVarDumpFile",
                                "debug.nanOverflowMode",
                                "debug.outputAllSymbols",
                                "debug.retainDebugInformation",
                                "debug.runtimeVerify",
                                "exchange.enablePrefetch",
                                "exchange.multicastPolicy",
                                "exchange.streamBufferOverlap",
                                "opt.enableInlining",
                                "opt.enableMultiAccessCopies",
                                "opt.internalExchangeOptimisationTarget",
                                "opt.maxComputeSetsPerLoweredCopy",
                                "opt.useAutoloader",
                                "prng.enableStochasticRounding",
                                "prng.seed",
                                "profiler.blocks.bufferSize",
                                "profiler.blocks.filter",
                                "profiler.blocks.implicitFlush",
                                "profiler.blocks.tile",
                                "profiler.format",
                                "profiler.includeCycleEstimates",
                                "profiler.includeFlopEstimates",
                                "profiler.programs.filter",
                                "streamCallbacks.maxLookahead",
                                "streamCallbacks.multiThreadMode",
                                "streamCallbacks.numWorkerThreads",
                                "target.deterministicWorkers",
                                "target.extendedMemory",
                                "target.firstRuntimeReplica",
                                "target.hostSyncTimeout",
                                "target.numberRuntimeReplica",
                                "target.saveArchive",
                                "target.syncReplicasIndependently"};
  return known->contains(name);
}

}  // namespace

absl::StatusOr<EngineOptions> MakeEngineOptions(const std::map<std::string, std::string>& given,
                                                absl::string_view source) {
  EngineOptions options{.all = given, .source = std::string(source)};
  std::optional<bool> all, graph, execution, allow;
  std::optional<bool> check_finite, sharing;
  const std::map<std::string, std::optional<bool>*> booleans = {
      {"autoReport.all", &all},
      {"autoReport.outputGraphProfile", &graph},
      {"autoReport.outputExecutionProfile", &execution},
      {"debug.allowOutOfMemory", &allow},
      {"debug.checkFinite", &check_finite},
      {"vpod.sharing", &sharing}};
  for (const auto& [option, choice] : given) {
    if (const auto boolean = booleans.find(option); boolean != booleans.end()) {
      if (choice != "true" && choice != "false")
        return Wrong(source, "option '", option, "' is '", choice, "', must be true or false");
      *boolean->second = choice == "true";
    } else if (option == "autoReport.directory") {
      if (choice.empty())
        return Wrong(source, "option '", option, "' is empty, must name a directory");
      options.report.directory = choice;
    } else if (option == "autoReport.executionProfileProgramRunCount") {
      if (!absl::SimpleAtoi(choice, &options.report.runs) || options.report.runs > kMostRuns) {
        return Wrong(source, "option '", option, "' is '", choice,
                     "', must be a whole number from 0 to ", kMostRuns);
      }
    } else if (!IsKnown(option)) {
      options.unknown.push_back(option);
    }
  }
  options.check_finite = check_finite.value_or(false);
  options.sharing = sharing.value_or(true);
  // An execution profile refers to the programs of a graph profile: asked for by itself it implies
  // one, and without one `all` asks for neither.
  options.report.graph = graph.value_or(all.value_or(false)) || execution.value_or(false);
  options.report.execution = execution.value_or(all.value_or(false)) && options.report.graph;
  options.allow_out_of_memory = allow.value_or(options.report.graph);
  return options;
}

absl::StatusOr<EngineOptions> ParseEngineOptions(const std::string& text) {
  std::map<std::string, std::string> options;
  if (text.empty()) return MakeEngineOptions(options, kOptions);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong(kOptions, "'", text, "' is not a JSON object of strings");
  for (const auto& [option, value] : json.items()) {
    if (!value.is_string()) return Wrong(kOptions, "option '", option, "' is not a string");
    options[option] = value.get<std::string>();
  }
  return MakeEngineOptions(options, kOptions);
}

absl::StatusOr<EngineOptions> ReadEngineOptions() {
  const char* text = std::getenv(kOptions);
  return ParseEngineOptions(text == nullptr ? "" : text);
}

}  // namespace vpod

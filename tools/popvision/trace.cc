// When it is executed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {

using pva::Report;

Execution ExecutionOf(const Report& report, uint32_t ipu) {
  Execution execution;
  const uint64_t cycles = CyclesOfRun(report);
  if (cycles == 0) return execution;
  for (const pva::Operation& operation : report.operations) {
    if (operation.ipu != ipu) continue;
    const uint64_t times = operation.executions;
    execution.cycles.compute += operation.cycles.compute * times;
    execution.cycles.exchange += operation.cycles.exchange * times;
    execution.cycles.sync += operation.cycles.sync * times;
    execution.flops += operation.flops * static_cast<double>(times);
    execution.from_host += operation.from_host * times;
    execution.to_host += operation.to_host * times;
  }
  // An IPU that has ended waits for the last one.
  const uint64_t busy = execution.cycles.total();
  execution.waiting = cycles > busy ? cycles - busy : 0;
  return execution;
}

uint64_t CyclesOfRun(const Report& report) {
  uint64_t cycles = report.planned_cycles();
  if (cycles > 0) return cycles;
  // A shorter run left out what depends on a condition.
  for (const pva::Run& run : report.runs) cycles = std::max(cycles, run.cycles);
  return cycles;
}

Table ExecutionTable(const Report& report) {
  Table table{.title = "Execution of a run",
              .columns = {"IPU", "Cycles", "Compute %", "Exchange %", "Sync %", "Waiting %",
                          "TFLOP/s", "From host (bytes)", "To host (bytes)"}};
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    const Execution execution = ExecutionOf(report, ipu);
    const auto total = static_cast<double>(execution.total());
    const auto percent = [&](uint64_t cycles) {
      return Percent(static_cast<double>(cycles), total);
    };
    const double seconds = total / report.target.clock_hz;
    table.rows.push_back({uint64_t{ipu}, execution.total(), percent(execution.cycles.compute),
                          percent(execution.cycles.exchange), percent(execution.cycles.sync),
                          percent(execution.waiting),
                          seconds > 0 ? execution.flops / seconds / 1e12 : 0.0, execution.from_host,
                          execution.to_host});
  }
  return table;
}

std::string LostRuns(const Report& report) {
  if (!report.first_run_lost) return "";
  return absl::StrCat("Runs from run ", *report.first_run_lost,
                      " on are not recorded: the profile could not be written.");
}

std::string WhyNoRun(const Report& report) {
  if (report.first_run_lost) return LostRuns(report);
  const auto option = [&](const char* name) {
    const auto found = report.options.find(name);
    return found == report.options.end() ? std::string() : found->second;
  };
  const std::string execution = option("autoReport.outputExecutionProfile");
  if ((execution.empty() ? option("autoReport.all") : execution) != "true")
    return "No run is recorded: autoReport.outputExecutionProfile is not true. "
           "POPLAR_ENGINE_OPTIONS='{\"autoReport.outputExecutionProfile\":\"true\"}' makes a "
           "program record its first runs.";
  if (option("autoReport.executionProfileProgramRunCount") == "0")
    return "No run is recorded: autoReport.executionProfileProgramRunCount was set to 0.";
  return "No run is recorded: the program did not run, or not to its end.";
}

std::string WhyNoSteps(const Report& report) {
  if (report.planned_cycles() > 0) return "";
  if (report.runs.empty()) return WhyNoRun(report);
  return report.meta.contains("stepsLeftOut") ? "A run has more steps than a profile holds."
                                              : "A run takes no cycles.";
}

namespace {

// Positions of kinds, in the order of Trace.
enum Phase : size_t { kForward, kBackward, kRecompute, kUpdate, kOtherPhase, kPhaseWaiting };
enum Kind : size_t { kCompute, kExchange, kSync, kKindWaiting, kStreamingMemory };

Phase PhaseOf(const pva::Operation& operation) {
  if (operation.phase == "forward") return kForward;
  if (operation.phase == "backward") return kBackward;
  if (operation.phase == "recompute") return kRecompute;
  return operation.phase == "update" ? kUpdate : kOtherPhase;
}

void Append(uint64_t begin, uint64_t end, size_t kind, Lanes::Lane& lane) {
  if (begin == end) return;
  if (!lane.segments.empty() && lane.segments.back().kind == kind &&
      lane.segments.back().end == begin) {
    lane.segments.back().end = end;
  } else {
    lane.segments.push_back({begin, end, kind});
  }
}

Lanes::Lane PhasesOf(const Report& report, uint32_t ipu) {
  Lanes::Lane lane{.name = IpuName(ipu)};
  uint64_t end = 0;
  for (const pva::Step& step : report.steps[ipu]) {
    const uint64_t begin = step.from + step.waiting;
    Append(step.from, begin, kPhaseWaiting, lane);
    Append(begin, step.to, PhaseOf(report.operations[step.operation]), lane);
    end = step.to;
  }
  Append(end, report.planned_cycles(), kPhaseWaiting, lane);
  return lane;
}

Lanes::Lane KindsOf(const Report& report, uint32_t ipu) {
  Lanes::Lane lane{.name = IpuName(ipu)};
  uint64_t end = 0;
  for (const pva::Step& step : report.steps[ipu]) {
    const pva::Operation& operation = report.operations[step.operation];
    uint64_t at = step.from;
    const auto add = [&](uint64_t cycles, Kind kind) {
      Append(at, at + cycles, kind, lane);
      at += cycles;
    };
    add(step.waiting, kKindWaiting);
    add(operation.cycles.sync, kSync);
    add(operation.cycles.exchange, operation.remote_buffer ? kStreamingMemory : kExchange);
    add(operation.cycles.compute, kCompute);
    end = step.to;
  }
  Append(end, report.planned_cycles(), kKindWaiting, lane);
  return lane;
}

std::vector<std::string> NotesOnRuns(const Report& report) {
  std::vector<std::string> notes;
  const uint64_t planned = report.planned_cycles();
  const auto is_any = [&](bool (*differs)(uint64_t cycles, uint64_t planned)) {
    return std::any_of(report.runs.begin(), report.runs.end(),
                       [&](const pva::Run& run) { return differs(run.cycles, planned); });
  };
  if (is_any([](uint64_t cycles, uint64_t planned) { return cycles < planned; })) {
    notes.push_back(
        "A run took fewer cycles than these steps: it left out what depends on a condition, such "
        "as an update whose gradients overflow.");
  }
  if (is_any([](uint64_t cycles, uint64_t planned) { return cycles > planned; })) {
    notes.push_back(
        "A run took more cycles than these steps: they are those of collectives inside an IPU-Link "
        "domain, and collectives between domains take longer.");
  }
  if (report.first_run_lost) notes.push_back(LostRuns(report));
  return notes;
}

}  // namespace

Document Trace(const Report& report) {
  if (const std::string why = WhyNoSteps(report); !why.empty())
    return {.name = "trace", .blocks = {Notes{"Trace", {why}}}};
  Lanes phases{.title = "Phases",
               .unit = "cycles",
               .kinds = {{'F', "forward"},
                         {'B', "backward"},
                         {'r', "recompute"},
                         {'U', "update"},
                         {'-', "other"},
                         {kIdle, "waiting"}},
               .end = report.planned_cycles()};
  Lanes kinds{.title = "Compute, exchange and sync",
              .unit = "cycles",
              .kinds = {{'C', "compute"}, {'E', "exchange"}, {'S', "sync"}, {kIdle, "waiting"}},
              .end = report.planned_cycles()};
  if (!report.remote_buffers.empty()) kinds.kinds.push_back({'M', "streaming memory"});
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    phases.lanes.push_back(PhasesOf(report, ipu));
    kinds.lanes.push_back(KindsOf(report, ipu));
  }
  Document document{.name = "trace",
                    .blocks = {ExecutionTable(report), std::move(phases), std::move(kinds)}};
  if (auto notes = NotesOnRuns(report); !notes.empty())
    document.blocks.push_back(Notes{"Runs", std::move(notes)});
  return document;
}

}  // namespace vpod::popvision

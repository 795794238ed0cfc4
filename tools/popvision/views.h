// The views of a profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/pva/pva.h"
#include "device/model/memory_options.h"
#include "tools/popvision/document.h"

namespace vpod::popvision {

Document Summary(const pva::Report& report);
Document Insights(const pva::Report& report);
Document Memory(const pva::Report& report);
Document Liveness(const pva::Report& report);
Document ProgramTree(const pva::Report& report);
Document Operations(const pva::Report& report);
Document Trace(const pva::Report& report);
// Title and origin of a page about a profile, and what is wrong: IPUs that are out of memory, runs
// that are missing.
PageHead HeadOf(const pva::Report& report);
// The changes from one profile to another.
Document Diff(const pva::Report& before, const pva::Report& after);

// --- What several views show ---

// The execution of an IPU in a run, by how often it executes its operations; the rest of the run it
// waits. Nothing if no run is recorded.
struct Execution {
  pva::CycleSplit cycles;
  uint64_t waiting = 0;
  double flops = 0;
  uint64_t from_host = 0, to_host = 0;
  uint64_t total() const { return cycles.total() + waiting; }
};
Execution ExecutionOf(const pva::Report& report, uint32_t ipu);

// Traffic of an IPU with streaming memory in a run: bytes, and the cycles of the operations
// that move them.
struct StreamingTraffic {
  uint64_t from = 0, to = 0, cycles = 0;
};
StreamingTraffic StreamingTrafficOf(const pva::Report& report, uint32_t ipu);
// None for a program that keeps nothing there.
std::optional<Table> StreamingMemoryTable(const pva::Report& report);
// Names what an IPU moves, and what makes it less.
std::string StreamingMemoryAdvice(const pva::Report& report, uint32_t ipu);

Table ExecutionTable(const pva::Report& report);
// Categories of all IPUs, their fullest tiles, and how many tiles have too much.
Table MemoryTable(const pva::Report& report);
uint64_t Sum(const std::vector<uint64_t>& values);

// The step of liveness in which most bytes of an IPU are in use, with what operations receive.
size_t PeakStep(const pva::Report& report, uint32_t ipu);
// Variables that are live in a step, the largest first; those that are always live, if asked for.
std::vector<const pva::Variable*> LiveAt(const pva::Report& report, uint32_t ipu, size_t step,
                                         bool always);

// Why a profile has no steps of a run; empty if it has.
std::string WhyNoSteps(const pva::Report& report);
// Why a profile has no run.
std::string WhyNoRun(const pva::Report& report);
// From which run on none is recorded, and why; empty if all are.
std::string LostRuns(const pva::Report& report);
// Cycles of a run; 0 if none is recorded.
uint64_t CyclesOfRun(const pva::Report& report);
// Share of the tiles that work while an operation's compute sets do, weighed by their cycles.
struct Balance {
  double worked = 0, all = 0;
  Balance& operator+=(const Balance& other);
};
std::vector<Balance> Balances(const pva::Report& report);  // by operation, of one execution

double Percent(double part, double whole);
// "12 %", "less than 1 %"
std::string PercentText(double percent);
// Whether replicas share the state of the optimiser out among them.
bool SharesOutState(const pva::Report& report);
// "IPU 1 is out of memory: …"; empty if its tiles have what they need.
std::string OutOfMemoryNote(const pva::Report& report, uint32_t ipu);
// The part of Insights about the memory of an IPU.
std::vector<std::string> MemoryInsights(const pva::Report& report, uint32_t ipu);
// How the front of the program spells its options; those of C++ if the profile does not say it.
model::OptionNames OptionNamesOf(const pva::Report& report);
// "more gradient accumulation (ProgramSpec::accumulation)"; the option is left out if it is empty.
std::string WithOption(absl::string_view advice, const std::string& option);
std::string MoreAccumulation(const pva::Report& report);
// "IPU 0"
std::string IpuName(uint32_t ipu);

}  // namespace vpod::popvision

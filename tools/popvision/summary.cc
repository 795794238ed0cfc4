#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/pva/schema.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {

using pva::Report;

double Percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string PercentText(double percent) {
  return percent > 0 && percent < 1 ? "less than 1 %" : absl::StrFormat("%.0f %%", percent);
}

std::string IpuName(uint32_t ipu) { return absl::StrCat("IPU ", ipu); }

namespace {

// Nothing of a profile that another version wrote without them.
std::optional<Facts> WeightTransfers(const Report& report) {
  Facts facts{"Weights of a replica, which runs leave on the IPUs", {}};
  for (const auto& [key, name] : {std::pair(pva::kWeightsFromHost, "Cycles from the host"),
                                  std::pair(pva::kWeightsToHost, "Cycles to the host")}) {
    uint64_t cycles = 0;
    const auto value = report.meta.find(key);
    if (value == report.meta.end() || !absl::SimpleAtoi(value->second, &cycles))
      return std::nullopt;
    facts.facts.emplace_back(name, cycles);
  }
  return facts;
}

}  // namespace

Document Summary(const Report& report) {
  Document document{.name = "summary"};
  const pva::Target& target = report.target;
  document.blocks.push_back(
      Facts{"Target",
            {{"Program", report.program_name()},
             {"Type", target.type},
             {"Architecture", target.architecture},
             {"Clock (MHz)", target.clock_hz / 1e6},
             {"IPUs", uint64_t{target.num_ipus}},
             {"Replicas", uint64_t{target.num_replicas}},
             {"IPUs per replica", uint64_t{target.ipus_per_replica}},
             {"Tiles per IPU", uint64_t{target.tiles_per_ipu}},
             {"Memory per tile (bytes)", target.bytes_per_tile},
             {"Memory per IPU (bytes)", target.bytes_per_tile * target.tiles_per_ipu}}});
  document.blocks.push_back(Facts{"Graph of a replica",
                                  {{"Compute sets", report.graph.num_compute_sets},
                                   {"Vertices", report.graph.num_vertices},
                                   {"Edges", report.graph.num_edges},
                                   {"Variables", report.graph.num_vars}}});
  if (!report.options.empty()) {
    Facts options{"Engine options", {}};
    for (const auto& [key, value] : report.options) options.facts.emplace_back(key, value);
    document.blocks.push_back(std::move(options));
  }
  document.blocks.push_back(MemoryTable(report));
  if (!report.streams.empty()) {
    Table streams{.title = "Host streams of a replica in a run",
                  .columns = {"Stream", "IPU", "Direction", "Bytes"}};
    for (const pva::Stream& stream : report.streams) {
      streams.rows.push_back({stream.name, uint64_t{stream.ipu},
                              std::string(stream.to_device ? "to device" : "from device"),
                              stream.bytes});
    }
    document.blocks.push_back(std::move(streams));
  }
  if (auto table = StreamingMemoryTable(report)) document.blocks.push_back(*std::move(table));
  if (auto facts = WeightTransfers(report)) document.blocks.push_back(*std::move(facts));
  if (report.runs.empty()) {
    document.blocks.push_back(Notes{"Execution", {WhyNoRun(report)}});
    return document;
  }
  document.blocks.push_back(ExecutionTable(report));
  Table runs{.title = "Runs", .columns = {"Run", "Cycles", "ms"}};
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const uint64_t cycles = report.runs[i].cycles;
    runs.rows.push_back({uint64_t{i}, cycles, 1e3 * static_cast<double>(cycles) / target.clock_hz});
  }
  document.blocks.push_back(std::move(runs));
  if (report.first_run_lost)
    document.blocks.push_back(Notes{"Runs that are missing", {LostRuns(report)}});
  return document;
}

}  // namespace vpod::popvision

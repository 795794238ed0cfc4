// Shows what changed from one profile to another.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using pva::Report;
// By name; nothing where a profile does not say.
using Figures = std::vector<std::pair<std::string, std::optional<uint64_t>>>;

constexpr size_t kShown = 20;  // operations

std::vector<Value> RowOf(const std::string& name, std::optional<uint64_t> before,
                         std::optional<uint64_t> after) {
  const auto value = [](std::optional<uint64_t> figure) {
    return figure ? Value(*figure) : Value();
  };
  Value change, percent;  // of nothing there is none
  if (before && after) {
    const auto difference = static_cast<int64_t>(*after - *before);
    change = difference;
    if (*before > 0)
      percent = Percent(static_cast<double>(difference), static_cast<double>(*before));
  }
  return {name, value(before), value(after), change, percent};
}

// A row for each name of either, in the order of the second, then of the first.
Table Compare(const std::string& title, const std::string& what, const Figures& before,
              const Figures& after) {
  Table table{.title = title, .columns = {what, "Before", "After", "Change", "Change %"}};
  const std::map<std::string, std::optional<uint64_t>> old(before.begin(), before.end()),
      now(after.begin(), after.end());
  std::set<std::string> done;
  for (const Figures* figures : {&after, &before}) {
    for (const auto& [name, unused] : *figures) {
      if (!done.insert(name).second) continue;
      table.rows.push_back(RowOf(name, old.contains(name) ? old.at(name) : 0,
                                 now.contains(name) ? now.at(name) : 0));
    }
  }
  return table;
}

Figures Totals(const Report& report) {
  const uint64_t cycles = CyclesOfRun(report);
  Figures figures = {{"cycles of a run", cycles > 0 ? std::optional(cycles) : std::nullopt}};
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    const std::vector<uint64_t> tiles = report.BytesByTile(ipu);
    figures.emplace_back(absl::StrCat("bytes of ", IpuName(ipu)), Sum(tiles));
    figures.emplace_back(absl::StrCat("bytes of the fullest tile of ", IpuName(ipu)),
                         *std::max_element(tiles.begin(), tiles.end()));
  }
  uint64_t to_device = 0, from_device = 0;
  StreamingTraffic streaming;
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    const StreamingTraffic traffic = StreamingTrafficOf(report, ipu);
    streaming.from += traffic.from;
    streaming.to += traffic.to;
  }
  for (const pva::Stream& stream : report.streams)
    (stream.to_device ? to_device : from_device) += stream.bytes;
  figures.emplace_back("bytes of streams to the device", to_device);
  figures.emplace_back("bytes of streams from the device", from_device);
  figures.emplace_back("bytes from streaming memory", streaming.from);
  figures.emplace_back("bytes to streaming memory", streaming.to);
  return figures;
}

Figures Categories(const Report& report) {
  std::map<std::string, uint64_t> sums;
  for (const pva::Memory& memory : report.memory) {
    for (const pva::TileRun& run : memory.bytes_by_tile)
      sums[memory.category] += run.value * run.tiles;
  }
  return {sums.begin(), sums.end()};
}

template <class Name>
Figures Cycles(const Report& report, const Name& name) {
  std::map<std::string, uint64_t> sums;
  for (const pva::Operation& operation : report.operations)
    sums[name(operation)] += operation.all_cycles().total();
  return {sums.begin(), sums.end()};
}

}  // namespace

Document Diff(const Report& before, const Report& after) {
  Document document{.name = "diff"};
  document.blocks.push_back(Compare("Totals", "Figure", Totals(before), Totals(after)));
  std::vector<std::string> missing;
  for (const auto& [name, report] : {std::pair{"Before", &before}, {"After", &after}}) {
    if (CyclesOfRun(*report) == 0)
      missing.push_back(absl::StrCat(name, ", ", report->path, ": ", WhyNoRun(*report)));
  }
  if (!missing.empty()) document.blocks.push_back(Notes{"Runs that are missing", missing});
  document.blocks.push_back(
      Compare("Memory of a replica, bytes", "Category", Categories(before), Categories(after)));
  const auto phase = [](const pva::Operation& operation) {
    return operation.phase.empty() ? std::string("other") : operation.phase;
  };
  document.blocks.push_back(Compare("Cycles of all IPUs of a replica in a run", "Phase",
                                    Cycles(before, phase), Cycles(after, phase)));
  const auto name = [](const pva::Operation& operation) { return operation.name; };
  Table operations = Compare("Operations whose cycles changed most", "Operation",
                             Cycles(before, name), Cycles(after, name));
  const auto change = [](const std::vector<Value>& row) {
    return std::abs(static_cast<double>(std::get<int64_t>(row[3])));
  };
  std::erase_if(operations.rows, [&](const auto& row) { return change(row) == 0; });
  std::stable_sort(operations.rows.begin(), operations.rows.end(),
                   [&](const auto& a, const auto& b) { return change(a) > change(b); });
  operations.rows.resize(std::min(operations.rows.size(), kShown));
  document.blocks.push_back(std::move(operations));
  return document;
}

}  // namespace vpod::popvision

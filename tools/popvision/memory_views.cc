// Memory: of the tiles, and over the steps of the program.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using pva::Report;

constexpr size_t kShown = 20;  // of variables

std::vector<std::string> Categories(const Report& report) {
  std::vector<std::string> names;
  for (const pva::Memory& memory : report.memory) {
    if (memory.ipu == 0) names.push_back(memory.category);
  }
  return names;
}

Table VariableTable(const std::string& title, const std::vector<const pva::Variable*>& variables) {
  Table table{.title = title,
              .columns = {"Variable", "Type", "Bytes", "Tiles", "Bytes per tile", "Live"}};
  for (size_t i = 0; i < std::min(kShown, variables.size()); ++i) {
    const pva::Variable& variable = *variables[i];
    table.rows.push_back({variable.name, variable.type, variable.bytes, uint64_t{variable.tiles},
                          variable.bytes_per_tile,
                          variable.always_live
                              ? std::string("always")
                              : absl::StrCat(variable.first_step, " to ", variable.last_step)});
  }
  return table;
}

}  // namespace

uint64_t Sum(const std::vector<uint64_t>& values) {
  uint64_t sum = 0;
  for (uint64_t value : values) sum += value;
  return sum;
}

Table MemoryTable(const Report& report) {
  Table table{.title = "Memory", .columns = {"IPU"}};
  const std::vector<std::string> categories = Categories(report);
  table.columns.insert(table.columns.end(), categories.begin(), categories.end());
  for (const char* column : {"total", "fullest tile", "of tile %", "tiles over"})
    table.columns.push_back(column);
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    std::vector<Value>& row = table.rows.emplace_back();
    row.emplace_back(uint64_t{ipu});
    for (const std::string& category : categories)
      row.emplace_back(Sum(report.BytesByTile(ipu, category)));
    const std::vector<uint64_t> tiles = report.BytesByTile(ipu);
    const uint64_t fullest = *std::max_element(tiles.begin(), tiles.end());
    row.emplace_back(Sum(tiles));
    row.emplace_back(fullest);
    row.emplace_back(
        Percent(static_cast<double>(fullest), static_cast<double>(report.target.bytes_per_tile)));
    row.emplace_back(
        static_cast<uint64_t>(std::count_if(tiles.begin(), tiles.end(), [&](uint64_t bytes) {
          return bytes > report.target.bytes_per_tile;
        })));
  }
  return table;
}

size_t PeakStep(const Report& report, uint32_t ipu) {
  const std::vector<pva::LivenessStep>& steps = report.liveness[ipu];
  const auto bytes = [&](const pva::LivenessStep& step) {
    return step.not_always_live + step.temporary_per_tile * report.target.tiles_per_ipu;
  };
  const auto peak = std::max_element(
      steps.begin(), steps.end(),
      [&](const pva::LivenessStep& a, const pva::LivenessStep& b) { return bytes(a) < bytes(b); });
  return static_cast<size_t>(peak - steps.begin());
}

std::vector<const pva::Variable*> LiveAt(const Report& report, uint32_t ipu, size_t step,
                                         bool always) {
  std::vector<const pva::Variable*> live;
  for (const pva::Variable& variable : report.variables) {
    if (variable.ipu != ipu || variable.always_live != always) continue;
    if (always || (variable.first_step <= step && step <= variable.last_step))
      live.push_back(&variable);
  }
  std::stable_sort(live.begin(), live.end(), [](const pva::Variable* a, const pva::Variable* b) {
    return a->bytes > b->bytes;
  });
  return live;
}

Document Memory(const Report& report) {
  Document document{.name = "memory"};
  document.blocks.push_back(MemoryTable(report));
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    Chart chart{.title = absl::StrCat("Memory of ", IpuName(ipu), " by tile"),
                .unit = "bytes",
                .axis = "tile",
                .limit = report.target.bytes_per_tile};
    for (const std::string& category : Categories(report))
      chart.series.push_back({category, report.BytesByTile(ipu, category)});
    document.blocks.push_back(std::move(chart));
    const std::vector<uint64_t> tiles = report.BytesByTile(ipu);
    std::vector<uint64_t> order(tiles.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint64_t a, uint64_t b) { return tiles[a] > tiles[b]; });
    Table fullest{.title = absl::StrCat("Fullest tiles of ", IpuName(ipu)),
                  .columns = {"Tile", "Bytes", "of tile %"}};
    for (size_t i = 0; i < std::min<size_t>(5, order.size()); ++i) {
      const uint64_t bytes = tiles[order[i]];
      fullest.rows.push_back(
          {order[i], bytes,
           Percent(static_cast<double>(bytes), static_cast<double>(report.target.bytes_per_tile))});
    }
    document.blocks.push_back(std::move(fullest));
    document.blocks.push_back(
        VariableTable(absl::StrCat("Largest always-live variables of ", IpuName(ipu)),
                      LiveAt(report, ipu, 0, /*always=*/true)));
  }
  return document;
}

Document Liveness(const Report& report) {
  Document document{.name = "liveness"};
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    const std::vector<pva::LivenessStep>& steps = report.liveness[ipu];
    const std::string title = absl::StrCat("Memory of ", IpuName(ipu), " in use");
    if (steps.empty()) {
      document.blocks.push_back(Notes{title, {absl::StrCat(IpuName(ipu), " executes nothing.")}});
      continue;
    }
    const uint64_t always = Sum(report.BytesByTile(ipu, "always live"));
    Chart chart{.title = title,
                .unit = "bytes",
                .axis = "program step",
                .series = {{"always live", std::vector<uint64_t>(steps.size(), always)},
                           {"not always live", {}},
                           {"received and added up", {}}}};
    for (const pva::LivenessStep& step : steps) {
      chart.series[1].values.push_back(step.not_always_live);
      chart.series[2].values.push_back(step.temporary_per_tile * report.target.tiles_per_ipu);
    }
    document.blocks.push_back(std::move(chart));
    const size_t peak = PeakStep(report, ipu);
    document.blocks.push_back(
        Facts{absl::StrCat("Peak of ", IpuName(ipu)),
              {{"Step", uint64_t{peak}},
               {"Operation", report.operations[steps[peak].operation].name},
               {"Always live (bytes)", always},
               {"Not always live (bytes)", steps[peak].not_always_live},
               {"Temporary data, per tile (bytes)", steps[peak].temporary_per_tile}}});
    document.blocks.push_back(
        VariableTable(absl::StrCat("Largest values of ", IpuName(ipu), " at the peak"),
                      LiveAt(report, ipu, peak, /*always=*/false)));
  }
  return document;
}

}  // namespace vpod::popvision

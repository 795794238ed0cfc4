// What is executed: the tree of the program, and its operations.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {

using pva::Report;

Document ProgramTree(const Report& report) {
  Document document{.name = "program"};
  std::vector<std::vector<uint32_t>> children(report.programs.size());
  for (uint32_t i = 0; i < report.programs.size(); ++i) {
    if (report.programs[i].parent) children[*report.programs[i].parent].push_back(i);
  }
  // Functions come before those that call them: the last of an IPU is where it begins.
  std::vector<std::vector<uint32_t>> functions(report.target.ipus_per_replica);
  for (uint32_t i = 0; i < report.programs.size(); ++i) {
    if (!report.programs[i].parent) functions[report.programs[i].ipu].push_back(i);
  }
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    Table table{
        .title = absl::StrCat("Program of ", IpuName(ipu)),
        .columns = {"Program", "Times", "Compute", "Exchange", "Sync", "Vertices", "Balance %"}};
    std::set<uint32_t> shown;  // functions
    struct Place {
      uint32_t program, depth;
    };
    std::vector<Place> pending;
    if (!functions[ipu].empty()) pending.push_back({functions[ipu].back(), 0});
    while (!pending.empty()) {
      const Place place = pending.back();
      pending.pop_back();
      const pva::Program& program = report.programs[place.program];
      const bool again = !program.parent && !shown.insert(place.program).second;
      table.rows.push_back(
          {absl::StrCat(std::string(2 * std::min(place.depth, 40u), ' '), program.type, " ",
                        program.name, again ? " (as above)" : ""),
           program.times, program.cycles.compute, program.cycles.exchange, program.cycles.sync,
           program.vertices, 100 * program.tile_balance});
      if (again) continue;
      const std::vector<uint32_t>& below = children[place.program];
      for (size_t i = below.size(); i-- > 0;) pending.push_back({below[i], place.depth + 1});
      if (program.callee) pending.push_back({*program.callee, place.depth + 1});
    }
    document.blocks.push_back(std::move(table));
  }
  return document;
}

Balance& Balance::operator+=(const Balance& other) {
  worked += other.worked;
  all += other.all;
  return *this;
}

std::vector<Balance> Balances(const Report& report) {
  std::vector<Balance> balances(report.operations.size());
  for (const pva::Program& program : report.programs) {
    if (program.vertices == 0 || !program.parent) continue;
    const auto& operation = report.programs[*program.parent].operation;
    if (!operation) continue;
    const auto cycles = static_cast<double>(program.cycles.compute);
    balances[*operation] += {program.tile_balance * cycles, cycles};
  }
  return balances;
}

Document Operations(const Report& report) {
  Document document{.name = "operations"};
  struct Row {
    uint64_t executions = 0;
    pva::CycleSplit cycles;
    double flops = 0;
    uint64_t streaming = 0;  // bytes from and to streaming memory
    Balance balance;
  };
  std::map<std::pair<std::string, std::string>, Row> rows;  // by name and phase
  std::map<std::string, Row> phases, kinds;
  const std::vector<Balance> balances = Balances(report);
  uint64_t all = 0;
  for (size_t i = 0; i < report.operations.size(); ++i) {
    const pva::Operation& operation = report.operations[i];
    const pva::CycleSplit cycles = operation.all_cycles();
    const auto executions = static_cast<double>(operation.executions);
    all += cycles.total();
    for (Row* row : {&rows[{operation.name, operation.phase}], &phases[operation.phase],
                     &kinds[operation.instruction]}) {
      row->executions += operation.executions;
      row->cycles.compute += cycles.compute;
      row->cycles.exchange += cycles.exchange;
      row->cycles.sync += cycles.sync;
      row->flops += operation.flops * executions;
      row->streaming +=
          (operation.from_streaming_memory + operation.to_streaming_memory) * operation.executions;
      row->balance += {balances[i].worked * executions, balances[i].all * executions};
    }
  }
  const auto cells = [&](const std::string& name, const Row& row) -> std::vector<Value> {
    return {name,
            row.executions,
            row.cycles.total(),
            Percent(static_cast<double>(row.cycles.total()), static_cast<double>(all)),
            row.cycles.compute,
            row.cycles.exchange,
            row.cycles.sync,
            row.flops / 1e9,
            row.streaming,
            Percent(row.balance.worked, row.balance.all)};
  };
  const auto table = [&](const std::string& title, const std::string& what) {
    return Table{.title = title,
                 .columns = {what, "Executions", "Cycles", "of all %", "Compute", "Exchange",
                             "Sync", "GFLOP", "Streaming memory (bytes)", "Balance %"}};
  };
  const auto grouped = [&](const std::string& title, const std::string& what,
                           const std::map<std::string, Row>& groups) {
    Table shown = table(title, what);
    for (const auto& [name, row] : groups)
      shown.rows.push_back(cells(name.empty() ? "other" : name, row));
    std::stable_sort(shown.rows.begin(), shown.rows.end(), [](const auto& a, const auto& b) {
      return std::get<uint64_t>(a[2]) > std::get<uint64_t>(b[2]);
    });
    return shown;
  };
  document.blocks.push_back(grouped("Phases, all IPUs of a replica in a run", "Phase", phases));
  document.blocks.push_back(grouped("Instructions", "Instruction", kinds));
  Table slowest = table("Operations", "Operation");
  for (const auto& [key, row] : rows) slowest.rows.push_back(cells(key.first, row));
  std::stable_sort(slowest.rows.begin(), slowest.rows.end(), [](const auto& a, const auto& b) {
    return std::get<uint64_t>(a[2]) > std::get<uint64_t>(b[2]);
  });
  document.blocks.push_back(std::move(slowest));
  return document;
}

}  // namespace vpod::popvision

// Views of what is executed: the tree of the program, and its operations.
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

namespace {

// The sum of what operations of a group do in a run.
struct Work {
  uint64_t executions = 0;
  pva::CycleSplit cycles;
  double flops = 0;
  uint64_t streaming = 0;  // bytes from and to streaming memory
  Balance balance;

  void Add(const pva::Operation& operation, const Balance& of_one) {
    const pva::CycleSplit all = operation.all_cycles();
    const auto times = static_cast<double>(operation.executions);
    executions += operation.executions;
    cycles.compute += all.compute;
    cycles.exchange += all.exchange;
    cycles.sync += all.sync;
    flops += operation.flops * times;
    streaming +=
        (operation.from_streaming_memory + operation.to_streaming_memory) * operation.executions;
    balance += {of_one.worked * times, of_one.all * times};
  }
};

// A row for each group, those with most cycles first.
Table WorkTable(const std::string& title, const std::string& what,
                const std::vector<std::pair<std::string, Work>>& groups) {
  Table table{.title = title,
              .columns = {what, "Executions", "Cycles", "of all %", "Compute", "Exchange", "Sync",
                          "GFLOP", "Streaming memory (bytes)", "Balance %"}};
  uint64_t all = 0;
  for (const auto& [name, work] : groups) all += work.cycles.total();
  for (const auto& [name, work] : groups) {
    table.rows.push_back(
        {name.empty() ? "other" : name, work.executions, work.cycles.total(),
         Percent(static_cast<double>(work.cycles.total()), static_cast<double>(all)),
         work.cycles.compute, work.cycles.exchange, work.cycles.sync, work.flops / 1e9,
         work.streaming, Percent(work.balance.worked, work.balance.all)});
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), [](const auto& a, const auto& b) {
    return std::get<uint64_t>(a[2]) > std::get<uint64_t>(b[2]);
  });
  return table;
}

}  // namespace

Document Operations(const Report& report) {
  std::map<std::string, Work> phases, instructions;
  std::map<std::pair<std::string, std::string>, Work> by_name_and_phase;
  const std::vector<Balance> balances = Balances(report);
  for (size_t i = 0; i < report.operations.size(); ++i) {
    const pva::Operation& operation = report.operations[i];
    for (Work* work : {&phases[operation.phase], &instructions[operation.instruction],
                       &by_name_and_phase[{operation.name, operation.phase}]})
      work->Add(operation, balances[i]);
  }
  std::vector<std::pair<std::string, Work>> operations;
  for (const auto& [key, work] : by_name_and_phase) operations.emplace_back(key.first, work);
  return {.name = "operations",
          .blocks = {
              WorkTable("Phases, all IPUs of a replica in a run", "Phase",
                        {phases.begin(), phases.end()}),
              WorkTable("Instructions", "Instruction", {instructions.begin(), instructions.end()}),
              WorkTable("Operations", "Operation", operations)}};
}

}  // namespace vpod::popvision

#include "tools/vpod/plan_executable.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/compiler/executable_file.h"
#include "client/plan/executable_plan.h"
#include "client/render/table.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "tools/vpod/plan_rows.h"

namespace vpod::tools {
namespace {

struct PodPlan {
  std::string machine_type;
  uint32_t pod;
  std::shared_ptr<const program::Executable> executable;
  plan::ExecutablePlan plan;
};

// A run of a program on a POD.
struct Row {
  const PodPlan& of;
  uint32_t program;
  const plan::RunPlan& run;
  double efficiency;

  PodRow figures() const {
    return {of.machine_type, of.pod, of.plan, run.timeline, run.items_per_second(), efficiency};
  }
};

// Program by program.
std::vector<Row> RowsOf(const std::vector<PodPlan>& plans) {
  std::vector<Row> rows;
  for (uint32_t program = 0; program < plans[0].plan.runs.size(); ++program) {
    Efficiency efficiency;
    for (const PodPlan& each : plans)
      efficiency.Add(each.machine_type, each.pod, each.plan.runs[program].seconds);
    for (const PodPlan& each : plans) {
      const plan::RunPlan& run = each.plan.runs[program];
      rows.push_back({each, program, run, efficiency.Of(each.machine_type, run.seconds)});
    }
  }
  return rows;
}

std::string Table(const std::vector<Row>& rows) {
  render::Table table{
      .headings = PlanHeadings(
          {.first = {"Program"}, .items = {"Items/run"}, .times = {"Cycles/run", "ms/run"}})};
  for (const Row& row : rows) {
    table.rows.push_back(
        PlanCells(row.figures(), {.first = {base::Printable(row.run.program)},
                                  .items = {absl::StrCat(row.run.items)},
                                  .times = {absl::StrCat(row.run.timeline.end().value()),
                                            absl::StrFormat("%.3f", row.run.seconds * 1e3)}}));
  }
  return render::StyleH(table);
}

IpuFigures FiguresOf(const Row& row) {
  return {row.run.timeline, row.of.plan.memory,
          plan::PhasesOf(*row.of.executable, row.program, row.of.plan.topology)};
}

std::string Explanation(const Row& row) {
  return absl::StrCat("\nProgram '", base::Printable(row.run.program), "', POD of ", row.of.pod,
                      " IPUs of type ", row.of.machine_type, ", the IPUs of a replica:\n",
                      IpuTables(FiguresOf(row)));
}

nlohmann::ordered_json Json(const Row& row, bool explain) {
  const plan::RunPlan& run = row.run;
  nlohmann::ordered_json json =
      PlanJson(row.figures(), {.first = {{"program", run.program}},
                               .items = {{"items_per_run", run.items}},
                               .times = {{"has_collectives", run.has_collectives},
                                         {"cycles_per_run", run.timeline.end().value()},
                                         {"seconds_per_run", run.seconds}}});
  if (explain) AddDetails(json, FiguresOf(row), std::string(row.of.plan.fits.message()));
  return json;
}

std::string Text(const std::vector<PodPlan>& plans, PlanFormat format, bool explain) {
  const std::vector<Row> rows = RowsOf(plans);
  if (format != PlanFormat::kTable) {
    std::vector<nlohmann::ordered_json> all;
    for (const Row& row : rows) all.push_back(Json(row, explain));
    return format == PlanFormat::kCsv ? Csv(all) : Dump(nlohmann::ordered_json(all), 2) + "\n";
  }
  std::string text = Table(rows);
  for (size_t i = 0; i < rows.size(); i += plans.size()) {
    if (!rows[i].run.has_collectives)
      absl::StrAppend(&text, "Program '", base::Printable(rows[i].run.program),
                      "' has no collectives: its replicas exchange nothing.\n");
  }
  if (!explain) return text;
  for (const Row& row : rows) text += Explanation(row);
  // Once, for the first POD where it does not.
  const auto full = std::find_if(plans.begin(), plans.end(),
                                 [](const PodPlan& each) { return !each.plan.fits.ok(); });
  if (full != plans.end()) {
    absl::StrAppend(&text, "\nPOD of ", full->pod, " IPUs of type ", full->machine_type, ": ",
                    base::Printable(full->plan.fits.message(), std::string::npos), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const program::Executable>> ReadExecutable(const std::string& path) {
  // A named pipe would wait for a writer.
  VPOD_RETURN_IF_ERROR(base::CheckIsFileOrNothing(path));
  absl::StatusOr<compiler::ExecutableFile> file =
      compiler::ReadExecutableFile(path, compiler::LimitsWithoutMemory());
  if (file.ok()) return std::move(file->executable);
  if (!absl::IsInvalidArgument(file.status())) return file.status();  // it cannot be read
  return absl::DataLossError(absl::StrCat("file '", path, "': ", file.status().message()));
}

absl::StatusOr<PlanOutput> ExecutablePlan(const ExecutableFor& executable_for,
                                          const Systems& systems, PlanFormat format, bool explain) {
  std::vector<PodPlan> plans;
  std::vector<std::string> notes;
  absl::Status refused;  // of the first that is left out
  for (uint32_t pod : systems.pods) {
    VPOD_ASSIGN_OR_RETURN(const auto executable, executable_for(pod));
    const absl::Status is_for_pod = plan::CheckPod(*executable, pod);
    if (!is_for_pod.ok()) {
      refused.Update(is_for_pod);
      notes.push_back(absl::StrCat("left out: ", is_for_pod.message()));
      continue;
    }
    for (const std::string& machine_type : systems.machine_types) {
      VPOD_ASSIGN_OR_RETURN(plan::ExecutablePlan plan,
                            plan::PlanExecutable(*executable, pod, machine_type));
      plans.push_back({machine_type, pod, executable, std::move(plan)});
    }
  }
  if (plans.empty()) return refused;
  return PlanOutput{Text(plans, format, explain), std::move(notes)};
}

}  // namespace vpod::tools

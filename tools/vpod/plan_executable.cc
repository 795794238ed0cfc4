#include "tools/vpod/plan_executable.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/compiler/executable_file.h"
#include "client/plan/executable_plan.h"
#include "client/render/table.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/text.h"

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
};

// Program by program.
std::vector<Row> RowsOf(const std::vector<PodPlan>& plans) {
  std::map<std::string, const PodPlan*> smallest;  // by type of machine
  for (const PodPlan& each : plans) {
    const PodPlan*& least = smallest.try_emplace(each.machine_type, &each).first->second;
    if (each.pod < least->pod) least = &each;
  }
  std::vector<Row> rows;
  for (size_t program = 0; program < plans[0].plan.runs.size(); ++program) {
    for (const PodPlan& each : plans) {
      const plan::RunPlan &run = each.plan.runs[program],
                          &of_smallest = smallest.at(each.machine_type)->plan.runs[program];
      rows.push_back(
          {each, static_cast<uint32_t>(program), run, of_smallest.seconds / run.seconds});
    }
  }
  return rows;
}

std::string Table(const std::vector<Row>& rows) {
  render::Table table{.headings = {"Program", "Machine", "IPUs", "Replicas", "Items/run", "Items/s",
                                   "Efficiency", "Cycles/run", "ms/run", "Compute", "Exchange",
                                   "Sync", "Waiting", "IPU-Links (MB)", "GW-Links (MB)",
                                   "Memory (MB)", "Fits"}};
  for (const auto& [of, program, run, efficiency] : rows) {
    const Shares shares = SharesOf(run.timeline);
    table.rows.push_back({base::Printable(run.program), of.machine_type, absl::StrCat(of.pod),
                          absl::StrCat(of.plan.replicas), absl::StrCat(run.items),
                          absl::StrFormat("%.0f", run.items_per_second()), Percent(efficiency),
                          absl::StrCat(run.timeline.end().value()),
                          absl::StrFormat("%.3f", run.seconds * 1e3), Percent(shares.compute),
                          Percent(shares.exchange), Percent(shares.sync), Percent(shares.waiting),
                          absl::StrFormat("%.3f", Megabytes(run.timeline.over_ipu_links())),
                          absl::StrFormat("%.3f", Megabytes(run.timeline.over_gw_links())),
                          absl::StrFormat("%.1f", Megabytes(MostMemory(of.plan.memory))),
                          of.plan.fits.ok() ? "yes" : "no"});
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
  const auto& [of, program, run, efficiency] = row;
  const Shares shares = SharesOf(run.timeline);
  nlohmann::ordered_json json = {{"program", run.program},
                                 {"machine_type", of.machine_type},
                                 {"ipus", of.pod},
                                 {"replicas", of.plan.replicas},
                                 {"items_per_run", run.items},
                                 {"items_per_second", run.items_per_second()},
                                 {"efficiency", efficiency},
                                 {"has_collectives", run.has_collectives},
                                 {"cycles_per_run", run.timeline.end().value()},
                                 {"seconds_per_run", run.seconds},
                                 {"compute", shares.compute},
                                 {"exchange", shares.exchange},
                                 {"sync", shares.sync},
                                 {"waiting", shares.waiting},
                                 {"ipu_link_bytes", run.timeline.over_ipu_links().value()},
                                 {"gw_link_bytes", run.timeline.over_gw_links().value()},
                                 {"memory_bytes", MostMemory(of.plan.memory).value()},
                                 {"fits", of.plan.fits.ok()}};
  if (!explain) return json;
  json["ipus_of_a_replica"] = IpuJson(FiguresOf(row));
  if (!of.plan.fits.ok()) json["why_not"] = std::string(of.plan.fits.message());
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
  // Whether it fits does not depend on the POD.
  const absl::Status& fits = plans[0].plan.fits;
  if (!fits.ok()) absl::StrAppend(&text, base::Printable(fits.message(), std::string::npos), "\n");
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const program::Executable>> ReadExecutable(const std::string& path) {
  // A named pipe would wait for a writer.
  const absl::Status is_file = base::CheckIsFileOrNothing(path);
  if (!is_file.ok()) return absl::InvalidArgumentError(is_file.message());
  absl::StatusOr<compiler::ExecutableFile> file =
      compiler::ReadExecutableFile(path, compiler::LimitsWithoutMemory());
  if (file.ok()) return std::move(file->executable);
  if (absl::StrContains(file.status().message(), path)) return file.status();
  return absl::InvalidArgumentError(absl::StrCat("file '", path, "': ", file.status().message()));
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

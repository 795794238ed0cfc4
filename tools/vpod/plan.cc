#include "tools/vpod/plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/plan/search.h"
#include "client/render/table.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"

namespace vpod::tools {
namespace {

struct Row {
  std::string machine_type;
  uint32_t pod;
  plan::Plan plan;
  // Items for each IPU, compared with those on the smallest POD of such machines.
  double efficiency = 1;
};

void CompareWithSmallest(std::vector<Row>& rows) {
  std::map<std::string, std::pair<uint32_t, double>> smallest;  // POD, items for each IPU
  const auto items = [](const Row& row) { return row.plan.items_per_second / row.pod; };
  for (const Row& row : rows) {
    const auto [least, is_new] =
        smallest.try_emplace(row.machine_type, std::pair(row.pod, items(row)));
    if (row.pod < least->second.first) least->second = {row.pod, items(row)};
  }
  for (Row& row : rows) row.efficiency = items(row) / smallest.at(row.machine_type).second;
}

std::string Table(const std::vector<Row>& rows) {
  render::Table table{.headings = {"Machine", "IPUs", "Replicas", "Global batch", "Items/s",
                                   "Efficiency", "ms/update", "Compute", "Exchange", "Sync",
                                   "Waiting", "IPU-Links (MB)", "GW-Links (MB)", "Memory (MB)",
                                   "Fits"}};
  for (const Row& row : rows) {
    const model::Timeline& timeline = row.plan.timeline;
    const Shares shares = SharesOf(timeline);
    table.rows.push_back(
        {row.machine_type, absl::StrCat(row.pod), absl::StrCat(row.plan.replicas),
         absl::StrCat(row.plan.global_batch), absl::StrFormat("%.0f", row.plan.items_per_second),
         Percent(row.efficiency), absl::StrFormat("%.3f", row.plan.seconds * 1e3),
         Percent(shares.compute), Percent(shares.exchange), Percent(shares.sync),
         Percent(shares.waiting), absl::StrFormat("%.3f", Megabytes(timeline.over_ipu_links())),
         absl::StrFormat("%.3f", Megabytes(timeline.over_gw_links())),
         absl::StrFormat("%.1f", Megabytes(MostMemory(row.plan.memory))),
         row.plan.fits.ok() ? "yes" : "no"});
  }
  return render::StyleH(table);
}

// Why a plan does not fit, with the flags of the command in the place of the compiler's options.
std::string WhyNot(const plan::Plan& plan) {
  return absl::StrReplaceAll(plan.fits.message(),
                             {{"option accumulation", "--accumulation"},
                              {"option ipus_per_replica", "--ipus-per-replica"},
                              {"option off_chip_accumulators", "--off-chip-accumulators"},
                              {"option off_chip_activations", "--off-chip-activations"},
                              {"option off_chip_optimizer_state", "--off-chip-optimizer-state"},
                              {"option off_chip_weights", "--off-chip-weights"},
                              {"option products.memory_proportions", "--memory-proportion"},
                              {"option recomputation", "--recompute"},
                              {"option tensor_shards", "--tensor-sharding"}});
}

IpuFigures FiguresOf(const plan::Plan& plan) {
  return {plan.timeline, plan.memory, plan::PhasesOf(*plan.executable, 0, plan.topology)};
}

std::string Explanation(const Row& row) {
  std::string text =
      absl::StrCat("\nPOD of ", row.pod, " IPUs of type ", row.machine_type,
                   ", the IPUs of a replica in a run:\n", IpuTables(FiguresOf(row.plan)));
  if (!row.plan.fits.ok()) absl::StrAppend(&text, WhyNot(row.plan), "\n");
  return text;
}

nlohmann::ordered_json Json(const Row& row, bool explain) {
  const Shares shares = SharesOf(row.plan.timeline);
  nlohmann::ordered_json json = {{"machine_type", row.machine_type},
                                 {"ipus", row.pod},
                                 {"replicas", row.plan.replicas},
                                 {"global_batch", row.plan.global_batch},
                                 {"items_per_second", row.plan.items_per_second},
                                 {"efficiency", row.efficiency},
                                 {"seconds_per_update", row.plan.seconds},
                                 {"cycles_per_run", row.plan.timeline.end().value()},
                                 {"compute", shares.compute},
                                 {"exchange", shares.exchange},
                                 {"sync", shares.sync},
                                 {"waiting", shares.waiting},
                                 {"ipu_link_bytes", row.plan.timeline.over_ipu_links().value()},
                                 {"gw_link_bytes", row.plan.timeline.over_gw_links().value()},
                                 {"memory_bytes", MostMemory(row.plan.memory).value()},
                                 {"fits", row.plan.fits.ok()}};
  if (!explain) return json;
  json["ipus_of_a_replica"] = IpuJson(FiguresOf(row.plan));
  if (!row.plan.fits.ok()) json["why_not"] = WhyNot(row.plan);
  return json;
}

// The options that a search has found.
nlohmann::ordered_json Configuration(const plan::PlanRequest& request) {
  return {{"ipus_per_replica", request.network.ipus},
          {"stages", absl::StrJoin(request.network.stages, ",")},
          {"micro_batch", request.network.micro_batch},
          {"accumulation", request.accumulation},
          {"recompute", plan::NameOf(request.recomputation)}};
}

}  // namespace

absl::StatusOr<std::string> PlanText(const plan::PlanRequest& request, const Systems& systems,
                                     PlanFormat format, bool explain) {
  std::vector<Row> rows;
  for (const std::string& machine_type : systems.machine_types) {
    for (uint32_t pod : systems.pods) {
      plan::PlanRequest of_pod = request;
      of_pod.machine_type = machine_type;
      of_pod.pod = pod;
      VPOD_ASSIGN_OR_RETURN(plan::Plan plan, plan::MakePlan(of_pod));
      rows.push_back({machine_type, pod, std::move(plan)});
    }
  }
  CompareWithSmallest(rows);
  if (format != PlanFormat::kTable) {
    std::vector<nlohmann::ordered_json> all;
    for (const Row& row : rows) all.push_back(Json(row, explain));
    return format == PlanFormat::kCsv ? Csv(all) : nlohmann::ordered_json(all).dump(2) + "\n";
  }
  std::string text = Table(rows);
  if (explain) {
    for (const Row& row : rows) text += Explanation(row);
  }
  return text;
}

absl::StatusOr<std::string> SearchText(const plan::PlanRequest& request, uint64_t global_batch,
                                       PlanFormat format, bool explain) {
  VPOD_ASSIGN_OR_RETURN(plan::SearchResult result, plan::Search(request, global_batch));
  const plan::PlanRequest& best = result.best.request;
  const Row row{best.machine_type, best.pod, std::move(result.best.plan)};
  if (format == PlanFormat::kCsv) {
    nlohmann::ordered_json json = Configuration(best);
    json.update(Json(row, /*explain=*/false));
    return Csv({json});
  }
  if (format == PlanFormat::kJson) {
    nlohmann::ordered_json json = Json(row, explain);
    json["configuration"] = Configuration(best);
    json["neighbours"] = nlohmann::ordered_json::array();
    for (const plan::Neighbour& neighbour : result.neighbours)
      json["neighbours"].push_back({{"change", neighbour.change}, {"why_not", neighbour.why}});
    json["plans"] = result.plans;
    return json.dump(2) + "\n";
  }
  std::string text =
      absl::StrCat("Best of ", result.plans, " plans: ", plan::Describe(best), "\n", Table({row}));
  absl::StrAppend(&text, "\nBeside it:\n");
  for (const plan::Neighbour& neighbour : result.neighbours)
    absl::StrAppend(&text, "  ", neighbour.change, ": ", neighbour.why, "\n");
  if (explain) text += Explanation(row);
  return text;
}

}  // namespace vpod::tools

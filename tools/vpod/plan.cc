#include "tools/vpod/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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
  uint32_t pod;
  plan::Plan plan;
};

// Items for each IPU, compared with those on the smallest POD.
double Efficiency(const Row& row, const Row& smallest) {
  return row.plan.items_per_second / row.pod / (smallest.plan.items_per_second / smallest.pod);
}

const Row& SmallestOf(const std::vector<Row>& rows) {
  return *std::min_element(rows.begin(), rows.end(),
                           [](const Row& a, const Row& b) { return a.pod < b.pod; });
}

std::string Table(const std::vector<Row>& rows) {
  render::Table table{.headings = {"IPUs", "Replicas", "Global batch", "Items/s", "Efficiency",
                                   "ms/update", "Compute", "Exchange", "Sync", "Waiting",
                                   "Memory (MB)", "Fits"}};
  for (const Row& row : rows) {
    const Shares shares = SharesOf(row.plan.timeline);
    table.rows.push_back({absl::StrCat(row.pod), absl::StrCat(row.plan.replicas),
                          absl::StrCat(row.plan.global_batch),
                          absl::StrFormat("%.0f", row.plan.items_per_second),
                          Percent(Efficiency(row, SmallestOf(rows))),
                          absl::StrFormat("%.3f", row.plan.seconds * 1e3), Percent(shares.compute),
                          Percent(shares.exchange), Percent(shares.sync), Percent(shares.waiting),
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
                              {"option off_chip_activations", "--off-chip-activations"},
                              {"option off_chip_optimizer_state", "--off-chip-optimizer-state"},
                              {"option off_chip_weights", "--off-chip-weights"},
                              {"option products.memory_proportions", "--memory-proportion"},
                              {"option recomputation", "--recompute"},
                              {"option tensor_shards", "--tensor-sharding"}});
}

std::string Explanation(const Row& row) {
  std::string text = absl::StrCat("\nPOD of ", row.pod, " IPUs, the IPUs of a replica:\n",
                                  IpuTable(row.plan.timeline, row.plan.memory));
  if (!row.plan.fits.ok()) absl::StrAppend(&text, WhyNot(row.plan), "\n");
  return text;
}

nlohmann::ordered_json Json(const Row& row, const Row& smallest, bool explain) {
  const Shares shares = SharesOf(row.plan.timeline);
  nlohmann::ordered_json json = {{"ipus", row.pod},
                                 {"replicas", row.plan.replicas},
                                 {"global_batch", row.plan.global_batch},
                                 {"items_per_second", row.plan.items_per_second},
                                 {"efficiency", Efficiency(row, smallest)},
                                 {"seconds_per_update", row.plan.seconds},
                                 {"cycles_per_run", row.plan.timeline.end().value()},
                                 {"compute", shares.compute},
                                 {"exchange", shares.exchange},
                                 {"sync", shares.sync},
                                 {"waiting", shares.waiting},
                                 {"memory_bytes", MostMemory(row.plan.memory).value()},
                                 {"fits", row.plan.fits.ok()}};
  if (!explain) return json;
  json["ipus_of_a_replica"] = IpuJson(row.plan.timeline, row.plan.memory);
  if (!row.plan.fits.ok()) json["why_not"] = WhyNot(row.plan);
  return json;
}

// What a search has found.
nlohmann::ordered_json Configuration(const plan::PlanRequest& request) {
  return {{"ipus_per_replica", request.network.ipus},
          {"stages", absl::StrJoin(request.network.stages, ",")},
          {"micro_batch", request.network.micro_batch},
          {"accumulation", request.accumulation},
          {"recompute", plan::NameOf(request.recomputation)}};
}

}  // namespace

absl::StatusOr<std::string> PlanText(const plan::PlanRequest& request,
                                     const std::vector<uint32_t>& pods, PlanFormat format,
                                     bool explain) {
  std::vector<Row> rows;
  for (uint32_t pod : pods) {
    plan::PlanRequest of_pod = request;
    of_pod.pod = pod;
    VPOD_ASSIGN_OR_RETURN(plan::Plan plan, plan::MakePlan(of_pod));
    rows.push_back({pod, std::move(plan)});
  }
  if (format != PlanFormat::kTable) {
    std::vector<nlohmann::ordered_json> all;
    for (const Row& row : rows) all.push_back(Json(row, SmallestOf(rows), explain));
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
  const Row row{best.pod, std::move(result.best.plan)};
  if (format == PlanFormat::kCsv) {
    nlohmann::ordered_json json = Configuration(best);
    json.update(Json(row, row, /*explain=*/false));
    return Csv({json});
  }
  if (format == PlanFormat::kJson) {
    nlohmann::ordered_json json = Json(row, row, explain);
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

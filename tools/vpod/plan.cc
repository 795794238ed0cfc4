#include "tools/vpod/plan.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/plan/search.h"
#include "client/render/table.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tools/vpod/plan_rows.h"

namespace vpod::tools {
namespace {

struct PodPlan {
  plan::PlanRequest request;
  plan::Plan plan;
  double efficiency = 1;
};

PodRow RowOf(const PodPlan& of) {
  return {of.request.machine_type, of.request.pod,           of.plan,
          of.plan.timeline(),      of.plan.items_per_second, of.efficiency};
}

std::string Table(const std::vector<PodPlan>& plans) {
  render::Table table{.headings =
                          PlanHeadings({.items = {"Global batch"}, .times = {"ms/update"}})};
  for (const PodPlan& each : plans) {
    table.rows.push_back(
        PlanCells(RowOf(each), {.items = {absl::StrCat(each.plan.global_batch)},
                                .times = {absl::StrFormat("%.3f", each.plan.seconds * 1e3)}}));
  }
  return render::StyleH(table);
}

// The flags of the command.
model::OptionNames Flags() {
  return {.float16 = "--precision 16",
          .micro_batch = "--micro-batch",
          .optimizer = "--optimizer sgd",
          .accumulation = "--accumulation",
          .recomputation = "--recompute standard",
          .memory_proportions = "--memory-proportion",
          .off_chip_activations = "--off-chip-activations",
          .off_chip_optimizer_state = "--off-chip-optimizer-state",
          .off_chip_weights = "--off-chip-weights",
          .off_chip_accumulators = "--off-chip-accumulators",
          .tensor_shards = "--tensor-sharding",
          .ipus_per_replica = "--ipus-per-replica",
          .ipus_without_pipeline = "--ipus-per-replica, --schedule sharded"};
}

// Empty if it fits.
absl::StatusOr<std::string> WhyNot(const PodPlan& of) {
  return of.plan.fits.ok() ? std::string() : plan::WhyNotFit(of.request, Flags());
}

IpuFigures FiguresOf(const plan::Plan& plan) {
  return {plan.timeline(), plan.memory, plan::PhasesOf(*plan.executable, 0, plan.topology)};
}

absl::StatusOr<std::string> Explanation(const PodPlan& of) {
  VPOD_ASSIGN_OR_RETURN(const std::string why_not, WhyNot(of));
  std::string text =
      absl::StrCat("\nPOD of ", of.request.pod, " IPUs of type ", of.request.machine_type,
                   ", the IPUs of a replica in a run:\n", IpuTables(FiguresOf(of.plan)),
                   "Writing all weights before a run and reading them after it takes ",
                   of.plan.weight_transfers.value(), " cycles more.\n");
  if (!why_not.empty()) absl::StrAppend(&text, why_not, "\n");
  return text;
}

absl::StatusOr<nlohmann::ordered_json> Json(const PodPlan& of, bool explain) {
  nlohmann::ordered_json json = PlanJson(
      RowOf(of), {.first = nlohmann::ordered_json::object(),
                  .items = {{"global_batch", of.plan.global_batch}},
                  .times = {{"seconds_per_update", of.plan.seconds},
                            {"cycles_per_run", of.plan.timeline().end().value()},
                            {"weight_transfer_cycles", of.plan.weight_transfers.value()}}});
  if (!explain) return json;
  VPOD_ASSIGN_OR_RETURN(const std::string why_not, WhyNot(of));
  AddDetails(json, FiguresOf(of.plan), why_not);
  return json;
}

// The options that a search has found.
nlohmann::ordered_json Configuration(const plan::PlanRequest& request) {
  return {{"ipus_per_replica", request.network.ipus},
          {"stages", absl::StrJoin(request.network.stages, ",")},
          {"micro_batch", request.network.micro_batch},
          {"accumulation", request.accumulation},
          {"recompute", NameOf(request.recomputation)}};
}

// At a terminal, a line that says how far a search is, from its beginning to its end.
class SearchLine {
 public:
  SearchLine() { Show(0); }
  ~SearchLine() {
    if (is_shown_) std::fprintf(stderr, "\r\x1b[K");
  }
  void Show(size_t plans) const {
    if (!is_shown_) return;
    std::fprintf(stderr, "\r\x1b[Ksearching: %zu plans in %s", plans,
                 render::ShortDuration(absl::ToInt64Seconds(absl::Now() - begin_)).c_str());
  }

 private:
  const bool is_shown_ = render::TakesEscapeCodes(STDERR_FILENO);
  const absl::Time begin_ = absl::Now();
};

absl::StatusOr<plan::SearchResult> SearchAndShow(const plan::PlanRequest& request,
                                                 uint64_t global_batch) {
  const SearchLine line;
  return plan::Search(request, global_batch, [&](size_t plans) { line.Show(plans); });
}

}  // namespace

absl::StatusOr<std::string> PlanText(const plan::PlanRequest& request, const Systems& systems,
                                     PlanFormat format, bool explain) {
  std::vector<PodPlan> plans;
  Efficiency efficiency;
  for (const std::string& machine_type : systems.machine_types) {
    for (uint32_t pod : systems.pods) {
      plan::PlanRequest of_pod = request;
      of_pod.machine_type = machine_type;
      of_pod.pod = pod;
      VPOD_ASSIGN_OR_RETURN(plan::Plan plan, plan::MakePlan(of_pod));
      if (request.recomputation != compiler::Recomputation::kNone &&
          !compiler::Recomputes(*plan.executable)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--recompute ", NameOf(request.recomputation), " has no effect: model '",
                         request.network.name, "' has nothing to recompute"));
      }
      efficiency.Add(machine_type, pod, plan.seconds);
      plans.push_back({std::move(of_pod), std::move(plan)});
    }
  }
  for (PodPlan& each : plans)
    each.efficiency = efficiency.Of(each.request.machine_type, each.plan.seconds);
  if (format != PlanFormat::kTable) {
    std::vector<nlohmann::ordered_json> all;
    for (const PodPlan& each : plans) {
      VPOD_ASSIGN_OR_RETURN(nlohmann::ordered_json json, Json(each, explain));
      all.push_back(std::move(json));
    }
    return format == PlanFormat::kCsv ? Csv(all) : nlohmann::ordered_json(all).dump(2) + "\n";
  }
  std::string text = Table(plans);
  if (explain) {
    for (const PodPlan& each : plans) {
      VPOD_ASSIGN_OR_RETURN(const std::string explanation, Explanation(each));
      text += explanation;
    }
  }
  return text;
}

absl::StatusOr<std::string> SearchText(const plan::PlanRequest& request, uint64_t global_batch,
                                       PlanFormat format, bool explain) {
  VPOD_ASSIGN_OR_RETURN(plan::SearchResult result, SearchAndShow(request, global_batch));
  const plan::PlanRequest& best = result.best.request;
  const PodPlan of_best{best, std::move(result.best.plan)};
  if (format != PlanFormat::kTable) {
    VPOD_ASSIGN_OR_RETURN(nlohmann::ordered_json json, Json(of_best, explain));
    if (format == PlanFormat::kCsv) {
      nlohmann::ordered_json row = Configuration(best);
      row.update(json);
      return Csv({row});
    }
    json["configuration"] = Configuration(best);
    json["neighbours"] = nlohmann::ordered_json::array();
    for (const plan::Neighbour& neighbour : result.neighbours)
      json["neighbours"].push_back({{"change", neighbour.change}, {"why_not", neighbour.why}});
    json["plans"] = result.plans;
    return json.dump(2) + "\n";
  }
  std::string text = absl::StrCat("Best of ", result.plans, " plans: ", plan::Describe(best), "\n",
                                  Table({of_best}));
  absl::StrAppend(&text, "\nNeighbouring configurations:\n");
  for (const plan::Neighbour& neighbour : result.neighbours)
    absl::StrAppend(&text, "  ", neighbour.change, ": ", neighbour.why, "\n");
  if (!explain) return text;
  VPOD_ASSIGN_OR_RETURN(const std::string explanation, Explanation(of_best));
  return text + explanation;
}

}  // namespace vpod::tools

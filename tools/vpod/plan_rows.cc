#include "tools/vpod/plan_rows.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/vpod/plan_figures.h"

namespace vpod::tools {
namespace {

using Words = std::vector<std::string>;

Words Joined(std::initializer_list<Words> parts) {
  Words all;
  for (const Words& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

void Efficiency::Add(const std::string& machine_type, uint32_t pod, double seconds) {
  const auto [least, is_new] = smallest_.try_emplace(machine_type, pod, seconds);
  if (pod < least->second.first) least->second = {pod, seconds};
}

double Efficiency::Of(const std::string& machine_type, double seconds) const {
  return smallest_.at(machine_type).second / seconds;
}

Words PlanHeadings(const Between<Words>& own) {
  return Joined({own.first,
                 {"Machine", "IPUs", "Replicas"},
                 own.items,
                 {"Items/s", "Efficiency"},
                 own.times,
                 {"Compute", "Exchange", "Sync", "Waiting", "IPU-Links (MB)", "GW-Links (MB)",
                  "Memory (MB)", "Fits"}});
}

Words PlanCells(const PodRow& row, const Between<Words>& own) {
  const Shares shares = SharesOf(row.timeline);
  return Joined(
      {own.first,
       {row.machine_type, absl::StrCat(row.pod), absl::StrCat(row.plan.replicas)},
       own.items,
       {absl::StrFormat("%.0f", row.items_per_second), Percent(row.efficiency)},
       own.times,
       {Percent(shares.compute), Percent(shares.exchange), Percent(shares.sync),
        Percent(shares.waiting), absl::StrFormat("%.3f", Megabytes(row.timeline.over_ipu_links())),
        absl::StrFormat("%.3f", Megabytes(row.timeline.over_gw_links())),
        absl::StrFormat("%.1f", Megabytes(MostMemory(row.plan.memory))),
        row.plan.fits.ok() ? "yes" : "no"}});
}

nlohmann::ordered_json PlanJson(const PodRow& row, const Between<nlohmann::ordered_json>& own) {
  const Shares shares = SharesOf(row.timeline);
  nlohmann::ordered_json json = own.first;
  json.update(
      {{"machine_type", row.machine_type}, {"ipus", row.pod}, {"replicas", row.plan.replicas}});
  json.update(own.items);
  json.update({{"items_per_second", row.items_per_second}, {"efficiency", row.efficiency}});
  json.update(own.times);
  json.update({{"compute", shares.compute},
               {"exchange", shares.exchange},
               {"sync", shares.sync},
               {"waiting", shares.waiting},
               {"ipu_link_bytes", row.timeline.over_ipu_links().value()},
               {"gw_link_bytes", row.timeline.over_gw_links().value()},
               {"memory_bytes", MostMemory(row.plan.memory).value()},
               {"fits", row.plan.fits.ok()}});
  return json;
}

}  // namespace vpod::tools

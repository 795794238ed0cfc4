#include "tools/vpod/plan_figures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/render/table.h"
#include "device/base/text.h"

namespace vpod::tools {
namespace {

// As RFC 4180 has it.
std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::StrReplaceAll(base::Printable(text), {{"\"", "\"\""}}), "\"");
}

constexpr char kIpus[] = "ipus_of_a_replica", kWhyNot[] = "why_not";

nlohmann::ordered_json IpuJson(const IpuFigures& figures) {
  const auto& [timeline, memory, phases] = figures;
  auto ipus = nlohmann::ordered_json::array();
  for (size_t ipu = 0; ipu < timeline.ipus.size(); ++ipu) {
    const model::IpuTime& time = timeline.ipus[ipu];
    const plan::PhaseCycles& cycles = phases[ipu];
    ipus.push_back({{"compute_cycles", time.cost.compute.value()},
                    {"exchange_cycles", time.cost.exchange.value()},
                    {"sync_cycles", time.cost.sync.value()},
                    {"waiting_cycles", time.waiting.value()},
                    {"forward_cycles", cycles.forward.value()},
                    {"backward_cycles", cycles.backward.value()},
                    {"recomputation_cycles", cycles.recomputation.value()},
                    {"update_cycles", cycles.update.value()},
                    {"other_cycles", cycles.other.value()},
                    {"host_bytes", (time.cost.from_host + time.cost.to_host).value()},
                    {"ipu_link_bytes", time.cost.over_ipu_links.value()},
                    {"gw_link_bytes", time.cost.over_gw_links.value()},
                    {"streaming_memory_cycles", time.cost.with_streaming_memory.value()},
                    {"from_streaming_memory_bytes", time.cost.from_streaming_memory.value()},
                    {"to_streaming_memory_bytes", time.cost.to_streaming_memory.value()},
                    {"memory_bytes", memory[ipu].value()}});
  }
  return ipus;
}

// One for each IPU, if there are details.
std::vector<nlohmann::ordered_json> Lines(const std::vector<nlohmann::ordered_json>& rows) {
  std::vector<nlohmann::ordered_json> lines;
  for (nlohmann::ordered_json row : rows) {
    const nlohmann::ordered_json ipus = row.value(kIpus, nlohmann::ordered_json());
    row.erase(kIpus);
    row.erase(kWhyNot);
    if (ipus.is_null()) lines.push_back(row);
    for (size_t ipu = 0; ipu < ipus.size(); ++ipu) {
      nlohmann::ordered_json& line = lines.emplace_back(row);
      line["ipu"] = ipu;
      line.update(ipus[ipu]);
    }
  }
  return lines;
}

}  // namespace

double Megabytes(model::Bytes bytes) { return static_cast<double>(bytes.value()) / 1e6; }

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

Shares SharesOf(const model::Timeline& timeline) {
  const auto& ipus = timeline.ipus;
  const auto busiest = std::min_element(ipus.begin(), ipus.end(), [](const auto& a, const auto& b) {
    return b.cost.total() < a.cost.total();
  });
  return SharesOf(*busiest, timeline);
}

Shares SharesOf(const model::IpuTime& ipu, const model::Timeline& timeline) {
  const model::Cycles end = timeline.end();
  const auto share = [&](model::Cycles cycles) {
    return static_cast<double>(cycles.value()) / static_cast<double>(end.value());
  };
  // An IPU that has ended waits for the last one.
  return {share(ipu.cost.compute), share(ipu.cost.exchange), share(ipu.cost.sync),
          share(ipu.waiting + (end - ipu.end())), share(ipu.cost.with_streaming_memory)};
}

model::Bytes MostMemory(const std::vector<model::Bytes>& memory) {
  return *std::max_element(memory.begin(), memory.end());
}

std::string IpuTables(const IpuFigures& figures) {
  const auto& [timeline, memory, phases] = figures;
  render::Table table{.headings = {"IPU", "Compute", "Exchange", "Sync", "Waiting", "Host (MB)",
                                   "IPU-Links (MB)", "GW-Links (MB)", "Streaming memory",
                                   "Streaming memory (MB)", "Memory (MB)"}};
  render::Table by_phase{
      .headings = {"IPU", "Forward", "Backward", "Recomputation", "Update", "Other", "Waiting"}};
  for (size_t ipu = 0; ipu < timeline.ipus.size(); ++ipu) {
    const model::IpuTime& time = timeline.ipus[ipu];
    const Shares shares = SharesOf(time, timeline);
    table.rows.push_back(
        {absl::StrCat(ipu), Percent(shares.compute), Percent(shares.exchange), Percent(shares.sync),
         Percent(shares.waiting),
         absl::StrFormat("%.3f", Megabytes(time.cost.from_host + time.cost.to_host)),
         absl::StrFormat("%.3f", Megabytes(time.cost.over_ipu_links)),
         absl::StrFormat("%.3f", Megabytes(time.cost.over_gw_links)),
         Percent(shares.with_streaming_memory),
         absl::StrFormat(
             "%.3f", Megabytes(time.cost.from_streaming_memory + time.cost.to_streaming_memory)),
         absl::StrFormat("%.1f", Megabytes(memory[ipu]))});
    const auto share = [&](model::Cycles cycles) {
      return Percent(static_cast<double>(cycles.value()) /
                     static_cast<double>(timeline.end().value()));
    };
    const plan::PhaseCycles& cycles = phases[ipu];
    by_phase.rows.push_back({absl::StrCat(ipu), share(cycles.forward), share(cycles.backward),
                             share(cycles.recomputation), share(cycles.update), share(cycles.other),
                             Percent(shares.waiting)});
  }
  return render::StyleH(table) + render::StyleH(by_phase);
}

void AddDetails(nlohmann::ordered_json& row, const IpuFigures& figures,
                const std::string& why_not) {
  row[kIpus] = IpuJson(figures);
  if (!why_not.empty()) row[kWhyNot] = why_not;
}

std::string Dump(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace);
}

std::string Csv(const std::vector<nlohmann::ordered_json>& rows) {
  std::string text;
  for (const nlohmann::ordered_json& row : Lines(rows)) {
    std::vector<std::string> names, values;
    for (const auto& [name, value] : row.items()) {
      names.push_back(name);
      values.push_back(value.is_string() ? Quoted(value.get<std::string>()) : Dump(value));
    }
    if (text.empty()) text = absl::StrJoin(names, ",") + "\n";
    absl::StrAppend(&text, absl::StrJoin(values, ","), "\n");
  }
  return text;
}

}  // namespace vpod::tools

#include "tools/gc-gwlinkstraffictest/report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/arch/hardware.h"

namespace vpod::tools {
namespace {

using telemetry::v1::LinkTelemetry;

std::string From(const LinkTelemetry& link) { return absl::StrCat(link.host(), " ", link.name()); }

std::string Gbps(const GwLinkResult& link) { return absl::StrFormat("%.1f", link.gbps); }

}  // namespace

std::vector<GwLinkResult> GwLinkResults(const std::vector<LinkTelemetry>& before,
                                        const std::vector<LinkTelemetry>& after,
                                        const std::set<std::string>& machines,
                                        const LinkTraffic& traffic) {
  std::map<std::string, uint64_t> sent_before;
  for (const LinkTelemetry& link : before) {
    if (link.kind() == "GW-Link") sent_before[From(link)] = link.tx_bytes();
  }
  std::vector<GwLinkResult> results;
  for (const LinkTelemetry& link : after) {
    if (link.kind() != "GW-Link" || !machines.contains(link.data_ip())) continue;
    const uint64_t sent = link.tx_bytes() - sent_before[From(link)];
    GwLinkResult& result = results.emplace_back();
    result.from = From(link);
    result.to = link.peer_host().empty() ? link.peer_name()
                                         : absl::StrCat(link.peer_host(), " ", link.peer_name());
    result.carried = sent > 0;
    result.passed = traffic.errors == 0 && result.carried && link.state() != "down";
    // The price of a collective knows the links of an ILD; a GW port sets a limit of its own.
    const double seconds =
        std::max(traffic.seconds, static_cast<double>(sent) / arch::kGwPortBytesPerSecond);
    if (seconds > 0) result.gbps = static_cast<double>(sent) * 8 / seconds / 1e9;
  }
  return results;
}

bool AllPassed(const std::vector<GwLinkResult>& links) {
  return !links.empty() && std::all_of(links.begin(), links.end(),
                                       [](const GwLinkResult& link) { return link.passed; });
}

std::string GwLinksText(const std::vector<GwLinkResult>& links) {
  std::string text;
  for (const GwLinkResult& link : links) {
    absl::StrAppend(&text, "GW-Link ", link.from, " -> ", link.to, ": ",
                    link.passed ? "passed" : "failed", " (",
                    link.carried ? absl::StrCat(Gbps(link), " Gbps") : "it carried nothing", ")\n");
  }
  absl::StrAppend(&text, "overall_result: ", AllPassed(links) ? "passed" : "failed", "\n");
  return text;
}

std::string GwLinksJson(const std::vector<GwLinkResult>& links) {
  nlohmann::ordered_json json = {{"gw_links", nlohmann::ordered_json::array()}};
  for (const GwLinkResult& link : links) {
    json["gw_links"].push_back({{"from", link.from},
                                {"to", link.to},
                                {"status", link.passed ? "passed" : "failed"},
                                {"gbps", Gbps(link)}});
  }
  json["overall_result"] = AllPassed(links) ? "passed" : "failed";
  return json.dump(1) + "\n";
}

}  // namespace vpod::tools

#include "tools/gc-links/links.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/arch/topology.h"

namespace vpod::tools {
namespace {

using telemetry::v1::LinkTelemetry;

constexpr char kWarning[] = "Links already trained - no training performed";

bool Failed(const LinkTelemetry& link) {
  return link.kind() == "IPU-Link" && (link.state() != "up" || link.lanes() < arch::kLanesPerLink);
}

// PCIe ids are those of their machines.
std::string From(const LinkTelemetry& link) {
  return absl::StrCat(link.host(), ":", link.pcie_id());
}
std::string To(const LinkTelemetry& link) {
  return absl::StrCat(link.peer_host(), ":", link.peer_pcie_id());
}

// The same link as its other end names it.
LinkTelemetry FromFarEnd(LinkTelemetry link) {
  std::swap(*link.mutable_host(), *link.mutable_peer_host());
  std::swap(*link.mutable_name(), *link.mutable_peer_name());
  const uint32_t pcie_id = link.pcie_id();
  link.set_pcie_id(link.peer_pcie_id());
  link.set_peer_pcie_id(pcie_id);
  return link;
}

// Both ends report a link, and each knows of the other only what its own process holds: one bad
// report is enough. Links are told once, from their lower end, with the fewer lanes.
std::vector<LinkTelemetry> FailedOnce(const std::vector<LinkTelemetry>& links) {
  using End = std::tuple<std::string, uint32_t, std::string>;
  std::map<std::pair<End, End>, LinkTelemetry> failed;
  for (const LinkTelemetry& link : links) {
    if (!Failed(link)) continue;
    const End near = {link.host(), link.pcie_id(), link.name()};
    const End far = {link.peer_host(), link.peer_pcie_id(), link.peer_name()};
    const LinkTelemetry told = near < far ? link : FromFarEnd(link);
    const auto [it, is_new] = failed.emplace(std::minmax(near, far), told);
    if (!is_new && told.lanes() < it->second.lanes()) it->second = told;
  }
  std::vector<LinkTelemetry> in_order;
  for (auto& [ends, link] : failed) in_order.push_back(std::move(link));
  return in_order;
}

}  // namespace

bool AllTrained(const std::vector<LinkTelemetry>& links) { return FailedOnce(links).empty(); }

std::string LinksText(const std::vector<LinkTelemetry>& links) {
  std::string text = absl::StrCat(kWarning, "\n");
  for (const LinkTelemetry& link : FailedOnce(links)) {
    absl::StrAppend(&text, From(link), " ", link.name(), " -> ", To(link), " ", link.peer_name(),
                    ": failed (", link.state(), ", ", link.lanes(), " of ", arch::kLanesPerLink,
                    " lanes)\n");
  }
  absl::StrAppend(&text, "overall_result: ", AllTrained(links) ? "passed" : "failed", "\n");
  return text;
}

std::string LinksJson(const std::vector<LinkTelemetry>& links) {
  const char* result = AllTrained(links) ? "passed" : "failed";
  nlohmann::ordered_json iteration = {{"warning", kWarning}};
  std::map<std::pair<std::string, std::string>, nlohmann::ordered_json> channels;
  for (const LinkTelemetry& link : FailedOnce(links)) {
    channels[{From(link), To(link)}].push_back({{"from", link.name()},
                                                {"to", link.peer_name()},
                                                {"num_tries", "1"},
                                                {"status", "failed"},
                                                {"gen", absl::StrCat(link.gen())},
                                                {"lanes", absl::StrCat(link.lanes())}});
  }
  for (const auto& [ends, list] : channels) {
    iteration["links"].push_back(
        {{"from_pcie_id", ends.first}, {"to_pcie_id", ends.second}, {"channels", list}});
  }
  iteration["overall_result"] = result;
  iteration["discovery_method"] = "VIRM";
  // The outermost level of the real tool is indented by one blank, the others by two more.
  return absl::StrCat(
      "{\n \"iteration_0\": ", absl::StrReplaceAll(iteration.dump(2), {{"\n", "\n "}}),
      ",\n \"requested_iterations\": \"1\",\n \"iterations_with_failures\": \"",
      AllTrained(links) ? "0" : "1", "\",\n \"overall_result\": \"", result, "\"\n}\n");
}

}  // namespace vpod::tools

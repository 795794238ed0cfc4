#include "client/gcipuinfo/health.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ipuof/attributes.h"

namespace vpod::gcinfo {
namespace {

using Json = nlohmann::ordered_json;

struct Finding {
  const char* error;
  std::string host, partition, ipu_index;
};

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// By device id.
std::map<uint32_t, Finding> Examine(const std::vector<ipuof::MonitoredPartition>& partitions) {
  std::map<uint32_t, Finding> findings;
  uint32_t first = 0;
  for (const auto& partition : partitions) {
    for (const auto& ipu : partition.ipus) {
      if (!ipuof::HasError(ipu)) continue;
      findings[first + ipu.routing_id()] = {"device", ipuof::Attribute(ipu, "ipuof host"),
                                            partition.id, ipuof::Attribute(ipu, "board ipu index")};
    }
    for (const auto& device : partition.silent) {
      findings[first + device.routing_id()] = {"connection", device.ip(), partition.id,
                                               absl::StrCat(device.pcie_id())};
    }
    first += static_cast<uint32_t>(partition.num_ipus());
  }
  return findings;
}

}  // namespace

std::string HealthText(const std::vector<ipuof::MonitoredPartition>& partitions) {
  std::map<std::string, std::vector<std::string>> by_host;
  for (const auto& [id, finding] : Examine(partitions)) {
    by_host[finding.host].push_back(absl::StrCat("{\"error\":\"", finding.error, "\",\"id\":\"", id,
                                                 "\",\"partition\":", Quoted(finding.partition),
                                                 ",\"board ipu index\":", Quoted(finding.ipu_index),
                                                 "}"));
  }
  if (by_host.empty()) return "{}";
  // Later entries are aligned with the first of their kind.
  const std::string opening = "{ \"hosts\": { ";
  std::vector<std::string> hosts;
  for (const auto& [host, findings] : by_host) {
    const std::string name = absl::StrCat(Quoted(host), ": [ ");
    const std::string next = ",\n" + std::string(opening.size() + name.size(), ' ');
    hosts.push_back(absl::StrCat(name, absl::StrJoin(findings, next), " ]"));
  }
  const std::string next = ",\n" + std::string(opening.size(), ' ');
  return absl::StrCat(opening, absl::StrJoin(hosts, next), " } }");
}

}  // namespace vpod::gcinfo

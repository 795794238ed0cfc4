#include "tools/gc-info/info.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/ipuof/attributes.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"

namespace vpod::tools {
namespace {

using ipuof::Attribute;
using telemetry::v1::IpuTelemetry;
using Json = nlohmann::ordered_json;

// Blanks stand before the bracket, so that brackets end in line with the widest value.
std::string Bracketed(const std::string& value, size_t widest) {
  return absl::StrCat(std::string(widest > value.size() ? widest - value.size() : 0, ' '), "[",
                      value, "]");
}

struct Widths {
  size_t id = 1, host = 1;
};

std::string HostAndNumber(const IpuTelemetry& ipu, const Widths& widths) {
  return absl::StrCat("IPU-M host: ", Bracketed(Attribute(ipu, "ipuof host"), widths.host),
                      ", IPU#: [", Attribute(ipu, "board ipu index"), "]");
}

std::string SingleLine(uint32_t id, const IpuTelemetry& ipu, const Widths& widths) {
  return absl::StrCat("-+- Id: ", Bracketed(absl::StrCat(id), widths.id), ", target: [Fabric], ",
                      HostAndNumber(ipu, widths), "\n");
}

std::string GroupLines(const MonitoredPartition& partition, uint32_t id, arch::IpuRange range,
                       const Widths& widths) {
  std::string text =
      absl::StrCat("-+- Id: ", Bracketed(absl::StrCat(id), widths.id), ", target: [Multi IPU]\n");
  for (uint32_t i = 0; i < range.count; ++i) {
    absl::StrAppend(&text, " |--- Id: ", Bracketed(absl::StrCat(range.first + i), widths.id),
                    ", DNC Id: [", i, "], ", HostAndNumber(partition.ipus[range.first + i], widths),
                    "\n");
  }
  return text;
}

Json SingleJson(uint32_t id, const char* key, const std::string& value, const IpuTelemetry& ipu) {
  return {{"id", absl::StrCat(id)},
          {key, value},
          {"IPU-M host", Attribute(ipu, "ipuof host")},
          {"IPU#", Attribute(ipu, "board ipu index")},
          {"device_id", absl::StrCat(id)},
          {"ipum_host", Attribute(ipu, "ipuof host")},
          {"pcie_id", Attribute(ipu, "board ipu index")}};
}

Json GroupJson(const MonitoredPartition& partition, uint32_t id, arch::IpuRange range) {
  Json json = {{"id", absl::StrCat(id)}, {"target", "Multi IPU"}, {"ipus", Json::array()}};
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t ipu = range.first + i;
    json["ipus"].push_back(SingleJson(ipu, "DNC Id", absl::StrCat(i), partition.ipus[ipu]));
  }
  json["device_id"] = json["id"];
  return json;
}

// Devices of several IPUs are listed of a partition that is alone, and whole.
bool HasGroups(const std::vector<MonitoredPartition>& partitions) {
  return partitions.size() == 1 && partitions[0].silent.empty() && partitions[0].has_groups;
}

std::string Title(const MonitoredPartition& partition) {
  const bool one_of_several = partition.description.num_gcds > 1;
  return absl::StrCat("Partition: ", partition.id,
                      one_of_several ? absl::StrCat(" (gcd:", partition.gcd, ")") : "",
                      partition.mark());
}

}  // namespace

std::string DeviceListing(const std::vector<MonitoredPartition>& partitions) {
  const bool groups = HasGroups(partitions);
  Widths widths;
  uint32_t ids = 0;
  for (const auto& partition : partitions) {
    const auto n = static_cast<uint32_t>(partition.num_ipus());
    ids += groups ? arch::NumDeviceIds(n) : n;
    for (const auto& ipu : partition.ipus)
      widths.host = std::max(widths.host, Attribute(ipu, "ipuof host").size());
  }
  widths.id = absl::StrCat(ids - 1).size();
  std::string text = "Graphcore device listing:\n";
  uint32_t first = 0;
  for (const auto& partition : partitions) {
    absl::StrAppend(&text, Title(partition), "\n");
    for (const auto& ipu : partition.ipus)
      text += SingleLine(first + ipu.routing_id(), ipu, widths);
    const auto n = static_cast<uint32_t>(partition.num_ipus());
    for (uint32_t id = n; groups && id < arch::NumDeviceIds(n); ++id) {
      text += GroupLines(partition, id, *arch::IpusOfDevice(n, id), widths);
    }
    first += n;
  }
  return text;
}

std::string DeviceListingJson(const std::vector<MonitoredPartition>& partitions) {
  const bool groups = HasGroups(partitions);
  Json all;
  all["partitions"] = Json::array();
  uint32_t first = 0;
  for (const auto& partition : partitions) {
    Json devices = Json::array();
    for (const auto& ipu : partition.ipus)
      devices.push_back(SingleJson(first + ipu.routing_id(), "target", "Fabric", ipu));
    const auto n = static_cast<uint32_t>(partition.num_ipus());
    for (uint32_t id = n; groups && id < arch::NumDeviceIds(n); ++id)
      devices.push_back(GroupJson(partition, id, *arch::IpusOfDevice(n, id)));
    first += n;
    Json& listed = all["partitions"].emplace_back();
    listed["partition"] = partition.id;
    if (partition.description.num_gcds > 1) listed["gcd"] = absl::StrCat(partition.gcd);
    listed["active"] = partition.is_active() ? "true" : "false";
    listed["partition_id"] = partition.id;
    listed["devices"] = std::move(devices);
  }
  return all.dump(1) + "\n";
}

std::string AttributeLines(const DeviceAttributes& attributes) {
  std::string text;
  for (const auto& [key, value] : attributes) absl::StrAppend(&text, "  ", key, ": ", value, "\n");
  return text;
}

DeviceAttributes WithCommonNames(DeviceAttributes attributes) {
  const std::pair<const char*, const char*> kNames[] = {{"id", "device_id"},
                                                        {"ipuof host", "ipum_host"},
                                                        {"ipuof partition id", "partition_id"},
                                                        {"board ipu index", "pcie_id"}};
  for (const auto& [name, common] : kNames) {
    const auto it = std::find_if(attributes.begin(), attributes.end(),
                                 [&](const auto& attribute) { return attribute.first == name; });
    if (it == attributes.end()) continue;
    std::string value = it->second;
    attributes.emplace_back(common, std::move(value));
  }
  return attributes;
}

absl::StatusOr<std::string> DeviceInfo(const MonitoredPartition& partition, uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const auto attributes, AttributesOf(partition, device_id));
  return absl::StrCat("Device Info:\n", AttributeLines(attributes));
}

absl::StatusOr<std::string> DeviceInfoJson(const MonitoredPartition& partition,
                                           uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const auto attributes, AttributesOf(partition, device_id));
  Json json;
  for (const auto& [key, value] : WithCommonNames(attributes)) json[key] = value;
  return json.dump(1) + "\n";
}

}  // namespace vpod::tools

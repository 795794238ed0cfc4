#include "client/vipu/ipuof_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::vipu {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFabricKey[] = "fabric_key";  // a secret, so it stays out of the attributes
constexpr char kPartition[] = "partition";   // of a device
constexpr char kPartitionKey[] = "key";      // in it

// Keys of a device's partition, and the attributes from which their values come.
constexpr std::pair<const char*, const char*> kPartitionFacts[] = {
    {"id", "Partition Id"},
    {"gcd", "GCD Id"},
    {"gcds", "Number of GCDs"},
    {"ipus", kGcdIpus},
    {"generation", "Partition generation"},
    {"reconfigurable", "Reconfigurable"},
    {"controller", "Controller"}};

std::string Text(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

Json PartitionJson(const vipuuser::PartitionConfig& config) {
  Json json = Json::object();
  for (const auto& [key, attribute] : kPartitionFacts) {
    const std::string value = Attribute(config, attribute);
    if (!value.empty()) json[key] = value;
  }
  if (!json.contains("ipus")) json["ipus"] = absl::StrCat(config.devices_size());
  if (!config.fabric_key().empty()) json[kPartitionKey] = config.fabric_key();
  return json;
}

void ParseDevice(const Json& json, uint32_t index, vipuuser::IpuofDevice* device) {
  const auto number = [&](const char* key, uint32_t otherwise) -> uint32_t {
    return json.contains(key) && json[key].is_number_unsigned() ? json[key].get<uint32_t>()
                                                                : otherwise;
  };
  device->set_ip(Text(json, "ip"));
  device->set_server_port(number("server_port", 0));
  device->set_rdma_port(number("rdma_port", 0));
  device->set_agent_id(Text(json, "agent_id"));
  device->set_ild(number("ild", 0));
  device->set_routing_id(number("routing_id", index));
  device->set_pcie_id(number("pcie_id", number("device_id", 0)));
  device->set_endpoint(Text(json, "endpoint"));
}

// Takes what a device says of its partition, where neither the file nor another device has said it.
absl::Status TakePartition(const Json& json, vipuuser::PartitionConfig& config) {
  if (!json.contains(kPartition) || !json[kPartition].is_object()) return absl::OkStatus();
  const Json& partition = json[kPartition];
  for (const auto& [key, attribute] : kPartitionFacts) {
    const std::string value = Text(partition, key);
    if (value.empty()) continue;
    const std::string known = config.mutable_attributes()->insert({attribute, value}).first->second;
    if (known != value) {
      return absl::InvalidArgumentError(
          absl::StrCat("devices of different partitions: ", attribute, " ", known, " and ", value));
    }
  }
  if (config.fabric_key().empty()) config.set_fabric_key(Text(partition, kPartitionKey));
  return absl::OkStatus();
}

// By position, each once; and the number of IPUs of the GCD stays only where it says more.
absl::Status Arrange(vipuuser::PartitionConfig& config) {
  auto& devices = *config.mutable_devices();
  std::sort(devices.begin(), devices.end(),
            [](const auto& a, const auto& b) { return a.routing_id() < b.routing_id(); });
  const auto twice = std::adjacent_find(
      devices.begin(), devices.end(),
      [](const auto& a, const auto& b) { return a.routing_id() == b.routing_id(); });
  if (twice != devices.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("two devices have the routing_id ", twice->routing_id()));
  }
  if (Attribute(config, kGcdIpus) == absl::StrCat(config.devices_size()))
    config.mutable_attributes()->erase(kGcdIpus);
  return absl::OkStatus();
}

}  // namespace

std::string Attribute(const vipuuser::PartitionConfig& config, const char* key) {
  const auto it = config.attributes().find(key);
  return it == config.attributes().end() ? "" : it->second;
}

std::string IpuofJson(const vipuuser::PartitionConfig& config) {
  Json json;
  json["attributes"] = Json::object();
  std::vector<std::pair<std::string, std::string>> attributes(config.attributes().begin(),
                                                              config.attributes().end());
  std::sort(attributes.begin(), attributes.end());
  for (const auto& [key, value] : attributes) json["attributes"][key] = value;
  if (!config.fabric_key().empty()) json[kFabricKey] = config.fabric_key();
  json["devices"] = Json::array();
  const Json partition = PartitionJson(config);
  for (const vipuuser::IpuofDevice& device : config.devices()) {
    json["devices"].push_back({{"ip", device.ip()},
                               {"server_port", device.server_port()},
                               {"rdma_port", device.rdma_port()},
                               {"device_id", device.pcie_id()},
                               {"agent_id", device.agent_id()},
                               {"ild", device.ild()},
                               {"routing_id", device.routing_id()},
                               {"pcie_id", device.pcie_id()},
                               {"endpoint", device.endpoint()},
                               {kPartition, partition}});
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<vipuuser::PartitionConfig> ParseIpuofJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return absl::InvalidArgumentError("not an IPUoF configuration: malformed JSON");
  vipuuser::PartitionConfig config;
  const Json* devices = &json;
  if (json.is_object()) {
    if (!json.contains("devices"))
      return absl::InvalidArgumentError("not an IPUoF configuration: no \"devices\"");
    devices = &json["devices"];
    config.set_fabric_key(Text(json, kFabricKey));
    if (json.contains("attributes") && json["attributes"].is_object()) {
      for (const auto& [key, value] : json["attributes"].items()) {
        if (value.is_string()) (*config.mutable_attributes())[key] = value.get<std::string>();
      }
    }
  }
  if (!devices->is_array() || devices->empty()) {
    return absl::InvalidArgumentError(
        "not an IPUoF configuration: \"devices\" must be a non-empty array");
  }
  for (const Json& device : *devices) {
    if (!device.is_object())
      return absl::InvalidArgumentError("every device must be a JSON object");
    const auto index = static_cast<uint32_t>(config.devices_size());
    ParseDevice(device, index, config.add_devices());
    VPOD_RETURN_IF_ERROR(TakePartition(device, config));
  }
  // A controller that is named knows where its devices are, also those whose agent came later.
  const bool must_say_where = Attribute(config, "Controller").empty();
  for (const vipuuser::IpuofDevice& device : config.devices()) {
    if (must_say_where && device.ip().empty() && device.endpoint().empty())
      return absl::InvalidArgumentError("a device has neither \"ip\" nor \"endpoint\"");
  }
  VPOD_RETURN_IF_ERROR(Arrange(config));
  return config;
}

}  // namespace vpod::vipu

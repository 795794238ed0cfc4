#include "tools/gc-inventory/inventory.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::tools {

absl::StatusOr<std::vector<DeviceAttributes>> Inventory(const MonitoredPartition& partition) {
  std::vector<DeviceAttributes> devices;
  for (uint32_t id = 0; id < partition.num_devices(); ++id) {
    VPOD_ASSIGN_OR_RETURN(auto attributes, AttributesOf(partition, id));
    devices.push_back(std::move(attributes));
  }
  return devices;
}

std::string InventoryText(const std::vector<DeviceAttributes>& devices) {
  std::string text;
  for (const DeviceAttributes& device : devices)
    absl::StrAppend(&text, "Device:\n", AttributeLines(device));
  return text;
}

std::string InventoryJson(const std::vector<DeviceAttributes>& devices) {
  nlohmann::ordered_json json;
  json["devices"] = nlohmann::ordered_json::array();
  for (const DeviceAttributes& device : devices) {
    nlohmann::ordered_json& object = json["devices"].emplace_back();
    for (const auto& [key, value] : WithCommonNames(device)) {
      if (key == "remote buffers supported") object["remote buffers"] = value;
      object[key] = value;
    }
  }
  return json.dump(1) + "\n";
}

}  // namespace vpod::tools

// gc-inventory: every device of the active partition with its attributes.
#include <cstdio>
#include <string>

#include "client/ipuof/telemetry.h"
#include "tools/gc-inventory/inventory.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

absl::StatusOr<std::vector<DeviceAttributes>> Look(const po::variables_map& values,
                                                   DeviceOption device) {
  const auto partition = ipuof::LookAtActiveGcd();
  if (!partition.ok()) return partition.status();
  if (values.count("device-id") == 0) return Inventory(*partition);
  const auto attributes = AttributesOf(*partition, device.id);
  if (!attributes.ok()) return attributes.status();
  return std::vector<DeviceAttributes>{*attributes};
}

int Main(int argc, char** argv) {
  // One public script spells -j as -2.
  std::string json_option = "-j";
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "-2") argv[i] = json_option.data();
  }
  bool json = false;
  DeviceOption device;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("device-id,d", po::value(&device), "this device only")      //
      ("json-output,j", po::bool_switch(&json), "JSON (also -2)");
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-inventory", argc, argv, options, values); code >= 0)
    return code;
  const auto devices = Look(values, device);
  if (!devices.ok()) return GcError("gc-inventory", devices.status());
  std::fputs((json ? InventoryJson(*devices) : InventoryText(*devices)).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }

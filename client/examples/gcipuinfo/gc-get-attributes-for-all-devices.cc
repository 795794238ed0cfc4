// Prints one attribute of every IPU of the active partition, or all attributes:
//   gc-get-attributes-for-all-devices 'ipu utilisation'
#include <cstdio>
#include <string>

#include "client/gcipuinfo/gcipuinfo.h"

int main(int argc, char** argv) {
  const std::string label = argc > 1 ? argv[1] : "";
  if (argc > 2 || label == "-h" || label == "--help") {
    std::printf("Usage: gc-get-attributes-for-all-devices [ATTRIBUTE]\n");
    return argc > 2 ? 2 : 0;
  }
  gcipuinfo info;
  const auto devices = info.getDevices();
  if (devices.empty()) {
    std::fprintf(stderr, "gc-get-attributes-for-all-devices: error: no devices: %s\n",
                 info.checkHealthOfDevices().c_str());
    return 1;
  }
  for (const auto& device : devices) {
    const std::string& id = device.at(gcipuinfo::Id);
    if (!label.empty()) {
      const auto value = device.find(label);
      std::printf("%s: %s\n", id.c_str(), value == device.end() ? "N/A" : value->second.c_str());
      continue;
    }
    std::printf("Device %s:\n", id.c_str());
    for (const auto& [key, value] : device) std::printf("  %s: %s\n", key.c_str(), value.c_str());
  }
  return 0;
}

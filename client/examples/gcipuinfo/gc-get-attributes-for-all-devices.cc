// Prints one attribute of every IPU of the active partition, or all attributes:
//   gc-get-attributes-for-all-devices 'ipu utilisation'
#include <algorithm>
#include <cstdio>
#include <string>

#include "client/gcipuinfo/gcipuinfo.h"

int main(int argc, char** argv) {
  const std::string label = argc > 1 ? argv[1] : "";
  const bool help = label == "-h" || label == "--help";
  if (argc > 2 || help || label.rfind('-', 0) == 0) {
    std::fprintf(help ? stdout : stderr, "Usage: gc-get-attributes-for-all-devices [ATTRIBUTE]\n");
    return help ? 0 : 2;
  }
  gcipuinfo info;
  const auto devices = info.getDevices();
  if (devices.empty()) {
    std::string why = info.checkHealthOfDevices();
    std::replace(why.begin(), why.end(), '\n', ' ');
    std::fprintf(stderr, "gc-get-attributes-for-all-devices: error: no devices: %s\n", why.c_str());
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

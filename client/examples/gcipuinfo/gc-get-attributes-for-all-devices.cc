// Prints one attribute of every IPU of the active partition, or all attributes:
//   gc-get-attributes-for-all-devices 'ipu utilisation'
#include <algorithm>
#include <cstdio>
#include <string>

#include "client/gcipuinfo/gcipuinfo.h"

int main(int argc, char** argv) {
  const std::string label = argc > 1 ? argv[1] : "";
  if (label == "-h" || label == "--help") {
    std::printf("Usage: gc-get-attributes-for-all-devices [ATTRIBUTE]\n");
    return 0;
  }
  const bool is_option = label.rfind('-', 0) == 0;
  if (is_option || argc > 2) {
    std::fprintf(stderr,
                 "gc-get-attributes-for-all-devices: error: %s '%s'; usage: "
                 "gc-get-attributes-for-all-devices [ATTRIBUTE]\n",
                 is_option ? "unknown option" : "unexpected argument",
                 is_option ? argv[1] : argv[2]);
    return 2;
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

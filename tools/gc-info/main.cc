// gc-info: devices of the active partition and their attributes.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/gc-info/info.h"
#include "tools/gc-monitor/partitions.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

int Fail(const absl::Status& status) {
  GcError("gc-info", status);
  return 1;
}

int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return Fail(text.status());
  std::fputs(text->c_str(), stdout);
  return 0;
}

absl::StatusOr<std::string> AttributeLine(const MonitoredPartition& partition, uint32_t device,
                                          const char* key) {
  const auto ipu = FirstIpu(partition, device);
  if (!ipu.ok()) return ipu.status();
  const auto it = (*ipu)->attributes().find(key);
  if (it == (*ipu)->attributes().end()) {
    return absl::NotFoundError(absl::StrCat("device ", device, " has no attribute '", key, "'"));
  }
  return it->second + "\n";
}

int Main(int argc, char** argv) {
  bool list = false, list_all = false, all = false, info = false, arch = false, count = false,
       clock = false;
  DeviceOption device;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")                           //
      ("list-devices,l", po::bool_switch(&list), "devices of the active partition")         //
      ("list-all-devices,a", po::bool_switch(&list_all), "as -l --all-partitions")          //
      ("all-partitions", po::bool_switch(&all), "with -l: the other partitions too")        //
      ("device-id,d", po::value(&device)->default_value({}, "0"), "device of the command")  //
      ("device-info,i", po::bool_switch(&info), "attributes of the device")                 //
      ("ipu-arch", po::bool_switch(&arch), "architecture of the device")                    //
      ("ipu-count", po::bool_switch(&count), "number of IPUs")                              //
      ("tile-clock-speed", po::bool_switch(&clock), "clock of the device");
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-info", argc, argv, options, values); code >= 0)
    return code;
  if (values.count("version") > 0) {
    std::printf("1.3.0\n");
    return 0;
  }
  if (list_all) list = all = true;
  if (list + info + arch + count + clock != 1) {
    std::fprintf(stderr,
                 "gc-info: error: give one of -l, -i, --ipu-arch, --ipu-count, --tile-clock-speed. "
                 "Try 'gc-info --help'.\n");
    return 2;
  }
  const auto partitions = LookAtPartitions(all);
  if (!partitions.ok()) {
    if (list && absl::IsNotFound(partitions.status())) std::printf("Graphcore device listing:\n");
    return Fail(partitions.status());
  }
  const MonitoredPartition& active = partitions->front();
  if (list) return Print(DeviceListing(*partitions));
  if (info) return Print(DeviceInfo(active, device.id));
  if (arch) return Print(AttributeLine(active, device.id, "ipu architecture"));
  if (clock) return Print(AttributeLine(active, device.id, "clock"));
  std::printf("%zu\n", active.ipus.size());
  return 0;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }

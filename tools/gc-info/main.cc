// gc-info: devices of the active partition, their attributes and their state. It only reads
// telemetry: commands that need a device for themselves refuse one that is in use.
#include <cstdio>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ipuof/telemetry.h"
#include "device/base/status.h"
#include "tools/gc-info/info.h"
#include "tools/gc-info/status.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

struct Flags {
  bool list = false, list_all = false, all_partitions = false, info = false, arch = false;
  bool count = false, clock = false, json = false;
  bool tile_overview = false, xb_status = false, gsp_status = false, pci_status = false;
  bool nlc_status = false;
  std::string tile_status, context, register_name;
  std::vector<std::string> dump_memory;
  DeviceOption device;

  bool exclusive() const {
    return tile_overview || xb_status || gsp_status || pci_status || nlc_status ||
           !tile_status.empty() || !dump_memory.empty();
  }
  int commands() const {
    return list + info + arch + count + clock + tile_overview + xb_status + gsp_status +
           pci_status + nlc_status + !tile_status.empty() + !dump_memory.empty();
  }
};

po::options_description Describe(Flags& flags) {
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")                          //
      ("list-devices,l", po::bool_switch(&flags.list), "devices of the active partition")  //
      ("list-all-devices,a", po::bool_switch(&flags.list_all), "as -l --all-partitions")   //
      ("all-partitions", po::bool_switch(&flags.all_partitions),
       "with -l: the other partitions too")                                                       //
      ("device-id,d", po::value(&flags.device)->default_value({}, "0"), "device of the command")  //
      ("json-output,j", po::bool_switch(&flags.json), "with -l and -i: JSON")                     //
      ("device-info,i", po::bool_switch(&flags.info), "attributes of the device")                 //
      ("ipu-arch", po::bool_switch(&flags.arch), "architecture of the device")                    //
      ("ipu-count", po::bool_switch(&flags.count), "number of IPUs")                              //
      ("tile-clock-speed", po::bool_switch(&flags.clock), "clock of the device")                  //
      ("tile-overview", po::bool_switch(&flags.tile_overview), "state of all tiles")              //
      ("pci-status", po::bool_switch(&flags.pci_status), "link to the gateway")                   //
      ("nlc-status", po::bool_switch(&flags.nlc_status), "links to other IPUs");
  return options;
}

// Understood and answered with "not modelled".
po::options_description DescribeHidden(Flags& flags) {
  po::options_description options;
  options.add_options()                                                                     //
      ("tile-status", po::value(&flags.tile_status), "registers of a tile")                 //
      ("context,c", po::value(&flags.context), "with --tile-status: SU, Wn or n")           //
      ("register,r", po::value(&flags.register_name), "with --tile-status: e.g. PC")        //
      ("dump-mem", po::value(&flags.dump_memory)->multitoken(), "tile, address, bytes")     //
      ("xb-status", po::bool_switch(&flags.xb_status), "registers of the exchange blocks")  //
      ("gsp-status", po::bool_switch(&flags.gsp_status), "registers of the sync peripheral");
  return options;
}

absl::Status CheckUsage(const Flags& flags) {
  if (flags.commands() != 1) {
    return absl::InvalidArgumentError(
        "give one of -l, -i, --ipu-arch, --ipu-count, --tile-clock-speed, --tile-overview, "
        "--pci-status, --nlc-status");
  }
  if (flags.json && !flags.list && !flags.info)
    return absl::InvalidArgumentError("--json-output needs -l or -i");
  if (flags.tile_status.empty() && (!flags.context.empty() || !flags.register_name.empty()))
    return absl::InvalidArgumentError("--context and --register need --tile-status");
  if (!flags.tile_status.empty()) VPOD_RETURN_IF_ERROR(CheckTile(flags.tile_status));
  if (!flags.context.empty()) VPOD_RETURN_IF_ERROR(CheckContext(flags.context));
  if (!flags.dump_memory.empty()) {
    if (flags.dump_memory.size() != 3)
      return absl::InvalidArgumentError("--dump-mem needs a tile, a start address and bytes");
    VPOD_RETURN_IF_ERROR(CheckTile(flags.dump_memory[0]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> AttributeLine(const MonitoredPartition& partition, uint32_t device,
                                          const char* key) {
  VPOD_ASSIGN_OR_RETURN(const auto* ipu, FirstIpu(partition, device));
  const auto it = ipu->attributes().find(key);
  if (it == ipu->attributes().end()) {
    return absl::NotFoundError(absl::StrCat("device ", device, " has no attribute '", key, "'"));
  }
  return it->second + "\n";
}

// Returns the list or the number of devices of all GCDs.
absl::StatusOr<std::string> Overview(const Flags& flags) {
  const bool all = flags.list && flags.all_partitions;
  VPOD_ASSIGN_OR_RETURN(const auto partitions, ipuof::LookAtPartitions(all));
  if (!all) VPOD_RETURN_IF_ERROR(partitions.front().description.usable);
  if (flags.list) return flags.json ? DeviceListingJson(partitions) : DeviceListing(partitions);
  size_t count = 0;
  for (const MonitoredPartition& gcd : partitions) count += gcd.ipus.size();
  return absl::StrCat(count, "\n");
}

absl::StatusOr<std::string> Text(const Flags& flags) {
  if (flags.list || flags.count) return Overview(flags);
  VPOD_ASSIGN_OR_RETURN(const MonitoredPartition active, ipuof::LookAtActiveGcd());
  VPOD_RETURN_IF_ERROR(active.description.usable);
  if (flags.info) {
    return flags.json ? DeviceInfoJson(active, flags.device.id)
                      : DeviceInfo(active, flags.device.id);
  }
  if (flags.arch) return AttributeLine(active, flags.device.id, "ipu architecture");
  if (flags.clock) return AttributeLine(active, flags.device.id, "clock");
  if (flags.exclusive())
    VPOD_RETURN_IF_ERROR(CheckIdle(active, flags.device.id, std::time(nullptr)));
  if (flags.tile_overview) return TileOverview(active, flags.device.id);
  if (flags.nlc_status) return LinkStatus(active, flags.device.id);
  if (flags.pci_status) return PciStatus(active, flags.device.id);
  return absl::UnimplementedError("not modelled");
}

int Main(int argc, char** argv) {
  Flags flags;
  po::variables_map values;
  if (const int code =
          ParseGcOptions("gc-info", argc, argv, Describe(flags), values, DescribeHidden(flags));
      code >= 0)
    return code;
  if (flags.list_all) flags.list = flags.all_partitions = true;
  if (const absl::Status usage = CheckUsage(flags); !usage.ok())
    return UsageError("gc-info", std::string(usage.message()));
  const auto text = Text(flags);
  if (!text.ok()) {
    if (flags.list && !flags.json && absl::IsNotFound(text.status()))
      std::printf("Graphcore device listing:\n");
    return GcError("gc-info", text.status());
  }
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }

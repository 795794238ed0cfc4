// gc-reset: resets the IPUs of a device; silent on success, unless a device is of no use yet.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <vector>

#include "client/ipuof/lease.h"
#include "client/ipuof/telemetry.h"
#include "client/vipu/subset.h"
#include "device/base/status.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

// The devices that have all IPUs of the partition between them.
std::vector<uint32_t> AllIpus(const vipu::Subset& ipus) {
  if (ipus.is_group()) return {ipus.num_devices() - 1};
  std::vector<uint32_t> devices(ipus.num_devices());
  std::iota(devices.begin(), devices.end(), 0u);
  return devices;
}

bool HasParityError(const telemetry::v1::IpuTelemetry& ipu) {
  const auto state = ipu.attributes().find("ipu error state");
  return state != ipu.attributes().end() && state->second == "memory parity error";
}

// Names a device that loads no program although it was reset.
void WarnOfParity(const ipuof::MonitoredPartition& partition, uint32_t device) {
  const auto range = ipuof::IpusOf(partition, device);
  if (!range.ok()) return;
  const bool needs_init =
      std::any_of(partition.ipus.begin(), partition.ipus.end(), [&](const auto& ipu) {
        return ipu.routing_id() - range->first < range->count && HasParityError(ipu);
      });
  if (!needs_init) return;
  std::fprintf(stderr,
               "gc-reset: warning: device %u still needs a parity init before programs load; run "
               "'gc-reset -p -d %u'\n",
               device, device);
}

absl::Status Reset(std::optional<uint32_t> device, bool initialise_parity) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  const std::vector<uint32_t> devices =
      device.has_value() ? std::vector{*device} : AllIpus(vipu::Subset(partition));
  for (const uint32_t id : devices)
    VPOD_RETURN_IF_ERROR(ipuof::ResetDevice(partition, id, initialise_parity));
  if (initialise_parity) return absl::OkStatus();
  // What agents do not tell is no failure of the reset.
  std::vector<ipuof::MonitoredPartition> monitored = {ipuof::ToMonitor(partition)};
  ipuof::ReadTelemetry(monitored);
  for (const uint32_t id : devices) WarnOfParity(monitored[0], id);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  DeviceOption device;
  bool parity = false, memory = false;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")           //
      ("device-id,d", po::value(&device), "device to reset")                //
      ("parity,p", po::bool_switch(&parity), "initialise tile parity too")  //
      ("memory,m", po::bool_switch(&memory),
       "initialise tile memory too; without --device-id of all IPUs");
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-reset", argc, argv, options, values); code >= 0)
    return code;
  if (values.count("device-id") == 0 && !memory)
    return UsageError("gc-reset", "the option '--device-id' is required but missing");
  std::optional<uint32_t> chosen;
  if (values.count("device-id") > 0) chosen = device.id;
  // The memory of an emulated tile is always initialised; what remains of an error is its parity.
  const absl::Status status = Reset(chosen, parity || memory);
  if (status.ok()) return 0;
  return GcError("gc-reset", status);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }

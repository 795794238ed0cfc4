// gc-reset: resets the IPUs of a device; silent on success.
#include "client/ipuof/lease.h"
#include "client/vipu/ipuof_config.h"
#include "device/arch/device_id.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

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
  const auto partition = vipu::FindActivePartition();
  absl::Status status = partition.status();
  if (status.ok() && values.count("device-id") == 0) {
    const auto ipus = static_cast<uint32_t>(partition->config.devices_size());
    const auto all = arch::DeviceOfIpus(ipus, {0, ipus});
    status = all.status();
    if (all.ok()) device.id = *all;
  }
  // The memory of an emulated tile is always initialised; what remains of an error is its parity.
  if (status.ok()) status = ipuof::ResetDevice(*partition, device.id, parity || memory);
  if (status.ok()) return 0;
  return GcError("gc-reset", status);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }

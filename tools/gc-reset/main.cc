// gc-reset: resets the IPUs of a device; silent on success.
#include "client/ipuof/lease.h"
#include "client/vipu/ipuof_config.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

int Main(int argc, char** argv) {
  DeviceOption device;
  bool parity = false;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("device-id,d", po::value(&device), "device to reset")       //
      ("parity,p", po::bool_switch(&parity), "initialise tile parity too");
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-reset", argc, argv, options, values); code >= 0)
    return code;
  if (values.count("device-id") == 0)
    return UsageError("gc-reset", "the option '--device-id' is required but missing");
  const auto partition = vipu::FindActivePartition();
  absl::Status status = partition.status();
  if (status.ok()) status = ipuof::ResetDevice(*partition, device.id, parity);
  if (status.ok()) return 0;
  return GcError("gc-reset", status);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }

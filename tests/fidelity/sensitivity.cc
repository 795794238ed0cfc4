// What a change of each default of the model (F1 to F20 of spec/hardware.md 10) by a fifth does to
// the errors of all rows. Built with the defaults as variables (hardware.h).
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tests/fidelity/rows.h"

namespace vpod::fidelity {
namespace {

struct Default {
  const char* name;
  std::function<void(double factor)> scale;
};

// A factor of 1 gives the default again.
template <class... Values>
Default Scaled(const char* name, Values&... values) {
  return {name, [&values..., ... defaults = values](double factor) {
            ((values = static_cast<Values>(static_cast<double>(defaults) * factor)), ...);
          }};
}

absl::Status Main() {
  const std::vector<Default> defaults = {
      Scaled("exchange, 4 B a cycle and tile", arch::kExchangeBytesPerCycle),
      Scaled("F1 rate of links", arch::kLinkBytesPerSecond, arch::kRingBytesPerSecond),
      Scaled("F2 rate of host streams", arch::kHostBytesPerSecond,
             arch::kHostBytesPerSecondPerTile),
      Scaled("F3 rate of streaming memory", arch::kDdrBytesPerSecond),
      Scaled("F4 cycles of an AMP call", arch::kConvolutionCallCycles),
      Scaled("F5 bytes of code", arch::kConvolutionVertexCodeBytes, arch::kReduceVertexCodeBytes,
             arch::kOtherVertexCodeBytes),
      Scaled("F6 bytes of vertices", arch::kVertexStateBytes),
      Scaled("F7 bytes of exchange and control code", arch::kControlBytesPerStep,
             arch::kExchangeBytesPerFragment, arch::kExchangeBytesPerSend),
      Scaled("F8 bytes of stacks", arch::kReservedTileBytes),
      Scaled("F10 fixed cycles of an exchange", arch::kExchangeFixedCycles),
      Scaled("F11 seconds of a GW hop", arch::kGwHopSeconds),
      Scaled("F16 rate of GW-Links", arch::kGwPortBytesPerSecond),
      Scaled("F17 cycles of a step of a collective", arch::kCollectiveStepCycles),
      Scaled("F18 control cycles of a step", arch::kControlCyclesPerStep),
      Scaled("F19 seconds of a stream's request", arch::kStreamRequestSeconds)};
  const auto print = [](const std::string& what) -> absl::Status {
    Report report(/*quiet=*/true);
    VPOD_RETURN_IF_ERROR(AddRows(report));
    std::printf("%-48s median %5.1f %%, worst %5.1f %%\n", what.c_str(), report.median(),
                report.worst());
    std::fflush(stdout);
    return absl::OkStatus();
  };
  VPOD_RETURN_IF_ERROR(print("as it is"));
  for (const Default& each : defaults) {
    for (double factor : {0.8, 1.2}) {
      each.scale(factor);
      VPOD_RETURN_IF_ERROR(print(std::string(each.name) + (factor < 1 ? " -20 %" : " +20 %")));
      each.scale(1);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod::fidelity

int main() {
  const absl::Status status = vpod::fidelity::Main();
  if (status.ok()) return 0;
  std::fprintf(stderr, "sensitivity: error: %s\n", std::string(status.message()).c_str());
  return 1;
}

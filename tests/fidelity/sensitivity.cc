// Shows what a change of each default of the model (F1 to F20 of spec/hardware.md 10) by a fifth
// does to the errors of all rows. Built with the defaults as variables (hardware.h).
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/arch/vertex_cycles.h"
#include "device/base/status.h"
#include "tests/fidelity/rows.h"

namespace vpod::fidelity {
namespace {

struct Default {
  const char* name;
  std::function<void(double factor)> scale;
};

template <class... Values>
Default Scaled(const char* name, Values&... values) {
  return {name, [&values..., ... defaults = values](double factor) {
            ((values = static_cast<Values>(static_cast<double>(defaults) * factor)), ...);
          }};
}

// In a process of its own: plans of products are remembered with what they cost.
absl::Status Print(const std::string& what, const std::function<void()>& change) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot fork");
  if (child == 0) {
    change();
    Report report(/*quiet=*/true);
    const absl::Status status = AddRows(report);
    if (status.ok()) {
      std::printf("%-48s median %5.1f %%, worst %5.1f %%\n", what.c_str(), report.median(),
                  report.worst());
    } else {
      std::fprintf(stderr, "sensitivity: error: %s\n", std::string(status.message()).c_str());
    }
    std::exit(status.ok() ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) == child && status == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(what, ": no result"));
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
      Scaled("F19 seconds of a stream's request", arch::kStreamRequestSeconds),
      Scaled("F20 cycles of unlisted functions", arch::kPassCycles, arch::kHalfTranscendentalCycles,
             arch::kFloatTranscendentalCycles)};
  VPOD_RETURN_IF_ERROR(Print("as it is", [] {}));
  for (const Default& each : defaults) {
    for (double factor : {0.8, 1.2}) {
      const std::string what = std::string(each.name) + (factor < 1 ? " -20 %" : " +20 %");
      VPOD_RETURN_IF_ERROR(Print(what, [&] { each.scale(factor); }));
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

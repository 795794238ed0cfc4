#include "client/poptorch/transfers.h"

#include "device/model/timeline.h"

namespace vpod::poptorch {

std::map<std::string, std::vector<Transfer>> TransfersOf(const program::Executable& executable,
                                                         uint32_t program,
                                                         const model::Topology& topology) {
  std::map<std::string, std::vector<Transfer>> transfers;
  const auto seconds = [&](base::Cycles cycles) {
    return static_cast<double>(cycles.value()) / topology.clock_hz;
  };
  const program::v1::Executable& text = executable.proto();
  model::TimelineOf(text, program, topology, [&](const model::TimelineEvent& event) {
    const program::v1::Instruction& instruction =
        text.ipus(static_cast<int>(event.ipu))
            .functions(static_cast<int>(event.place.function))
            .instructions(static_cast<int>(event.place.index));
    if (!instruction.has_stream_in() && !instruction.has_stream_out()) return;
    const uint32_t stream = instruction.has_stream_in() ? instruction.stream_in().stream()
                                                        : instruction.stream_out().stream();
    transfers[text.streams(static_cast<int>(stream)).name()].push_back(
        {seconds(event.begin + event.waiting), seconds(event.end)});
  });
  return transfers;
}

}  // namespace vpod::poptorch

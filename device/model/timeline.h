// When the IPUs of a replica do what in a run: each has a clock, and the clocks meet at exchanges
// between IPUs. Replicas are alike, so that collectives keep nobody waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/model/cost.h"
#include "device/model/liveness.h"

namespace vpod::model {

// Of one IPU, in a whole run.
struct IpuTime {
  Cost cost;
  Cycles waiting;  // for other IPUs
  Cycles end() const { return cost.total() + waiting; }
};

// An instruction, from when its IPU comes to it: it may wait first.
struct TimelineEvent {
  uint32_t ipu;
  InstructionPlace place;
  Cycles begin, waiting, end;
};

struct Timeline {
  std::vector<IpuTime> ipus;
  Cycles end() const;  // of the slowest IPU
};

// Of a run of a program: the cycles that the engine counts, if conditions are true, and loops that
// end on a condition take all their rounds. `visit`, if there is one, gets all events, those of an
// IPU in their order; without it, what repeats without meeting others is not gone through.
Timeline TimelineOf(const program::v1::Executable& executable, uint32_t program,
                    const Topology& topology,
                    const std::function<void(const TimelineEvent&)>& visit = nullptr);

}  // namespace vpod::model

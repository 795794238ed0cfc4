// The course of a run on the IPUs of a replica. Each IPU has a clock; clocks meet at
// exchanges between IPUs. Replicas are alike, so that no IPU waits at a collective.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/model/cost.h"
#include "device/model/liveness.h"

namespace vpod::model {

// How one IPU spends a whole run.
struct IpuTime {
  Cost cost;
  Cycles waiting;  // for other IPUs
  Cycles end() const { return cost.total() + waiting; }
};

// The execution of an instruction, which begins with waiting if others are late.
struct TimelineEvent {
  uint32_t ipu;
  InstructionPlace place;
  Cycles begin, waiting, end;
};

struct Timeline {
  std::vector<IpuTime> ipus;
  Cycles end() const;  // of the slowest IPU
  // Bytes that the IPU sends that sends most.
  Bytes over_ipu_links() const;
  Bytes over_gw_links() const;
};

// Plays one planned run of a program (program::ForEachPlannedCall). It takes the cycles that the
// engine counts, if all conditions are true and every While takes all its rounds. `visit`, if there
// is one, gets all events, those of an IPU in their order; without it, loops that meet no other IPU
// are not played round by round.
Timeline TimelineOf(const program::v1::Executable& executable, uint32_t program,
                    const Topology& topology,
                    const std::function<void(const TimelineEvent&)>& visit = nullptr);

}  // namespace vpod::model

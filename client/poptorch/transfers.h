// When the streams of a program move data between host and IPUs, by the model of time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/model/cost.h"
#include "device/program/executable.h"

namespace vpod::poptorch {

// One transfer of a micro-batch, in seconds since the run has begun.
struct Transfer {
  double begin = 0, end = 0;
};

// The transfers of one planned run of a replica (device/model/timeline.h), by the name of the
// stream, in their order. Replicas are alike.
std::map<std::string, std::vector<Transfer>> TransfersOf(const program::Executable& executable,
                                                         uint32_t program,
                                                         const model::Topology& topology);

}  // namespace vpod::poptorch

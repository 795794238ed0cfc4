// The words in which poprun reports a job that failed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/launch/instance_report.h"
#include "client/launch/layout.h"

namespace vpod::launch {

// An instance that ended without a word, as the agent saw it.
struct LostInstance {
  uint32_t index = 0;
  std::string pid;  // marked if it is of another PID namespace
  std::string host;
};

// The facts that poprun has about the end of a job whose mpirun failed.
struct JobEnd {
  // The supervisors' reports; none: there were no supervisors.
  std::optional<std::vector<InstanceReport>> reports = std::nullopt;
  std::optional<LostInstance> lost = std::nullopt;  // by an agent's word
  int exit_code = 0;                                // of mpirun
};

// The instance that ended first, and how: "instance 2 (pid 4711, node7) was killed by signal 9".
// The supervisors know best; without their word the agent's counts. Empty if neither knows.
std::string DescribeFirstEnd(const JobEnd& end, const Layout& layout);

}  // namespace vpod::launch

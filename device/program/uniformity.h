// Which variables hold the same bytes on all replicas at all times, if they begin equal: only steps
// whose operands are equal write them. Replicas may then have one copy of such a variable, which
// one of them updates for all.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program/executable.h"

namespace vpod::program {

// Replicas [first, first + count) of a job.
struct ReplicaRange {
  uint32_t first = 0, count = 1, total = 1;
};

struct Uniformity {
  // By number in Executable::host_tensors(); never a remote buffer.
  std::vector<bool> variables;
  // [ipu][function][instruction]: a kernel that writes uniform variables and nothing else, so that
  // it may run once for all replicas.
  std::vector<std::vector<std::vector<bool>>> once;
};

// Of those variables that `candidates` allows, the uniform ones among `replicas`. Variables that a
// collective or an exchange touches do not count. An executable whose control flow takes too long
// to follow has none.
Uniformity FindUniform(const Executable& executable, const ReplicaRange& replicas,
                       std::vector<bool> candidates);

}  // namespace vpod::program

// Which bytes a run moves over which links. Pure.
//
// The rule: a copy between two IPUs of a replica moves its bytes along their route. An all-reduce
// of S bytes over n replicas is a ring in both directions (spec/hardware.md F17): every IPU sends
// S (n-1)/n bytes to the same IPU of the next replica and as many to that of the previous one. The
// replicas of a job are taken to lie one after the other in the partition.
#pragma once

#include <vector>

#include "device/machine/links.h"
#include "device/program/executable.h"
#include "proto/ipuof/v1/ipuof.pb.h"
#include "server/agent/wiring.h"

namespace vpod::agent {

// Bytes from one unit (replica × IPUs per replica + IPU) of a job to another in one run.
struct Flow {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t bytes = 0;
  friend bool operator==(const Flow&, const Flow&) = default;
};

// Replicas of a job, `end` not among them.
struct Replicas {
  uint32_t first = 0;
  uint32_t end = UINT32_MAX;
};

// Returns the flows that a run of `program` sends from one instance of a job, and those that its
// units receive from other instances. All-to-alls are of the `known` replicas alone, because a job
// may say that it has many more than lie in the partition.
std::vector<Flow> FlowsOf(const program::Executable& executable, uint32_t program,
                          const ipuof::v1::JobMember& job, const Replicas& known = {});

// Bytes on the ports of one machine.
struct MachineTraffic {
  uint32_t machine = 0;  // of the wiring
  std::vector<machine::PortBytes> ports;
};

// Puts the flows on the links of the machines that `is_here` names, so that processes which hold
// the two ends of a flow count it once each. `first_ipu` is the place in wiring.ipus() of unit
// `first_unit` of the job, which is the first of the instance.
std::vector<MachineTraffic> TrafficOf(const Wiring& wiring, const std::vector<Flow>& flows,
                                      uint32_t first_unit, uint32_t num_units, uint32_t first_ipu,
                                      const std::vector<bool>& is_here);

}  // namespace vpod::agent

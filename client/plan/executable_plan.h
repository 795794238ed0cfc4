// Plans of compiled executables: what a run takes on a POD of any size. Nothing is allocated for
// its variables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/model/timeline.h"
#include "device/program/executable.h"

namespace vpod::plan {

// A run of one of its programs.
struct RunPlan {
  std::string program;
  model::Timeline timeline;
  double seconds = 0;
  // The rows of the first stream from the host that the program reads, of all replicas: images or
  // sequences. 0 if it reads none.
  uint64_t items = 0;
  double items_per_second() const { return static_cast<double>(items) / seconds; }
  // Without them, replicas exchange nothing. An executable that was compiled for one replica may
  // have none for its gradients.
  bool has_collectives = false;
};

struct ExecutablePlan {
  model::Topology topology;
  uint32_t replicas = 1;
  std::vector<RunPlan> runs;         // in the order of the programs
  std::vector<model::Bytes> memory;  // of each IPU of a replica
  absl::Status fits;                 // as model::CheckMemory gives it
};

// Replicas that share out the state of the optimiser among them; 1 if each has all of it.
uint32_t ShardsOf(const program::Executable& executable);

// The replicas of so many IPUs that a POD has. InvalidArgument: no whole number, or none.
absl::StatusOr<uint32_t> ReplicasOf(uint32_t pod, uint32_t ipus_per_replica);

// InvalidArgument: a POD that has no whole number of replicas, or another number than the
// executable was compiled for.
absl::Status CheckPod(const program::Executable& executable, uint32_t pod);

// Gets each event of a program's timeline; see model::TimelineOf.
using VisitEvent = std::function<void(uint32_t program, const model::TimelineEvent& event)>;

// InvalidArgument: an unknown machine type, and what CheckPod refuses.
absl::StatusOr<ExecutablePlan> PlanExecutable(const program::Executable& executable, uint32_t pod,
                                              const std::string& machine_type,
                                              const VisitEvent& visit = nullptr);

}  // namespace vpod::plan

// Plans of the training of models on PODs of any size: the compiler and the model of the machine,
// and no machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/plan/executable_plan.h"
#include "client/plan/networks.h"
#include "device/model/memory_options.h"
#include "device/model/timeline.h"

namespace vpod::plan {

struct PlanRequest {
  NetworkRequest network;
  uint32_t pod = 16;                 // IPUs
  std::optional<uint32_t> replicas;  // in a part of the POD; none: as many as it has
  std::string machine_type = "m2000";
  uint32_t accumulation = 1;                                   // micro-batches of an update
  uint32_t device_iterations = 1;                              // updates of a run
  compiler::Schedule schedule = compiler::Schedule::kGrouped;  // of several IPUs
  compiler::Recomputation recomputation = compiler::Recomputation::kNone;
  bool off_chip_optimizer_state = false;
  bool off_chip_activations = false;
  bool off_chip_weights = false;
  bool off_chip_accumulators = false;
  bool tensor_sharding = false;  // over all replicas
  compiler::Optimizer optimizer = compiler::SgdOptions{.momentum = 0.9f};
  bool half_partials = false;
  std::optional<float> memory_proportion;  // as in compiler::ProductOptions
};

// The plan of an executable that has one program, which trains.
struct Plan : ExecutablePlan {
  std::shared_ptr<const program::Executable> executable;
  uint64_t global_batch = 1;    // images or sequences of an update
  double seconds = 0;           // of an update, the mean of a run
  double items_per_second = 0;  // images or sequences
  const model::Timeline& timeline() const { return runs[0].timeline; }
  // The time to write all weights before a run and to read them after it, one IPU after the
  // other (spec/hardware.md 8.3).
  model::Cycles weight_transfers;
  uint64_t stream_bytes = 0;  // of a replica, in a run
};

// Gets each step of an update: its IPU, its origin in the model, and its cycles without waiting.
using VisitSteps =
    std::function<void(uint32_t ipu, const program::v1::Origin& origin, uint64_t cycles)>;

// InvalidArgument: what the compiler refuses, and a POD that has no whole number of replicas, or
// fewer than are asked for.
absl::StatusOr<Plan> MakePlan(const PlanRequest& request, const VisitSteps& visit = nullptr);

// Why the plan of a request does not fit and what to try, each tried by a plan of its own; `names`
// are those of the options that make requests. Empty: it fits.
absl::StatusOr<std::string> WhyNotFit(const PlanRequest& request, const model::OptionNames& names);

}  // namespace vpod::plan

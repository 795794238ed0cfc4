// The fastest way to train a model on a POD that fits the memory of its IPUs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/plan/plan.h"

namespace vpod::plan {

struct Candidate {
  PlanRequest request;
  Plan plan;
};

// A candidate beside the best one, and why it is not better.
struct Neighbour {
  std::string change;  // "micro-batch 24"
  std::string why;     // "does not fit: …", "4.2 % slower" or "as fast"
};

struct SearchResult {
  Candidate best;
  std::vector<Neighbour> neighbours;
  size_t plans = 0;  // that were made
};

// Gets the number of plans made so far, from any thread, one call at a time.
using SearchProgress = std::function<void(size_t plans)>;

// Searches over IPUs per replica, where their stages begin, micro-batch, recomputation and
// accumulation, whose product with micro-batch and replicas is at most `global_batch`; the rest is
// as the request has it. On all threads of the host; the result does not depend on them.
// ResourceExhausted: nothing fits of one IPU and of stages with balanced costs or even numbers of
// blocks, whose boundaries are moved only beside what fits; the message names the candidate that
// needs the least memory.
absl::StatusOr<SearchResult> Search(const PlanRequest& request, uint64_t global_batch,
                                    SearchProgress progress = nullptr);

// "2 IPUs per replica (--stages layer3.0), micro-batch 16, accumulation 8, recomputation standard"
std::string Describe(const PlanRequest& request);

}  // namespace vpod::plan

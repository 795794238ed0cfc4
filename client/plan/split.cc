#include "client/plan/split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::plan {
namespace {

// Costs are compared with it, so that fixed costs of operations do not decide.
constexpr int64_t kMicroBatch = 8;

}  // namespace

absl::StatusOr<PartCosts> CostsOfParts(const PlanRequest& request) {
  PlanRequest single = request;
  single.network.ipus = 1;
  single.network.stages.clear();
  single.pod = 1;
  single.replicas.reset();
  single.accumulation = single.device_iterations = 1;
  single.network.micro_batch = kMicroBatch;
  std::map<std::string, uint64_t> cycles;
  VPOD_ASSIGN_OR_RETURN(const NetworkOptions options, OptionsOf(request.network.name));
  PartCosts costs{.last_is_first = options.last_is_first};
  bool behind = false;  // the last part, in the forward pass
  const auto visit = [&](uint32_t, const program::v1::Origin& origin, uint64_t of_step) {
    // Updates come once for many micro-batches.
    if (origin.phase() == program::v1::Origin::UPDATE) return;
    const std::string part = BlockOf(request.network.name, origin.scope());
    if (part.empty()) {
      // The micro-batch begins; constants of all parts are filled before.
      if (origin.op() == "stream_in") behind = false;
      (behind ? costs.after : costs.before) += of_step;
      return;
    }
    // Steps after the parts, forward and backward, are between their two passes.
    behind = origin.phase() == program::v1::Origin::FORWARD;
    const auto [it, is_new] = cycles.try_emplace(part);
    if (is_new) costs.parts.push_back(part);
    it->second += of_step;
  };
  VPOD_RETURN_IF_ERROR(MakePlan(single, visit).status());
  if (costs.parts.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", request.network.name, "' has no parts to split it by"));
  }
  for (const std::string& part : costs.parts) costs.cycles.push_back(cycles[part]);
  return costs;
}

std::vector<size_t> BalancedSplit(const PartCosts& costs, size_t stages) {
  const size_t n = costs.cycles.size();
  std::vector<uint64_t> sums(n + 1);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + costs.cycles[i];
  stages = std::min(stages, n + 1);
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  const auto cost = [&](size_t stage, size_t begin, size_t end) {
    uint64_t of_stage = sums[end] - sums[begin];
    if (stage == 0) of_stage += costs.before + (costs.last_is_first ? costs.after : 0);
    if (stage + 1 == stages && !costs.last_is_first) of_stage += costs.after;
    return of_stage;
  };
  // The least cost of the slowest of the first stages that have the first parts.
  std::vector<std::vector<uint64_t>> least(stages + 1, std::vector<uint64_t>(n + 1, kNone));
  std::vector<std::vector<size_t>> begins(stages + 1, std::vector<size_t>(n + 1));
  for (size_t end = 0; end <= n; ++end) least[1][end] = cost(0, 0, end);
  for (size_t stage = 1; stage < stages; ++stage) {
    for (size_t end = stage; end <= n; ++end) {
      for (size_t begin = stage - 1; begin < end; ++begin) {
        const uint64_t slowest = std::max(least[stage][begin], cost(stage, begin, end));
        if (slowest >= least[stage + 1][end]) continue;
        least[stage + 1][end] = slowest;
        begins[stage + 1][end] = begin;
      }
    }
  }
  std::vector<size_t> beginnings;
  for (size_t stage = stages, end = n; stage > 1; --stage)
    beginnings.push_back(end = begins[stage][end]);
  std::reverse(beginnings.begin(), beginnings.end());
  return beginnings;
}

std::vector<size_t> EvenSplit(const PartCosts& costs, size_t stages) {
  const size_t shares = stages - (costs.last_is_first ? 1 : 0);
  if (shares == 0 || shares > costs.parts.size()) return {};
  std::vector<size_t> beginnings = EvenShares(costs.parts.size(), shares);
  if (!costs.last_is_first) beginnings.erase(beginnings.begin());
  return beginnings;
}

std::vector<std::string> StagesOf(const std::string& network, const PartCosts& costs,
                                  const std::vector<size_t>& beginnings) {
  std::vector<std::string> stages;
  const auto options = OptionsOf(network);
  if (!options.ok() || !options->stages_are_counts) {
    for (size_t part : beginnings) stages.push_back(costs.parts[part]);
    return stages;
  }
  size_t begin = 0;
  for (size_t end : beginnings) {
    stages.push_back(absl::StrCat(end - begin));
    begin = end;
  }
  stages.push_back(absl::StrCat(costs.parts.size() - begin));
  return stages;
}

}  // namespace vpod::plan

#include "client/plan/search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/plan/split.h"
#include "device/base/status.h"

namespace vpod::plan {
namespace {

using compiler::Recomputation;

constexpr std::array<int64_t, 22> kMicroBatches = {1,  2,  3,  4,  5,  6,  8,  10, 12, 14, 16,
                                                   18, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128};
constexpr uint32_t kIpus[] = {1, 2, 4, 8, 16};

class Searcher {
 public:
  Searcher(const PlanRequest& request, uint64_t global_batch)
      : request_(request), global_batch_(global_batch) {}

  absl::StatusOr<SearchResult> Run() {
    VPOD_RETURN_IF_ERROR(FindSplits());
    std::vector<Family> families;
    for (const auto& [ipus, stages] : splits_) {
      for (Recomputation r :
           {Recomputation::kNone, Recomputation::kStandard, Recomputation::kPipeline}) {
        if (ipus > 1 || r != Recomputation::kPipeline)
          families.push_back({.ipus = ipus, .recomputation = r});
      }
    }
    InParallel(families.size(), [&](size_t i) { Explore(families[i]); });
    // In a fixed order, so that equal speeds give the same result each time.
    std::optional<Candidate> best;
    for (Family& family : families) {
      if (family.best && (!best || IsFaster(*family.best, *best))) best = std::move(family.best);
    }
    if (!best) return WhyNothing(families);
    SearchResult result{.best = *std::move(best)};
    // A neighbour may be better still.
    for (std::optional<Candidate> better; (better = Neighbours(result));)
      result.best = *std::move(better);
    result.plans = plans_;
    return result;
  }

 private:
  // Runs on all threads of the host; each call of `work` is independent.
  template <class Work>
  static void InParallel(size_t count, const Work& work) {
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    const size_t number =
        std::min<size_t>(count, std::max(1u, std::thread::hardware_concurrency()));
    for (size_t t = 0; t < number; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < count; i = next++) work(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status FindSplits() {
    // A check of all that the search does not change.
    PlanRequest first = request_;
    first.network.ipus = 1;
    first.network.stages.clear();
    first.network.micro_batch = first.accumulation = 1;
    VPOD_RETURN_IF_ERROR(MakePlan(first).status());
    splits_[1] = {};
    const absl::StatusOr<PartCosts> costs = CostsOfParts(first);
    if (!costs.ok()) return absl::OkStatus();  // a model that is not split
    costs_ = *costs;
    for (uint32_t ipus : kIpus) {
      if (ipus == 1 || request_.pod % ipus != 0 || ipus > request_.pod) continue;
      const std::vector<size_t> beginnings = BalancedSplit(costs_, ipus);
      if (beginnings.size() + 1 == ipus) splits_[ipus] = beginnings;
    }
    return absl::OkStatus();
  }

  // Nothing if it does not fit the global batch.
  std::optional<PlanRequest> RequestFor(uint32_t ipus, const std::vector<size_t>& split,
                                        Recomputation recomputation, int64_t micro_batch) const {
    PlanRequest request = request_;
    request.network.ipus = ipus;
    request.network.stages =
        ipus == 1 ? std::vector<std::string>() : StagesOf(request.network.name, costs_, split);
    request.recomputation = recomputation;
    request.network.micro_batch = micro_batch;
    const uint64_t of_one = static_cast<uint64_t>(micro_batch) * (request.pod / ipus);
    request.accumulation =
        static_cast<uint32_t>(std::min<uint64_t>(global_batch_ / of_one, 1 << 16));
    // Heads of BERT make up another stage.
    const uint32_t stages = ipus + (costs_.last_is_first && ipus > 1 ? 1 : 0);
    if (request.accumulation < std::max(1u, 2 * stages - 1)) return std::nullopt;
    return request;
  }

  // Candidates that differ in micro-batch and accumulation.
  struct Family {
    uint32_t ipus;
    Recomputation recomputation;
    std::optional<Candidate> best;
    absl::Status failure;  // of the smallest candidate
  };

  static bool IsFaster(const Candidate& a, const Candidate& b) {
    return a.plan.items_per_second > b.plan.items_per_second;
  }

  // Finds the largest micro-batch that fits, and goes down from there while that is faster: a
  // larger one leaves fewer micro-batches to fill a pipeline with.
  void Explore(Family& family) {
    std::map<size_t, std::optional<Candidate>> made;
    const auto make = [&](size_t index) -> const std::optional<Candidate>& {
      const auto [it, is_new] = made.try_emplace(index);
      if (!is_new) return it->second;
      const auto request = RequestFor(family.ipus, splits_.at(family.ipus), family.recomputation,
                                      kMicroBatches[index]);
      if (!request) return it->second;
      ++plans_;
      absl::StatusOr<Plan> plan = MakePlan(*request);
      const absl::Status status = plan.ok() ? plan->fits : plan.status();
      if (status.ok()) it->second = Candidate{*request, *std::move(plan)};
      if (!status.ok() && (index == 0 || family.failure.ok())) family.failure = status;
      return it->second;
    };
    size_t low = 0, high = kMicroBatches.size();  // the first that is too large
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (make(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    for (size_t index = low; index-- > 0;) {
      const std::optional<Candidate>& candidate = make(index);
      if (!candidate || (family.best && !IsFaster(*candidate, *family.best))) break;
      family.best = candidate;
    }
  }

  absl::Status WhyNothing(const std::vector<Family>& families) const {
    for (const Family& family : families) {
      if (!family.failure.ok()) return family.failure;
    }
    return absl::InvalidArgumentError(absl::StrCat("a global batch of ", global_batch_,
                                                   " is too small for ", request_.pod, " IPUs"));
  }

  struct Change {
    std::string what;
    std::optional<PlanRequest> request;
  };

  // Looks at what is beside the best candidate; the fastest of it, if it is better and fits.
  std::optional<Candidate> Neighbours(SearchResult& result) {
    const PlanRequest& at = result.best.request;
    const uint32_t ipus = at.network.ipus;
    std::vector<Change> changes;
    const auto add = [&](std::string what, uint32_t other_ipus, const std::vector<size_t>& split,
                         Recomputation recomputation, int64_t micro_batch) {
      changes.push_back(
          {std::move(what), RequestFor(other_ipus, split, recomputation, micro_batch)});
    };
    const std::vector<size_t>& split = splits_.at(ipus);
    const auto here = std::find(kMicroBatches.begin(), kMicroBatches.end(), at.network.micro_batch);
    const auto add_micro_batch = [&](int64_t other) {
      add(absl::StrCat("micro-batch ", other), ipus, split, at.recomputation, other);
    };
    if (here != kMicroBatches.begin()) add_micro_batch(*std::prev(here));
    if (std::next(here) != kMicroBatches.end()) add_micro_batch(*std::next(here));
    for (Recomputation r :
         {Recomputation::kNone, Recomputation::kStandard, Recomputation::kPipeline}) {
      if (r == at.recomputation || (ipus == 1 && r == Recomputation::kPipeline)) continue;
      add(absl::StrCat("recomputation ", NameOf(r)), ipus, split, r, at.network.micro_batch);
    }
    for (const auto& [other, other_split] : splits_) {
      if (other != ipus)
        add(absl::StrCat(other, other == 1 ? " IPU" : " IPUs", " per replica"), other, other_split,
            at.recomputation, at.network.micro_batch);
    }
    if (ipus > 1) {
      for (int step : {-1, 1}) {
        std::vector<size_t> moved = split;
        moved[0] = static_cast<size_t>(static_cast<int>(moved[0]) + step);
        if (moved[0] == 0 || moved[0] >= (moved.size() > 1 ? moved[1] : costs_.parts.size()))
          continue;
        tried_.push_back(moved);
        add(absl::StrCat("IPU 1 from ", costs_.parts[moved[0]]), ipus, moved, at.recomputation,
            at.network.micro_batch);
      }
    }
    std::vector<std::optional<Candidate>> better(changes.size());
    result.neighbours.assign(changes.size(), {});
    InParallel(changes.size(), [&](size_t i) {
      result.neighbours[i] = {changes[i].what, WhyNot(result.best, changes[i].request, better[i])};
    });
    std::optional<Candidate> fastest;
    for (std::optional<Candidate>& candidate : better) {
      if (candidate && (!fastest || IsFaster(*candidate, *fastest))) fastest = std::move(candidate);
    }
    // Where the stages were moved, they are so from now on.
    if (fastest) splits_[fastest->request.network.ipus] = BeginningsIn(fastest->request);
    return fastest;
  }

  std::vector<size_t> BeginningsIn(const PlanRequest& request) const {
    for (const std::vector<size_t>& split : tried_) {
      if (request.network.ipus > 1 &&
          StagesOf(request.network.name, costs_, split) == request.network.stages)
        return split;
    }
    return splits_.at(request.network.ipus);
  }

  // `better` gets the plan if it is.
  std::string WhyNot(const Candidate& best, const std::optional<PlanRequest>& request,
                     std::optional<Candidate>& better) {
    if (!request)
      return absl::StrCat("leaves too few micro-batches of a global batch of ", global_batch_);
    ++plans_;
    absl::StatusOr<Plan> plan = MakePlan(*request);
    if (!plan.ok()) return std::string(plan.status().message());
    if (!plan->fits.ok()) {
      // "… On IPU 0, 3 of 1472 tiles need more than their 638976 bytes, by up to 8 bytes."
      const std::vector<std::string> sentences =
          absl::StrSplit(std::string(plan->fits.message()), ". ");
      return absl::StrCat("does not fit: ", sentences.size() > 1 ? sentences[1] : sentences[0]);
    }
    const double slower = 100 * (1 - plan->items_per_second / best.plan.items_per_second);
    if (slower < 0) better = Candidate{*request, *std::move(plan)};
    return absl::StrFormat("%.1f %% slower", slower);
  }

  const PlanRequest request_;
  const uint64_t global_batch_;
  PartCosts costs_;
  std::map<uint32_t, std::vector<size_t>> splits_;  // beginnings of stages, by IPUs per replica
  std::vector<std::vector<size_t>> tried_;          // other splits
  std::atomic<size_t> plans_ = 0;
};

}  // namespace

const char* NameOf(Recomputation recomputation) {
  for (const auto& [name, value] : compiler::kRecomputationNames) {
    if (value == recomputation) return name;
  }
  return "";
}

std::string Describe(const PlanRequest& request) {
  const uint32_t ipus = request.network.ipus;
  return absl::StrCat(
      ipus, ipus == 1 ? " IPU" : " IPUs", " per replica",
      request.network.stages.empty()
          ? ""
          : absl::StrCat(" (--stages ", absl::StrJoin(request.network.stages, ","), ")"),
      ", micro-batch ", request.network.micro_batch, ", accumulation ", request.accumulation,
      ", recomputation ", NameOf(request.recomputation));
}

absl::StatusOr<SearchResult> Search(const PlanRequest& request, uint64_t global_batch) {
  return Searcher(request, global_batch).Run();
}

}  // namespace vpod::plan

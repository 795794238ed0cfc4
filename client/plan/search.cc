#include "client/plan/search.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/plan/split.h"
#include "device/base/mutex.h"
#include "device/base/status.h"
#include "device/program/executable.h"

namespace vpod::plan {
namespace {

using compiler::Recomputation;

constexpr int64_t kMostMicroBatch = 512;
constexpr int64_t kPrecision = 32;  // of the largest micro-batch that fits
constexpr uint32_t kIpus[] = {1, 2, 4, 8, 16, 32, 64};
// A family that is this much slower than the fastest is not looked at more closely.
constexpr double kShareWorthALook = 0.7;

class Searcher {
 public:
  Searcher(const PlanRequest& request, uint64_t global_batch)
      : request_(request), global_batch_(global_batch) {}

  absl::StatusOr<SearchResult> Run() {
    VPOD_RETURN_IF_ERROR(FindSplits());
    std::vector<Family> families = Explore();
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
    const base::MutexLock lock(mutex_);
    result.plans = outcomes_.size();
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
    VPOD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(first));
    stream_bytes_of_one_ = std::max<uint64_t>(1, plan.stream_bytes);
    splits_[1] = {};
    const absl::StatusOr<PartCosts> costs = CostsOfParts(first);
    if (absl::IsInvalidArgument(costs.status())) return absl::OkStatus();  // it is not split
    VPOD_RETURN_IF_ERROR(costs.status());
    costs_ = *costs;
    for (uint32_t ipus : kIpus) {
      if (ipus == 1 || request_.pod % ipus != 0 || ipus > request_.pod) continue;
      const std::vector<size_t> beginnings = BalancedSplit(costs_, ipus);
      if (beginnings.size() + 1 == ipus) splits_[ipus] = beginnings;
    }
    return absl::OkStatus();
  }

  // That fill a pipeline.
  uint32_t FewestMicroBatches(uint32_t ipus) const {
    const bool pipelined = request_.schedule != compiler::Schedule::kSharded &&
                           request_.schedule != compiler::Schedule::kPhased;
    if (ipus == 1 || !pipelined) return 1;
    // Heads of some models make up another stage.
    const uint32_t stages = ipus + (costs_.last_is_first ? 1 : 0);
    return 2 * stages - 1;
  }

  // With as many micro-batches in an update as the global batch and the streams of a run allow.
  // InvalidArgument: these are too few.
  absl::StatusOr<PlanRequest> RequestFor(uint32_t ipus, const std::vector<size_t>& split,
                                         Recomputation recomputation, int64_t micro_batch) const {
    PlanRequest request = request_;
    request.network.ipus = ipus;
    request.network.stages =
        ipus == 1 ? std::vector<std::string>() : StagesOf(request.network.name, costs_, split);
    request.recomputation = recomputation;
    request.network.micro_batch = micro_batch;
    const auto items = static_cast<uint64_t>(micro_batch);
    const uint64_t of_batch = global_batch_ / (items * (request.pod / ipus)),
                   of_streams = program::Limits().stream_bytes / (items * stream_bytes_of_one_);
    request.accumulation =
        static_cast<uint32_t>(std::min<uint64_t>({of_batch, of_streams, 1 << 16}));
    if (request.accumulation >= FewestMicroBatches(ipus)) return request;
    return absl::InvalidArgumentError(
        of_batch <= of_streams
            ? absl::StrCat("leaves too few micro-batches of a global batch of ", global_batch_)
            : absl::StrCat("leaves too few micro-batches for the streams of a run, which take at "
                           "most ",
                           program::Limits().stream_bytes, " bytes"));
  }

  // A plan and whether it can be made and fits.
  struct Outcome {
    Plan plan;
    absl::Status status;
  };

  // Looks at a request once.
  const Outcome& OutcomeOf(const PlanRequest& request) {
    const std::string key = Describe(request);
    {
      const base::MutexLock lock(mutex_);
      const auto known = outcomes_.find(key);
      if (known != outcomes_.end()) return known->second;
    }
    absl::StatusOr<Plan> plan = MakePlan(request);
    Outcome outcome;
    outcome.status = plan.ok() ? plan->fits : plan.status();
    if (plan.ok()) outcome.plan = *std::move(plan);
    const base::MutexLock lock(mutex_);
    return outcomes_.try_emplace(key, std::move(outcome)).first->second;
  }

  // Candidates that differ in micro-batch and accumulation.
  struct Family {
    uint32_t ipus;
    Recomputation recomputation;
    int64_t largest = 0;    // micro-batch that fits
    int64_t too_large = 1;  // and one that does not
    std::optional<Candidate> best;
    absl::Status failure;  // of the smallest candidate
  };

  static bool IsFaster(const Candidate& a, const Candidate& b) {
    return a.plan.items_per_second > b.plan.items_per_second;
  }

  std::vector<Family> Explore() {
    std::vector<Family> families;
    for (Recomputation r : {Recomputation::kNone, Recomputation::kNormOnly,
                            Recomputation::kStandard, Recomputation::kPipeline}) {
      for (const auto& [ipus, stages] : splits_) {
        if (ipus > 1 || r != Recomputation::kPipeline)
          families.push_back({.ipus = ipus, .recomputation = r});
      }
    }
    // Recomputation makes room, so that what fits without fits with it.
    const size_t plain = splits_.size();
    InParallel(plain, [&](size_t i) { FindLargest(families[i], 1); });
    std::map<uint32_t, int64_t> largest;  // without recomputation, by IPUs
    for (size_t i = 0; i < plain; ++i) largest[families[i].ipus] = families[i].largest;
    InParallel(families.size() - plain, [&](size_t i) {
      Family& family = families[plain + i];
      FindLargest(family, std::max<int64_t>(1, largest.at(family.ipus)));
    });
    double fastest = 0;
    for (const Family& family : families) {
      if (family.best) fastest = std::max(fastest, family.best->plan.items_per_second);
    }
    InParallel(families.size(), [&](size_t i) {
      const auto& best = families[i].best;
      if (best && best->plan.items_per_second >= kShareWorthALook * fastest) Refine(families[i]);
    });
    return families;
  }

  // Whether it fits.
  bool Try(Family& family, int64_t micro_batch) {
    const auto request =
        RequestFor(family.ipus, splits_.at(family.ipus), family.recomputation, micro_batch);
    if (!request.ok()) return false;
    const Outcome& outcome = OutcomeOf(*request);
    if (!outcome.status.ok()) {
      family.failure = outcome.status;
      return false;
    }
    Candidate candidate{*request, outcome.plan};
    if (!family.best || IsFaster(candidate, *family.best)) family.best = std::move(candidate);
    return true;
  }

  // From a micro-batch that may well fit on; to a part in kPrecision.
  void FindLargest(Family& family, int64_t from) {
    int64_t fits = 0, above = from;
    while (above <= kMostMicroBatch && Try(family, above)) {
      fits = above;
      above = std::min(2 * above, kMostMicroBatch + 1);
    }
    while (above - fits > 1 + fits / kPrecision) {
      const int64_t middle = (fits + above) / 2;
      (Try(family, middle) ? fits : above) = middle;
    }
    family.largest = fits;
    family.too_large = above;
  }

  // A smaller micro-batch leaves more of them to fill a pipeline with, and some sizes suit the
  // tiles better than larger ones.
  void Refine(Family& family) {
    const auto at = [&] { return family.best->request.network.micro_batch; };
    for (int64_t step = at() / 4 + 1; step > 0;) {
      const int64_t before = at();
      for (int64_t other : {before - step, before + step}) {
        if (other > 0 && other < family.too_large) Try(family, other);
      }
      if (at() == before) step /= 2;
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
    absl::StatusOr<PlanRequest> request;
  };

  std::vector<Change> ChangesOf(const PlanRequest& at) {
    const uint32_t ipus = at.network.ipus;
    const int64_t micro_batch = at.network.micro_batch;
    const std::vector<size_t> split = splits_.at(ipus);
    std::vector<Change> changes;
    const auto add = [&](std::string what, uint32_t other_ipus, const std::vector<size_t>& other,
                         Recomputation recomputation, int64_t items) {
      changes.push_back({std::move(what), RequestFor(other_ipus, other, recomputation, items)});
    };
    for (int64_t other : {micro_batch - 1, micro_batch + 1}) {
      if (other > 0) add(absl::StrCat("micro-batch ", other), ipus, split, at.recomputation, other);
    }
    for (const auto& [name, recomputation] : compiler::kRecomputationNames) {
      if (recomputation != at.recomputation &&
          (ipus > 1 || recomputation != Recomputation::kPipeline))
        add(absl::StrCat("recomputation ", name), ipus, split, recomputation, micro_batch);
    }
    for (const auto& [other, other_split] : splits_) {
      if (other != ipus)
        add(absl::StrCat(other, other == 1 ? " IPU" : " IPUs", " per replica"), other, other_split,
            at.recomputation, micro_batch);
    }
    for (size_t next = 0; next < split.size(); ++next) {
      const size_t before = next == 0 ? 0 : split[next - 1],
                   behind = next + 1 < split.size() ? split[next + 1] : costs_.parts.size();
      for (const size_t begin : {split[next] - 1, split[next] + 1}) {
        if (begin <= before || begin >= behind) continue;
        std::vector<size_t> moved = split;
        moved[next] = begin;
        tried_.push_back(moved);
        add(absl::StrCat("IPU ", next + 1, " from ", costs_.parts[begin]), ipus, moved,
            at.recomputation, micro_batch);
      }
    }
    return changes;
  }

  // Looks at what is beside the best candidate; the fastest of it, if it is better and fits.
  std::optional<Candidate> Neighbours(SearchResult& result) {
    const std::vector<Change> changes = ChangesOf(result.best.request);
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
  std::string WhyNot(const Candidate& best, const absl::StatusOr<PlanRequest>& request,
                     std::optional<Candidate>& better) {
    if (!request.ok()) return std::string(request.status().message());
    const Outcome& outcome = OutcomeOf(*request);
    if (absl::IsResourceExhausted(outcome.status)) {
      // "… On IPU 0, 3 of 1472 tiles need more than their 638976 bytes, by up to 8 bytes."
      const std::vector<std::string> sentences =
          absl::StrSplit(std::string(outcome.status.message()), ". ");
      return absl::StrCat("does not fit: ", sentences.size() > 1 ? sentences[1] : sentences[0]);
    }
    if (!outcome.status.ok()) return std::string(outcome.status.message());
    const double slower = 100 * (1 - outcome.plan.items_per_second / best.plan.items_per_second);
    if (slower < 0) better = Candidate{*request, outcome.plan};
    return absl::StrFormat("%.1f %% slower", slower);
  }

  const PlanRequest request_;
  const uint64_t global_batch_;
  uint64_t stream_bytes_of_one_ = 1;  // image or sequence, in a run
  PartCosts costs_;
  std::map<uint32_t, std::vector<size_t>> splits_;  // beginnings of stages, by IPUs per replica
  std::vector<std::vector<size_t>> tried_;          // other splits
  base::Mutex mutex_;
  // By their description; those that are there stay as they are.
  std::map<std::string, Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);
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

#include "client/plan/search.h"

#include <algorithm>
#include <atomic>
#include <limits>
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
constexpr int64_t kFailures = 3;    // in a row, beyond which no micro-batch is tried
constexpr uint32_t kIpus[] = {1, 2, 4, 8, 16, 32, 64};
// A family that is this much slower than the fastest is not looked at more closely.
constexpr double kShareWorthALook = 0.7;

// Parts with which the stages after the first begin: one fewer than IPUs per replica.
using Split = std::vector<size_t>;

size_t IpusOf(const Split& split) { return split.size() + 1; }

// Everything that the search decides; the accumulation follows.
struct Setting {
  Split split;
  Recomputation recomputation = Recomputation::kNone;
  int64_t micro_batch = 1;
};

// A setting that fits.
struct Point {
  Setting setting;
  PlanRequest request;
  double items_per_second = 0;
};

bool IsFaster(const Point& a, const Point& b) { return a.items_per_second > b.items_per_second; }

class Searcher {
 public:
  Searcher(const PlanRequest& request, uint64_t global_batch, SearchProgress progress)
      : request_(request), global_batch_(global_batch), progress_(std::move(progress)) {}

  absl::StatusOr<SearchResult> Run() {
    VPOD_RETURN_IF_ERROR(FindSplits());
    const std::vector<Family> families = Explore();
    // In a fixed order, so that equal speeds give the same result each time.
    std::optional<Point> best;
    for (const Family& family : families) {
      if (!family.best) continue;
      if (!best || IsFaster(*family.best, *best)) best = family.best;
      auto& fastest = fastest_[IpusOf(family.split)];
      if (!fastest || IsFaster(*family.best, *fastest)) fastest = family.best;
    }
    if (!best) return WhyNothing();
    SearchResult result;
    // A neighbour may be better still.
    for (std::optional<Point> better = best; better; better = Neighbours(*best, result)) {
      best = better;
      fastest_[IpusOf(best->setting.split)] = best;
    }
    VPOD_ASSIGN_OR_RETURN(Plan plan, MakePlan(best->request));
    result.best = {best->request, std::move(plan)};
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
    splits_ = {Split()};
    const absl::StatusOr<PartCosts> costs = CostsOfParts(first);
    if (absl::IsInvalidArgument(costs.status())) return absl::OkStatus();  // it is not split
    VPOD_RETURN_IF_ERROR(costs.status());
    costs_ = *costs;
    for (uint32_t ipus : kIpus) {
      if (ipus == 1 || request_.pod % ipus != 0 || ipus > request_.pod) continue;
      // Balanced stages are fast, and even ones often need less memory.
      const Split balanced = BalancedSplit(costs_, ipus), even = EvenSplit(costs_, ipus);
      if (IpusOf(balanced) == ipus) splits_.push_back(balanced);
      if (IpusOf(even) == ipus && even != balanced) splits_.push_back(even);
    }
    return absl::OkStatus();
  }

  // The micro-batches that a pipeline needs, as the compiler checks it.
  uint32_t FewestMicroBatches(size_t ipus) const {
    const bool pipelined = request_.schedule != compiler::Schedule::kSharded &&
                           request_.schedule != compiler::Schedule::kPhased;
    if (ipus == 1 || !pipelined) return 1;
    // Heads of some models make up another stage.
    const size_t stages = ipus + (costs_.last_is_first ? 1 : 0);
    return static_cast<uint32_t>(2 * stages - 1);
  }

  // The request with as many micro-batches in an update as the global batch and the streams of a
  // run allow. InvalidArgument: these are too few.
  absl::StatusOr<PlanRequest> RequestFor(const Setting& setting) const {
    PlanRequest request = request_;
    const size_t ipus = IpusOf(setting.split);
    request.network.ipus = static_cast<uint32_t>(ipus);
    request.network.stages = ipus == 1 ? std::vector<std::string>()
                                       : StagesOf(request.network.name, costs_, setting.split);
    request.recomputation = setting.recomputation;
    request.network.micro_batch = setting.micro_batch;
    const auto items = static_cast<uint64_t>(setting.micro_batch);
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

  // Whether a plan can be made and fits; if it can be made, how fast it is, and the memory of its
  // fullest IPU.
  struct Outcome {
    absl::Status status;
    double items_per_second = 0;
    model::Bytes memory{std::numeric_limits<uint64_t>::max()};
  };

  // Looks at a request once.
  const Outcome& OutcomeOf(const PlanRequest& request) {
    const std::string key = Describe(request);
    {
      const base::MutexLock lock(mutex_);
      const auto known = outcomes_.find(key);
      if (known != outcomes_.end()) return known->second;
    }
    const absl::StatusOr<Plan> plan = MakePlan(request);
    Outcome outcome{.status = plan.status()};
    if (plan.ok()) {
      outcome = {plan->fits, plan->items_per_second,
                 *std::max_element(plan->memory.begin(), plan->memory.end())};
    }
    const base::MutexLock lock(mutex_);
    const Outcome& kept = outcomes_.try_emplace(key, std::move(outcome)).first->second;
    if (progress_) progress_(outcomes_.size());
    return kept;
  }

  // Settings that differ in micro-batch and accumulation.
  struct Family {
    Split split;
    Recomputation recomputation;
    int64_t largest = 0;    // micro-batch that fits
    int64_t too_large = 1;  // and one that does not
    std::optional<Point> best;
  };

  std::vector<Family> Explore() {
    std::vector<Family> families;
    for (Recomputation r : {Recomputation::kNone, Recomputation::kNormOnly,
                            Recomputation::kStandard, Recomputation::kPipeline}) {
      for (const Split& split : splits_) {
        if (IpusOf(split) > 1 || r != Recomputation::kPipeline)
          families.push_back({.split = split, .recomputation = r});
      }
    }
    // Recomputation makes room, so that what fits without fits with it.
    const size_t plain = splits_.size();
    InParallel(plain, [&](size_t i) { FindLargest(families[i], 1); });
    std::map<Split, int64_t> largest;  // without recomputation
    for (size_t i = 0; i < plain; ++i) largest[families[i].split] = families[i].largest;
    InParallel(families.size() - plain, [&](size_t i) {
      Family& family = families[plain + i];
      FindLargest(family, std::max<int64_t>(1, largest.at(family.split)));
    });
    double fastest = 0;
    for (const Family& family : families) {
      if (family.best) fastest = std::max(fastest, family.best->items_per_second);
    }
    InParallel(families.size(), [&](size_t i) {
      const auto& best = families[i].best;
      if (best && best->items_per_second >= kShareWorthALook * fastest) Refine(families[i]);
    });
    return families;
  }

  // Whether it fits.
  bool Try(Family& family, int64_t micro_batch) {
    const Setting setting{family.split, family.recomputation, micro_batch};
    const auto request = RequestFor(setting);
    if (!request.ok()) return false;
    const Outcome& outcome = OutcomeOf(*request);
    if (!outcome.status.ok()) return false;
    Point point{setting, *request, outcome.items_per_second};
    if (!family.best || IsFaster(point, *family.best)) family.best = std::move(point);
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
    // A larger one may divide better among the tiles, and fit again.
    const int64_t step = 1 + fits / kPrecision;
    int64_t failures = 0;
    for (int64_t next = fits + step; fits > 0 && failures < kFailures && next <= kMostMicroBatch;
         next += step) {
      const bool is_better = Try(family, next);
      failures = is_better ? 0 : failures + 1;
      if (is_better) fits = next;
      above = next;
    }
    family.largest = fits;
    family.too_large = std::max(above, fits + 1);
  }

  // A smaller micro-batch leaves more of them to fill a pipeline with, and some sizes suit the
  // tiles better than larger ones.
  void Refine(Family& family) {
    const auto at = [&] { return family.best->setting.micro_batch; };
    for (int64_t step = at() / 4 + 1; step > 0;) {
      const int64_t before = at();
      for (int64_t other : {before - step, before + step}) {
        if (other > 0 && other < family.too_large) Try(family, other);
      }
      if (at() == before) step /= 2;
    }
  }

  // Says what is missing where the least is. Advice for that one plan would be what was tried.
  absl::Status WhyNothing() {
    const base::MutexLock lock(mutex_);
    const auto closest = std::min_element(
        outcomes_.begin(), outcomes_.end(),
        [](const auto& a, const auto& b) { return a.second.memory < b.second.memory; });
    if (closest == outcomes_.end()) {
      uint64_t least = std::numeric_limits<uint64_t>::max();
      for (const Split& split : splits_) {
        const size_t ipus = IpusOf(split);
        least = std::min<uint64_t>(least, request_.pod / ipus * FewestMicroBatches(ipus));
      }
      return absl::InvalidArgumentError(absl::StrCat("a global batch of ", global_batch_,
                                                     " is too small for ", request_.pod,
                                                     " IPUs, which need at least ", least));
    }
    const absl::Status& status = closest->second.status;
    const auto message = status.message();
    const bool is_split = splits_.size() > 1;  // each is balanced or even
    return absl::Status(
        status.code(),
        absl::StrCat("none of ", outcomes_.size(), " plans ",
                     is_split ? "with balanced or even stages " : "", "fits",
                     is_split ? " (--stages plans others)" : "", ". Closest is ", closest->first,
                     ". ", message.substr(0, message.find(" To try: "))));
  }

  struct Change {
    std::string what;
    Setting setting;
  };

  std::vector<Change> ChangesOf(const Setting& at) const {
    const size_t ipus = IpusOf(at.split);
    std::vector<Change> changes;
    // The setting with one change.
    const auto add = [&](std::string what) -> Setting& {
      return changes.emplace_back(Change{std::move(what), at}).setting;
    };
    for (int64_t other : {at.micro_batch - 1, at.micro_batch + 1}) {
      if (other > 0) add(absl::StrCat("micro-batch ", other)).micro_batch = other;
    }
    for (const auto& [name, recomputation] : compiler::kRecomputationNames) {
      if (recomputation != at.recomputation &&
          (ipus > 1 || recomputation != Recomputation::kPipeline))
        add(absl::StrCat("recomputation ", name)).recomputation = recomputation;
    }
    std::map<size_t, Split> others;  // by IPUs, each with its fastest split or the balanced one
    for (const Split& split : splits_) others.try_emplace(IpusOf(split), split);
    for (const auto& [other, fastest] : fastest_) others[other] = fastest->setting.split;
    for (const auto& [other, split] : others) {
      if (other != ipus)
        add(absl::StrCat(other, other == 1 ? " IPU" : " IPUs", " per replica")).split = split;
    }
    for (size_t next = 0; next < at.split.size(); ++next) {
      const size_t begin = at.split[next], least = next == 0 ? 0 : at.split[next - 1] + 1,
                   behind = next + 1 < at.split.size() ? at.split[next + 1] : costs_.parts.size();
      const auto move = [&](size_t to) {
        add(absl::StrCat("IPU ", next + 1, " from ", costs_.parts[to])).split[next] = to;
      };
      if (begin > least) move(begin - 1);
      if (begin + 1 < behind) move(begin + 1);
    }
    return changes;
  }

  // Looks at the settings beside the best one; the fastest of them, if it is better and fits.
  std::optional<Point> Neighbours(const Point& best, SearchResult& result) {
    const std::vector<Change> changes = ChangesOf(best.setting);
    std::vector<std::optional<Point>> better(changes.size());
    result.neighbours.assign(changes.size(), {});
    InParallel(changes.size(), [&](size_t i) {
      result.neighbours[i] = {changes[i].what, WhyNot(best, changes[i].setting, better[i])};
    });
    std::optional<Point> fastest;
    for (std::optional<Point>& point : better) {
      if (point && (!fastest || IsFaster(*point, *fastest))) fastest = std::move(point);
    }
    return fastest;
  }

  // `better` gets the setting if it is.
  std::string WhyNot(const Point& best, const Setting& setting, std::optional<Point>& better) {
    const absl::StatusOr<PlanRequest> request = RequestFor(setting);
    if (!request.ok()) return std::string(request.status().message());
    const Outcome& outcome = OutcomeOf(*request);
    if (absl::IsResourceExhausted(outcome.status)) {
      // "… On IPU 0, 3 of 1472 tiles need more than their 638976 bytes, by up to 8 bytes."
      const std::vector<std::string> sentences =
          absl::StrSplit(std::string(outcome.status.message()), ". ");
      return absl::StrCat("does not fit: ", sentences.size() > 1 ? sentences[1] : sentences[0]);
    }
    if (!outcome.status.ok()) return std::string(outcome.status.message());
    const double slower = 100 * (1 - outcome.items_per_second / best.items_per_second);
    if (slower < 0) better = Point{setting, *request, outcome.items_per_second};
    return slower < 0.05 ? "as fast" : absl::StrFormat("%.1f %% slower", slower);
  }

  const PlanRequest request_;
  const uint64_t global_batch_;
  uint64_t stream_bytes_of_one_ = 1;  // image or sequence, in a run
  PartCosts costs_;
  std::vector<Split> splits_;                       // that are explored
  std::map<size_t, std::optional<Point>> fastest_;  // by IPUs per replica
  base::Mutex mutex_;
  const SearchProgress progress_ ABSL_GUARDED_BY(mutex_);
  // By their description; those that are there stay as they are.
  std::map<std::string, Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

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

absl::StatusOr<SearchResult> Search(const PlanRequest& request, uint64_t global_batch,
                                    SearchProgress progress) {
  return Searcher(request, global_batch, std::move(progress)).Run();
}

}  // namespace vpod::plan

// Says what takes up the memory of an IPU, and what would make it need less.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "device/model/memory_advice.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using model::MemoryAdvice;
using pva::Report;

// Share of a tile's memory from which on it is worth a word: with less, twice as much fits.
constexpr double kMuchOfTile = 50;
constexpr size_t kNamed = 5;

std::string Megabytes(double bytes) { return absl::StrFormat("%.1f MB", bytes / 1e6); }

// What a note is about: a part of the memory, and the advice that makes it smaller.
struct Subject {
  const char* takes;
  double (*bytes)(const model::MemoryInUse& memory);
  std::vector<MemoryAdvice> advice;
};

const std::vector<Subject>& Subjects() {
  using Memory = model::MemoryInUse;
  static const auto* const subjects = new std::vector<Subject>{
      {"Results of the forward pass that wait for their gradients take",
       [](const Memory& memory) { return memory.kept + memory.stashed; },
       {MemoryAdvice::kRecomputation, MemoryAdvice::kMoreRecomputation,
        MemoryAdvice::kOffChipActivations}},
      {"Results that were computed again for their gradients take",
       [](const Memory& memory) { return memory.recomputed; },
       {MemoryAdvice::kLessRecomputedAtOnce}},
      {"All values of a micro-batch take",
       [](const Memory& memory) { return memory.values; },
       {MemoryAdvice::kSmallerMicroBatch, MemoryAdvice::kMoreAccumulation}},
      {"Float32 takes",
       [](const Memory& memory) { return memory.single; },
       {MemoryAdvice::kFloat16}},
      {"The state of the optimiser takes",
       [](const Memory& memory) { return memory.state; },
       {MemoryAdvice::kOffChipOptimizerState, MemoryAdvice::kTensorShards,
        MemoryAdvice::kSmallerOptimizer}},
      {"The weights take",
       [](const Memory& memory) { return memory.weights; },
       {MemoryAdvice::kOffChipWeights}},
      {"The sums of gradients take",
       [](const Memory& memory) { return memory.accumulators; },
       {MemoryAdvice::kOffChipAccumulators}},
      {"Temporary data (received operands and partial results) takes",
       [](const Memory& memory) { return memory.temporary; },
       {MemoryAdvice::kMemoryProportion}},
      {"All that is in use takes",
       [](const Memory& memory) { return memory.total; },
       {MemoryAdvice::kMoreIpus, MemoryAdvice::kMoreIpusSharded}}};
  return *subjects;
}

// A profile does not say how large its micro-batches are.
model::ProgramFeatures FeaturesOf(const Report& report) {
  model::ProgramFeatures features{
      .ipus_per_replica = report.target.ipus_per_replica,
      .replicas = SharesOutState(report) ? 1 : report.target.num_replicas};
  for (const pva::Operation& operation : report.operations) {
    const std::string& instruction = operation.instruction;
    features.Add({.ipu = operation.ipu,
                  .trains = operation.phase == "backward" || operation.phase == "update",
                  .is_product = instruction == "convolution" || instruction == "mat_mul",
                  .is_recomputed = operation.phase == "recompute",
                  .is_stash = operation.op == "stash",
                  .stores = operation.to_streaming_memory > 0});
  }
  for (const pva::Variable& variable : report.variables) {
    features.is_half |= variable.contents == model::Name(model::MemoryContents::kWeight) &&
                        absl::StartsWith(variable.type, "float16");
  }
  return features;
}

program::v1::DataType FloatOf(const pva::Variable& variable) {
  if (absl::StartsWith(variable.type, "float32")) return program::v1::FLOAT32;
  if (absl::StartsWith(variable.type, "float16")) return program::v1::FLOAT16;
  return program::v1::DATA_TYPE_UNSPECIFIED;
}

class MemoryInsightsBuilder {
 public:
  MemoryInsightsBuilder(const Report& report, uint32_t ipu)
      : report_(report), ipu_(ipu), name_(IpuName(ipu)), tiles_(report.BytesByTile(ipu)) {}

  std::vector<std::string> Build() {
    if (LookAtTiles() && !report_.liveness[ipu_].empty()) LookAtPeak();
    return std::move(notes_);
  }

 private:
  template <class... Parts>
  void Note(const Parts&... parts) {
    notes_.push_back(absl::StrCat(parts...));
  }

  // Whether there is more to say.
  bool LookAtTiles() {
    const auto fullest = std::max_element(tiles_.begin(), tiles_.end());
    const double percent =
        Percent(static_cast<double>(*fullest), static_cast<double>(report_.target.bytes_per_tile));
    const auto tile = fullest - tiles_.begin();
    if (const std::string out_of_memory = OutOfMemoryNote(report_, ipu_); !out_of_memory.empty()) {
      Note(out_of_memory);
    } else {
      Note(name_, " needs ", Megabytes(static_cast<double>(Sum(tiles_))), "; its fullest tile, ",
           tile, ", uses ", PercentText(percent), " of its memory",
           percent < kMuchOfTile ? ": there is room for more." : ".");
    }
    if (percent < kMuchOfTile) return false;
    const double mean = static_cast<double>(Sum(tiles_)) / static_cast<double>(tiles_.size());
    if (static_cast<double>(*fullest) > 1.25 * mean) {
      notes_.push_back(absl::StrFormat(
          "Tile %d of %s needs %.1f times what tiles need on average: large values lie on few "
          "tiles there.",
          tile, name_, static_cast<double>(*fullest) / mean));
    }
    return true;
  }

  void LookAtPeak() {
    const size_t step = PeakStep(report_, ipu_);
    std::vector<const pva::Variable*> live = LiveAt(report_, ipu_, step, /*always=*/false);
    const model::MemoryInUse memory = InUse(step, live);
    live.resize(std::min(live.size(), kNamed));
    Note("Most of ", name_, " is in use at ", OperationAt(step).name, " (step ", step, ").",
         live.empty() ? "" : " The largest values then: ",
         absl::StrJoin(live, ", ",
                       [](std::string* out, const pva::Variable* variable) {
                         absl::StrAppend(out, variable->name, " (",
                                         Megabytes(static_cast<double>(variable->bytes)), ")");
                       }),
         live.empty() ? "" : ".");
    Advise(memory);
  }

  void Advise(const model::MemoryInUse& memory) {
    const std::vector<MemoryAdvice> worth_trying =
        model::AdviceOf(model::MemorySavings(FeaturesOf(report_), ipu_, memory));
    const model::OptionNames names = OptionNamesOf(report_);
    for (const Subject& subject : Subjects()) {
      std::vector<std::string> texts;
      for (MemoryAdvice advice : worth_trying) {
        const auto& of_subject = subject.advice;
        if (std::find(of_subject.begin(), of_subject.end(), advice) == of_subject.end()) continue;
        if (std::string text = model::TextOf(advice, names); !text.empty())
          texts.push_back(std::move(text));
      }
      if (texts.empty()) continue;
      Note(subject.takes, " ", Megabytes(subject.bytes(memory)), " of ", name_,
           " then. To try: ", absl::StrJoin(texts, ", or "), ".");
    }
  }

  // Of all tiles.
  model::MemoryInUse InUse(size_t step, const std::vector<const pva::Variable*>& live) const {
    model::MemoryInUse memory;
    const auto add = [&](const pva::Variable& variable) {
      const auto bytes = static_cast<double>(variable.bytes);
      memory.total += bytes;
      memory.Add(model::MemoryContentsNamed(variable.contents), FloatOf(variable), bytes);
    };
    for (const pva::Variable* variable : live) add(*variable);
    for (const pva::Variable* variable : LiveAt(report_, ipu_, step, /*always=*/true))
      add(*variable);
    memory.temporary = static_cast<double>(report_.liveness[ipu_][step].temporary_per_tile) *
                       report_.target.tiles_per_ipu;
    memory.total += memory.temporary;
    for (const pva::Variable& variable : report_.variables) {
      if (variable.ipu != ipu_) continue;
      const auto contents = model::MemoryContentsNamed(variable.contents);
      const auto bytes = static_cast<double>(variable.bytes);
      if (contents == model::MemoryContents::kKept) memory.kept_at_some_time += bytes;
      if (contents == model::MemoryContents::kRecomputed) memory.recomputed_at_some_time += bytes;
    }
    return memory;
  }

  const pva::Operation& OperationAt(size_t step) const {
    return report_.operations[report_.liveness[ipu_][step].operation];
  }

  const Report& report_;
  const uint32_t ipu_;
  const std::string name_;
  const std::vector<uint64_t> tiles_;
  std::vector<std::string> notes_;
};

}  // namespace

std::string OutOfMemoryNote(const Report& report, uint32_t ipu) {
  const std::vector<uint64_t> tiles = report.BytesByTile(ipu);
  const auto fullest = std::max_element(tiles.begin(), tiles.end());
  const uint64_t capacity = report.target.bytes_per_tile;
  const auto over =
      std::count_if(tiles.begin(), tiles.end(), [&](uint64_t bytes) { return bytes > capacity; });
  if (over == 0) return "";
  const double percent = Percent(static_cast<double>(*fullest), static_cast<double>(capacity));
  return absl::StrCat(IpuName(ipu), " is out of memory: ", over, " of ", tiles.size(),
                      " tiles need more than their ", capacity, " bytes; tile ",
                      fullest - tiles.begin(), " needs ", PercentText(percent), " of them.");
}

std::vector<std::string> MemoryInsights(const Report& report, uint32_t ipu) {
  return MemoryInsightsBuilder(report, ipu).Build();
}

}  // namespace vpod::popvision

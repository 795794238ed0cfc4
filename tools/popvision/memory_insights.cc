// Says what takes up the memory of an IPU, and what would make it need less.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "device/model/memory_contents.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using pva::Report;

// Share of a tile's memory from which on it is worth a word: with less, twice as much fits.
constexpr double kMuchOfTile = 50;
constexpr size_t kNamed = 5;

std::string Megabytes(double bytes) { return absl::StrFormat("%.1f MB", bytes / 1e6); }

// The memory in use on an IPU at its peak, in bytes of all tiles.
struct Peak {
  double all = 0;
  double single = 0, half = 0;  // floats, without what has its precision from the optimiser
  bool half_weights = false;
  double kept = 0;       // results of the forward pass that wait for their gradients
  double stashed = 0;    // what stages keep as bytes for later micro-batches
  double state = 0;      // of the optimiser
  double temporary = 0;  // received and added up
};

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
    Peak peak;
    for (const pva::Variable* variable : live) Add(*variable, peak);
    for (const pva::Variable* variable : LiveAt(report_, ipu_, step, /*always=*/true))
      Add(*variable, peak);
    peak.temporary = static_cast<double>(report_.liveness[ipu_][step].temporary_per_tile) *
                     report_.target.tiles_per_ipu;
    peak.all += peak.temporary;
    live.resize(std::min(live.size(), kNamed));
    Note("Most of ", name_, " is in use at ", OperationAt(step).name, " (step ", step, ").",
         live.empty() ? "" : " The largest values then: ",
         absl::StrJoin(live, ", ",
                       [](std::string* out, const pva::Variable* variable) {
                         absl::StrAppend(out, variable->name, " (",
                                         Megabytes(static_cast<double>(variable->bytes)), ")");
                       }),
         live.empty() ? "" : ".");
    Advise(peak);
  }

  void Advise(const Peak& peak) {
    const auto worth = [&](double saved) {
      return saved > 0 && saved * model::kWorthTrying >= peak.all;
    };
    // Bytes are of the same types as the rest.
    const double floats = peak.single + peak.half,
                 single = floats == 0 ? 0 : peak.single * (1 + peak.stashed / floats);
    if (const double waiting = peak.kept + peak.stashed; worth(waiting)) {
      Note("Results of the forward pass that wait for their gradients take ", Megabytes(waiting),
           " of ", name_, " then. To try: ", RecomputationAdvice(),
           "a smaller micro-batch with more gradient accumulation (option accumulation).");
    }
    if (!peak.half_weights && worth(single / 2)) {
      Note("Float32 takes ", Megabytes(single), " of ", name_,
           " then; float16 would save up to half of it.");
    }
    if (worth(peak.state)) {
      Note("The state of the optimiser takes ", Megabytes(peak.state), " of ", name_,
           ". To try: the state off the chip (option off_chip_optimizer_state), or an optimiser "
           "with "
           "less of it.");
    }
    if (worth(peak.temporary / 2)) {
      Note("Temporary data (received operands and partial results) takes ",
           Megabytes(peak.temporary), " of ", name_,
           " then. To try: a smaller memory proportion of products (option "
           "products.memory_proportions).");
    }
  }

  // As model::MemorySavings.
  std::string RecomputationAdvice() const {
    bool recomputes = false;           // on some IPU
    bool recomputes_products = false;  // on this one, which leaves nothing more
    for (const pva::Operation& operation : report_.operations) {
      if (operation.phase != "recompute") continue;
      recomputes = true;
      recomputes_products |= operation.ipu == ipu_ && (operation.instruction == "convolution" ||
                                                       operation.instruction == "mat_mul");
    }
    if (recomputes_products) return "";
    return recomputes ? "more recomputation (option recomputation: standard), or "
                      : "recomputation (option recomputation: standard), or ";
  }

  const pva::Operation& OperationAt(size_t step) const {
    return report_.operations[report_.liveness[ipu_][step].operation];
  }

  void Add(const pva::Variable& variable, Peak& peak) const {
    const auto bytes = static_cast<double>(variable.bytes);
    const auto is = [&](model::MemoryContents contents) {
      return variable.contents == model::Name(contents);
    };
    peak.all += bytes;
    if (is(model::MemoryContents::kState)) peak.state += bytes;
    if (is(model::MemoryContents::kWeight))
      peak.half_weights |= absl::StartsWith(variable.type, "float16");
    if (is(model::MemoryContents::kKept)) peak.kept += bytes;
    if (is(model::MemoryContents::kStash)) peak.stashed += bytes;
    // Their precision is that of the optimiser.
    const bool of_update = is(model::MemoryContents::kState) ||
                           is(model::MemoryContents::kAccumulator) ||
                           is(model::MemoryContents::kUpdate);
    if (!of_update) AddType(variable, peak);
  }

  static void AddType(const pva::Variable& variable, Peak& peak) {
    if (absl::StartsWith(variable.type, "float32"))
      peak.single += static_cast<double>(variable.bytes);
    if (absl::StartsWith(variable.type, "float16"))
      peak.half += static_cast<double>(variable.bytes);
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

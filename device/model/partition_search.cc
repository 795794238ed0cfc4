#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <vector>

#include "device/base/mutex.h"
#include "device/model/even.h"
#include "device/model/partition.h"

namespace vpod::model {
namespace {

constexpr uint64_t kTiles = arch::kTilesPerIpu;
// Windows of more elements than this, as those of weight gradients, are split in any way; smaller
// ones not at all or into single elements.
constexpr uint64_t kSmallWindow = 16;

bool IsProduct(const PlannedConvolution& c) {
  constexpr PlannedConvolution::Plane kOne = {1, 1};
  return c.kernel == kOne && c.stride == kOne && c.spread == kOne;
}

class Search {
 public:
  explicit Search(const PlannedConvolution& convolution)
      : c_(convolution),
        bytes_(static_cast<uint64_t>(convolution.memory_proportion *
                                     static_cast<double>(arch::kTileMemory.value()))) {}

  // Among powers of two.
  PlannedPartition Coarse() {
    coarse_ = true;
    Run();
    return best_;
  }
  // Begins with the coarse one, to have a bound; gives what is best when its patience ends.
  PlannedPartition Fine() {
    Coarse();
    coarse_ = false;
    Run();
    return best_;
  }

 private:
  // Partitions that are looked at, and whose costs are computed: some 100 ms. Layers of models take
  // a tenth of it.
  static constexpr uint32_t kMostLooks = 1 << 22, kMostCosts = 1 << 19;

  bool IsOver() const { return looks_ > kMostLooks || costs_ > kMostCosts; }

  void Run() {
    for (size_t i : {0, 1}) {
      window_[i] = WindowSplits(c_.kernel[i]);
      field_[i] = Splits(c_.field[i]);
    }
    batch_ = Splits(c_.batch);
    for (const Partition& vertex : Vertices()) {
      for (const uint64_t serial : {1, 2, 4, 8}) {
        if (serial > CeilDiv(c_.outputs, vertex.outputs_at_once)) break;
        Partition p = vertex;
        p.serial_outputs = serial;
        SplitChannels(p);
      }
    }
  }

  std::vector<Partition> Vertices() const {
    using enum ConvolutionVertex;
    const uint64_t channels = c_.half ? 16 : 8;
    if (IsProduct(c_)) return {{.vertex = kAmp1x1, .inputs_at_once = channels}};
    std::vector<Partition> vertices;
    const auto add = [&](ConvolutionVertex vertex, uint64_t groups, uint64_t inputs,
                         uint64_t outputs, uint64_t rows = 1) {
      vertices.push_back({.vertex = vertex,
                          .groups_at_once = groups,
                          .inputs_at_once = inputs,
                          .outputs_at_once = outputs,
                          .rows_at_once = rows});
    };
    for (const uint64_t rows : {1, 2, 4}) {
      if (rows == 1 || c_.half) add(kAmpNx1, 1, channels / rows, 16, rows);
    }
    const uint64_t widest = std::max(c_.inputs, c_.outputs);
    if (c_.half && c_.groups > 1) {
      for (const uint64_t groups : {1, 2, 4}) {
        if (widest <= 4 / groups) add(kSlic, groups, 4 / groups, 4 / groups);
      }
      for (const uint64_t groups : {4, 8}) {
        if (widest == 1) add(kVmac, groups, 1, 1);
      }
    }
    if (std::min(c_.inputs, c_.outputs) < 16) add(kHmac, 1, 1, 1);
    return vertices;
  }

  // The numbers of parts that make the largest part smaller.
  std::vector<uint64_t> Splits(uint64_t items) const {
    std::vector<uint64_t> splits;
    uint64_t last = 0;
    for (uint64_t parts = 1; parts <= std::min(items, kTiles); parts += coarse_ ? parts : 1) {
      const uint64_t largest = CeilDiv(items, parts);
      if (largest != last) splits.push_back(parts);
      last = largest;
    }
    return splits;
  }

  std::vector<uint64_t> WindowSplits(uint64_t elements) const {
    if (elements > kSmallWindow) return Splits(elements);
    if (elements == 1) return {1};
    return {1, elements};
  }

  static std::span<const uint64_t> UpTo(uint64_t most, const std::vector<uint64_t>& splits) {
    return {splits.begin(), std::upper_bound(splits.begin(), splits.end(), most)};
  }

  // `blocks` of channels, and elements of the window in each, are the work of a tile on a pixel.
  void SplitChannels(Partition p) {
    if (IsOver()) return;
    const uint64_t groups_all = CeilDiv(c_.groups, p.groups_at_once),
                   inputs_all = CeilDiv(c_.inputs, p.inputs_at_once),
                   outputs_all = CeilDiv(c_.outputs, p.outputs_at_once);
    const std::vector<uint64_t> inputs_splits = Splits(inputs_all),
                                outputs_splits = Splits(CeilDiv(outputs_all, p.serial_outputs));
    for (const uint64_t groups : Splits(groups_all)) {
      p.groups = groups;
      for (const uint64_t outputs : UpTo(kTiles / groups, outputs_splits)) {
        p.outputs = outputs;
        const uint64_t left = kTiles / (groups * outputs);
        const uint64_t blocks = CeilDiv(groups_all, groups) * CeilDiv(outputs_all, outputs);
        for (const uint64_t inputs : UpTo(left, inputs_splits)) {
          p.inputs = inputs;
          SplitWindow(p, left / inputs, blocks * CeilDiv(inputs_all, inputs));
        }
      }
    }
  }

  void SplitWindow(Partition p, uint64_t tiles, uint64_t blocks) {
    if (IsOver()) return;
    for (const uint64_t rows : UpTo(tiles, window_[0])) {
      const uint64_t rows_each = CeilDiv(CeilDiv(c_.kernel[0], rows), p.rows_at_once);
      for (const uint64_t columns : UpTo(tiles / rows, window_[1])) {
        p.kernel = {rows, columns};
        SplitField(p, tiles / (rows * columns),
                   blocks * rows_each * CeilDiv(c_.kernel[1], columns));
      }
    }
  }

  void SplitField(Partition p, uint64_t tiles, uint64_t blocks) {
    if (IsOver()) return;
    const uint64_t spread = c_.spread[0] * c_.spread[1];
    const double cycles_of_pixel = CyclesOfPixel(p);
    for (const uint64_t batch : UpTo(tiles, batch_)) {
      p.batch = batch;
      for (const uint64_t rows : UpTo(tiles / batch, field_[0])) {
        p.field[0] = rows;
        const uint64_t lines = CeilDiv(c_.batch, batch) * CeilDiv(c_.field[0], rows);
        for (const uint64_t columns : UpTo(tiles / batch / rows, field_[1])) {
          p.field[1] = columns;
          if (IsOver()) return;
          const uint64_t pixels = lines * CeilDiv(c_.field[1], columns) / spread;
          Take(p, static_cast<double>(blocks) * static_cast<double>(pixels) * cycles_of_pixel);
        }
      }
    }
  }

  // Tile cycles of a pixel of the field alone, in each block of channels and element of the window.
  double CyclesOfPixel(const Partition& p) const {
    using enum ConvolutionVertex;
    switch (p.vertex) {
      case kSlic:
        return 0.25;  // four columns of the window at once
      case kVmac:
        return p.groups_at_once == 4 ? 2 : 3;
      case kHmac:
        return c_.half ? 0.25 : 0.5;  // of a vector of channels
      default:
        return c_.half && c_.half_partials ? 4 : 8;
    }
  }

  // It takes no fewer than the least cycles.
  void Take(const Partition& p, double least_cycles) {
    ++looks_;
    if (fits_ && least_cycles >= static_cast<double>(cycles_)) return;
    ++costs_;
    PartitionCost cost = CostOf(c_, p);
    const bool fits = cost.temporary_bytes <= bytes_;
    const uint64_t cycles = cost.total_cycles();
    const bool better = fits == fits_ ? (fits ? cycles < cycles_
                                              : cost.temporary_bytes < best_.cost.temporary_bytes)
                                      : fits;
    if (!better && found_) return;
    found_ = true;
    fits_ = fits;
    cycles_ = cycles;
    best_ = {p, std::move(cost)};
  }

  const PlannedConvolution& c_;
  const uint64_t bytes_;
  bool coarse_ = false;
  uint32_t looks_ = 0, costs_ = 0;
  bool found_ = false, fits_ = false;
  uint64_t cycles_ = 0;
  PlannedPartition best_;
  // Into which numbers of parts the window, the field and the batch can be split.
  std::array<std::vector<uint64_t>, 2> window_, field_;
  std::vector<uint64_t> batch_;
};

}  // namespace

PlannedPartition FindPartition(const PlannedConvolution& convolution) {
  struct Known {
    base::Mutex mutex;
    std::map<PlannedConvolution, PlannedPartition> partitions ABSL_GUARDED_BY(mutex);
  };
  // Layers of a model are often equal. A hostile executable must not fill the memory.
  constexpr size_t kMostKnown = 4096;
  static auto* const known = new Known;
  {
    base::MutexLock lock(known->mutex);
    const auto it = known->partitions.find(convolution);
    if (it != known->partitions.end()) return it->second;
  }
  PlannedPartition found = Search(convolution).Fine();
  base::MutexLock lock(known->mutex);
  if (known->partitions.size() >= kMostKnown) known->partitions.clear();
  known->partitions[convolution] = found;
  return found;
}

PlannedPartition FindCoarsePartition(const PlannedConvolution& convolution) {
  return Search(convolution).Coarse();
}

}  // namespace vpod::model

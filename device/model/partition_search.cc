#include <algorithm>
#include <map>
#include <optional>

#include "device/base/mutex.h"
#include "device/model/even.h"
#include "device/model/partition.h"

namespace vpod::model {
namespace {

constexpr uint64_t kTiles = arch::kTilesPerIpu;
constexpr uint64_t kPanelOutputs = 16;
// Windows of more elements than this, as those of weight gradients, are split in any way; smaller
// ones not at all or into single elements.
constexpr uint64_t kSmallWindow = 16;

// The numbers of parts, up to `most`, that make the largest part smaller.
std::vector<uint64_t> Splits(uint64_t items, uint64_t most) {
  std::vector<uint64_t> splits;
  uint64_t last = 0;
  for (uint64_t parts = 1; parts <= std::min(items, most); ++parts) {
    const uint64_t largest = CeilDiv(items, parts);
    if (largest != last) splits.push_back(parts);
    last = largest;
  }
  return splits;
}

std::vector<uint64_t> WindowSplits(uint64_t elements, uint64_t most) {
  if (elements > kSmallWindow) return Splits(elements, most);
  if (elements == 1 || elements > most) return {1};
  return {1, elements};
}

bool IsProduct(const PlannedConvolution& c) {
  constexpr PlannedConvolution::Plane kOne = {1, 1};
  return c.kernel == kOne && c.stride == kOne && c.spread == kOne;
}

class Search {
 public:
  Search(const PlannedConvolution& convolution, uint64_t bytes) : c_(convolution), bytes_(bytes) {}

  PlannedPartition Run() {
    for (const Partition& vertex : Vertices()) {
      for (const uint64_t serial : {1, 2, 4, 8}) {
        if (serial > CeilDiv(c_.outputs, kPanelOutputs)) break;
        Partition p = vertex;
        p.serial_outputs = serial;
        SplitChannels(p);
      }
    }
    return best_;
  }

 private:
  std::vector<Partition> Vertices() const {
    const uint64_t channels = c_.half ? 16 : 8;
    if (IsProduct(c_)) return {{.vertex = AmpVertex::k1x1, .channels_at_once = channels}};
    std::vector<Partition> vertices;
    for (const uint64_t rows : {1, 2, 4}) {
      if (rows > 1 && !c_.half) break;
      vertices.push_back(
          {.vertex = AmpVertex::kNx1, .channels_at_once = channels / rows, .rows_at_once = rows});
    }
    return vertices;
  }

  void SplitChannels(Partition p) {
    const uint64_t output_panels = CeilDiv(CeilDiv(c_.outputs, kPanelOutputs), p.serial_outputs);
    for (const uint64_t groups : Splits(c_.groups, kTiles)) {
      p.groups = groups;
      for (const uint64_t outputs : Splits(output_panels, kTiles / groups)) {
        p.outputs = outputs;
        const uint64_t left = kTiles / (groups * outputs);
        for (const uint64_t inputs : Splits(CeilDiv(c_.inputs, p.channels_at_once), left)) {
          p.inputs = inputs;
          SplitWindow(p, left / inputs);
        }
      }
    }
  }

  void SplitWindow(Partition p, uint64_t tiles) {
    for (const uint64_t rows : WindowSplits(c_.kernel[0], tiles)) {
      for (const uint64_t columns : WindowSplits(c_.kernel[1], tiles / rows)) {
        p.kernel = {rows, columns};
        SplitField(p, tiles / (rows * columns));
      }
    }
  }

  void SplitField(Partition p, uint64_t tiles) {
    for (const uint64_t batch : Splits(c_.batch, tiles)) {
      p.batch = batch;
      for (const uint64_t rows : Splits(c_.field[0], tiles / batch)) {
        p.field[0] = rows;
        for (const uint64_t columns : Splits(c_.field[1], tiles / batch / rows)) {
          p.field[1] = columns;
          Take(p);
        }
      }
    }
  }

  // The AMP's rows alone.
  uint64_t LeastCycles(const Partition& p) const {
    const auto part = [](uint64_t items, uint64_t parts) { return CeilDiv(items, parts); };
    const uint64_t rows = part(c_.batch, p.batch) * part(c_.field[0], p.field[0]) *
                          part(c_.field[1], p.field[1]) / (c_.spread[0] * c_.spread[1]);
    const uint64_t panels =
        part(c_.groups, p.groups) * part(part(c_.inputs, p.channels_at_once), p.inputs) *
        part(part(c_.outputs, kPanelOutputs), p.outputs) *
        part(part(c_.kernel[0], p.kernel[0]), p.rows_at_once) * part(c_.kernel[1], p.kernel[1]);
    return panels * rows * (c_.half && c_.half_partials ? 4 : 8);
  }

  void Take(const Partition& p) {
    if (fits_ && LeastCycles(p) >= cycles_) return;
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
  bool found_ = false, fits_ = false;
  uint64_t cycles_ = 0;
  PlannedPartition best_;
};

}  // namespace

PlannedPartition FindPartition(const PlannedConvolution& convolution, double proportion) {
  struct Known {
    base::Mutex mutex;
    std::map<std::pair<PlannedConvolution, double>, PlannedPartition> partitions
        ABSL_GUARDED_BY(mutex);
  };
  // Layers of a model are often equal. A hostile executable must not fill the memory.
  constexpr size_t kMostKnown = 4096;
  static auto* const known = new Known;
  const auto key = std::make_pair(convolution, proportion);
  {
    base::MutexLock lock(known->mutex);
    const auto it = known->partitions.find(key);
    if (it != known->partitions.end()) return it->second;
  }
  const auto bytes =
      static_cast<uint64_t>(proportion * static_cast<double>(arch::kTileMemory.value()));
  PlannedPartition found = Search(convolution, bytes).Run();
  base::MutexLock lock(known->mutex);
  if (known->partitions.size() >= kMostKnown) known->partitions.clear();
  known->partitions[key] = found;
  return found;
}

}  // namespace vpod::model

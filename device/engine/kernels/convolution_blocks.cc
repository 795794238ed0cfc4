#include "device/engine/kernels/convolution_blocks.h"

#include <algorithm>

namespace vpod::engine {
namespace {

using program::v1::Convolution;

// More would take seconds to prepare, or gigabytes.
constexpr size_t kMostGeometries = 256;
constexpr int64_t kMostPreparation = 1 << 17;
constexpr int64_t kMostTaps = 1 << 14, kMostElements = 1 << 24, kMostWeightsOfAUnit = 1 << 26;
constexpr size_t kMostScratchpad = size_t{128} << 20, kMostPacked = size_t{256} << 20;

// How long oneDNN takes to prepare the pieces, in units of some microseconds: some implementations
// have code for each pixel of a row.
int64_t Preparation(const ConvolutionCut& cut, size_t rank) {
  constexpr int64_t kOfAPrimitive = 512;
  int64_t sum = 0;
  for (size_t i = 0; i < cut.geometries(); ++i) {
    const ConvolutionPart row = cut.ExampleOf(i).parts[rank - 1];
    sum += kOfAPrimitive + row.image_size + row.result_size;
  }
  return sum;
}

bool IsForLoops(const ConvolutionStep& step, const ConvolutionCut& cut) {
  const ConvolutionShape& s = step.shape;
  return cut.geometries() > kMostGeometries || Preparation(cut, s.rank()) > kMostPreparation ||
         cut.image_pixels() > kMostElements / s.channels ||
         cut.result_pixels() > kMostElements / s.outputs;
}

bool IsForLoops(const Passes& passes, const WeightsBlock& block) {
  const size_t packed = passes.weights().get_size();
  return passes.scratchpad_bytes() > kMostScratchpad ||
         (packed > kMostPacked && packed / sizeof(float) > 4 * block.elements());
}

}  // namespace

double Slowdown(const ConvolutionStep& step) {
  constexpr int64_t kLanes = 16;
  const ConvolutionShape& s = step.shape;
  const int64_t outputs = s.outputs / s.groups, channels = s.channels / s.groups;
  const bool depthwise = s.groups > 1 && outputs == 1 && channels == 1 && s.rank() == 2;
  // Vectors are full of channels, but each multiply-add reads its own pixel.
  if (depthwise && step.pass != Convolution::WEIGHT_GRADIENT) return 8;
  const int64_t inner = step.pass == Convolution::INPUT_GRADIENT ? channels : outputs;
  return static_cast<double>(kLanes) / static_cast<double>(std::min(kLanes, inner));
}

bool IsForLoops(const ConvolutionStep& step) {
  const ConvolutionShape& s = step.shape;
  return s.taps() > kMostTaps || s.weights() / BlockUnits(s, step.pass) > kMostWeightsOfAUnit;
}

std::vector<BlockPlan> PlanBlocks(const ConvolutionStep& step, const Chunking& units,
                                  const ConvolutionCut& cut) {
  std::vector<BlockPlan> plans;
  if (IsForLoops(step, cut)) return plans;
  for (size_t i = 0; i < units.chunks(); ++i) {
    BlockPlan plan{.block = BlockAt(step, static_cast<int64_t>(units.begin(i)),
                                    static_cast<int64_t>(units.size(i)))};
    if (i > 0 && units.size(i) == units.size(0)) {
      plan.passes = plans[0].passes;
    } else {
      try {
        plan.passes = std::make_shared<const Passes>(plan.block.shape, step.pass, cut);
      } catch (const dnnl::error& error) {
        if (error.status != dnnl_unimplemented) throw;
        return {};
      }
      if (IsForLoops(*plan.passes, plan.block)) return {};
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

Chunking CutUnits(const ConvolutionStep& step, int64_t weights) {
  const int64_t units = BlockUnits(step.shape, step.pass);
  const int64_t fit = weights / (step.shape.weights() / units);
  return {static_cast<size_t>(units), static_cast<size_t>(std::clamp<int64_t>(fit, 1, units))};
}

std::vector<std::shared_ptr<const WeightsPacking>> PlanPackings(
    const ConvolutionStep& step, const std::vector<BlockPlan>& blocks, bool together) {
  using Direction = WeightsPacking::Direction;
  const auto packing_of = [&](const std::vector<PackedBlock>& packed) {
    const bool unpacks = step.pass == Convolution::WEIGHT_GRADIENT;
    return std::make_shared<const WeightsPacking>(step.weights(), packed,
                                                  unpacks ? Direction::kUnpack : Direction::kPack);
  };
  std::vector<PackedBlock> all;
  for (const BlockPlan& plan : blocks) all.push_back({plan.block, plan.passes->weights()});
  if (together) return {packing_of(all)};
  std::vector<std::shared_ptr<const WeightsPacking>> packings;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool same = i > 0 && blocks[i].passes == blocks[0].passes;
    packings.push_back(same ? packings[0] : packing_of({all[i]}));
  }
  return packings;
}

size_t PlainScratch(const ConvolutionStep& step,
                    const std::vector<std::shared_ptr<const WeightsPacking>>& packings) {
  if (step.weights().type.type != program::v1::FLOAT16) return 0;
  return std::max(packings.front()->elements, packings.back()->elements);
}

size_t ScratchpadBytes(const std::vector<BlockPlan>& plans) {
  return std::max(plans.front().passes->scratchpad_bytes(),
                  plans.back().passes->scratchpad_bytes());
}

size_t PrimitiveBytes(const std::vector<BlockPlan>& plans) {
  size_t primitives = plans.front().passes->primitives();
  if (plans.back().passes != plans.front().passes) primitives += plans.back().passes->primitives();
  return primitives * kPrimitiveBytes;
}

// A few hundred microseconds.
constexpr double kLongOperations = 2e7;

void AddPhase(Kernel& kernel, size_t chunks, double operations,
              const std::function<absl::Status(const Workspace&, size_t)>& run, size_t rounds) {
  kernel.phases.push_back({.chunks = chunks,
                           .run =
                               [run](const Workspace& at, size_t chunk) {
                                 return Guarded([&]() -> absl::Status { return run(at, chunk); });
                               },
                           .is_long = operations * static_cast<double>(chunks) >= kLongOperations,
                           .rounds = rounds,
                           .operations = operations});
}

}  // namespace vpod::engine

// How a convolution is cut into blocks of weights and pieces of images for oneDNN.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/engine/kernels/convolution.h"
#include "device/engine/kernels/convolution_passes.h"

namespace vpod::engine {

// How many times as long oneDNN takes for an operation, roughly, where it fills vectors of 16
// channels with few, the inner ones of the result, or where a channel is a group of its own.
double Slowdown(const ConvolutionStep& step);

// Whether its kernel has so many taps or weights that oneDNN is not asked.
bool IsForLoops(const ConvolutionStep& step);

// A block of the weights, and what is planned for blocks of its geometry.
struct BlockPlan {
  WeightsBlock block;
  std::shared_ptr<const Passes> passes;
};

// The blocks, all of one size but the last. Empty if the convolution is one for loops.
std::vector<BlockPlan> PlanBlocks(const ConvolutionStep& step, const Chunking& units,
                                  const ConvolutionCut& cut);

// Blocks of at most so many weights, unless a single unit has more.
Chunking CutUnits(const ConvolutionStep& step, int64_t weights);

// The packings of the weights: one for each block, which blocks of one geometry share, or a single
// one for all blocks together.
std::vector<std::shared_ptr<const WeightsPacking>> PlanPackings(
    const ConvolutionStep& step, const std::vector<BlockPlan>& blocks, bool together);
// Floats of the largest piece; 0 if weights are read and written where they lie.
size_t PlainScratch(const ConvolutionStep& step,
                    const std::vector<std::shared_ptr<const WeightsPacking>>& packings);

size_t ScratchpadBytes(const std::vector<BlockPlan>& plans);
// For Kernel::primitive_bytes.
size_t PrimitiveBytes(const std::vector<BlockPlan>& plans);

// Appends a phase whose chunks have at most so many operations. What oneDNN throws fails the chunk.
void AddPhase(Kernel& kernel, size_t chunks, double operations,
              const std::function<absl::Status(const Workspace&, size_t)>& run, size_t rounds = 1);

// Convolutions that are not cut by their size are cut into so many parts.
inline constexpr size_t kConvolutionParts = 4;

// By oneDNN, or by loops if it has no good implementation: the forward pass and the gradient of the
// image, and the gradient of the weights.
Kernel PrepareSliding(const ConvolutionStep& step, const ConvolutionLimits& limits);
Kernel PrepareWeightGradient(const ConvolutionStep& step, const ConvolutionLimits& limits);
// The latter without oneDNN, where each channel is a group; none if a chunk would be too large.
std::optional<Kernel> PrepareDepthwiseWeightGradient(const ConvolutionStep& step,
                                                     const ConvolutionLimits& limits);

}  // namespace vpod::engine

// Gradient of the weights. Large weights are cut into blocks: no sums of parts. Otherwise up to
// kConvolutionParts chunks take every kConvolutionParts-th piece each and sum them in order; their
// sums are added in order at the end.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "device/base/simd.h"
#include "device/engine/kernels/convolution_blocks.h"

namespace vpod::engine {
namespace {

VPOD_SIMD void AddInto(float* sums, const float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) sums[i] += values[i];
}

// A part of images with the channels innermost, with its padding around it.
void Surround(const ConvolutionPiece& piece, size_t rank, int64_t channels, const float* from,
              float* to) {
  constexpr size_t kRank = program::kMaxSpatialRank;
  std::array<ConvolutionPart, kRank> parts;  // dimensions that are missing are outermost, of 1
  for (ConvolutionPart& part : parts) part.image_size = 1;
  std::copy_n(piece.parts.begin(), rank, parts.end() - static_cast<int64_t>(rank));
  std::array<int64_t, kRank> sizes;
  int64_t elements = piece.images * channels;
  for (size_t i = 0; i < kRank; ++i) {
    sizes[i] = parts[i].image_size + parts[i].pad_before + parts[i].pad_after;
    elements *= sizes[i];
  }
  std::fill_n(to, elements, 0.0f);
  const int64_t row = parts[2].image_size * channels;
  for (int64_t image = 0; image < piece.images; ++image) {
    for (int64_t i = 0; i < parts[0].image_size; ++i) {
      for (int64_t j = 0; j < parts[1].image_size; ++j, from += row) {
        const int64_t line =
            (image * sizes[0] + parts[0].pad_before + i) * sizes[1] + parts[1].pad_before + j;
        std::copy_n(from, row, to + (line * sizes[2] + parts[2].pad_before) * channels);
      }
    }
  }
}

struct WeightGradient {
  ConvolutionStep step;
  ConvolutionCut cut;
  std::vector<BlockPlan> blocks;
  size_t blocks_at_once = 1;
  size_t parts = 1;
  std::vector<std::shared_ptr<const WeightsPacking>> packings;  // of each block, or one of all
  BoxBlock image, gradient;
  size_t weights_at = 0, surrounded = 0, plain = 0, scratchpad = 0;  // in scratch
  size_t packed_elements = 0;  // of the largest block, a multiple of 16

  float* Sum(const Workspace& at, size_t part, size_t block) const {
    return reinterpret_cast<float*>(at.shared) +
           (part * blocks_at_once + block % blocks_at_once) * packed_elements;
  }

  // A block over one piece of a part in each round.
  absl::Status Run(const Workspace& at, size_t block, size_t part, size_t round) const {
    const size_t index = round * parts + part, rank = step.shape.rank();
    if (index >= cut.size()) return absl::OkStatus();
    const auto& [weights, passes] = blocks[block];
    const ConvolutionPiece piece = cut[index];
    const Pass& pass = *passes->At(cut.GeometryOf(index));
    float* x = image.Read(at, ImageBox(piece, rank, weights.channels));
    if (pass.surrounded) {
      auto* larger = reinterpret_cast<float*>(at.scratch + surrounded);
      Surround(piece, rank, weights.channels.size, x, larger);
      x = larger;
    }
    float* dy = gradient.Read(at, ResultBox(piece, rank, weights.outputs));
    float* sum = Sum(at, part, block);
    float* dw = round == 0 ? sum : reinterpret_cast<float*>(at.scratch + weights_at);
    pass.WeightGradient(x, dy, dw, at.scratch + scratchpad);
    if (round > 0) AddInto(sum, dw, pass.weights.get_size() / sizeof(float));
    return absl::OkStatus();
  }

  // Adds the sums of the other parts to those of the first.
  absl::Status AddParts(const Workspace& at, const Chunking& elements, size_t chunk) const {
    float* sum = Sum(at, 0, 0) + elements.begin(chunk);
    for (size_t part = 1; part < parts; ++part)
      AddInto(sum, Sum(at, part, 0) + elements.begin(chunk), elements.size(chunk));
    return absl::OkStatus();
  }

  // Unpacks a piece of this block, or of it and all that follow.
  absl::Status Unpack(const Workspace& at, size_t block, size_t chunk) const {
    const WeightsPacking::Piece& piece = packings[block]->pieces[chunk];
    const size_t first = blocks[block].block.first + piece.first;
    auto* scratch = reinterpret_cast<float*>(at.scratch + plain);
    float* to = piece.plain.Write(step.output, at, first, scratch);
    for (const WeightsPacking::Part& part : piece.parts)
      part.repacking.Execute(Sum(at, 0, block + part.block), to + part.first);
    piece.plain.Store(step.output, at, first, scratch);
    return absl::OkStatus();
  }
};

// Quarters of large weights; blocks of weights that are many.
Chunking CutWeightGradient(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const ConvolutionShape& s = step.shape;
  constexpr int64_t kFewOutputs = 64, kManyPixels = 64, kLanes = 16;
  const auto outputs = static_cast<size_t>(s.outputs);
  if (s.weights() > limits.weights) {
    Chunking units = CutUnits(step, limits.weights / static_cast<int64_t>(kConvolutionParts));
    const auto lanes = std::min<size_t>(units.items, kLanes);
    const auto of_unit = static_cast<size_t>(s.weights()) / units.items;
    if (units.per_chunk < lanes && lanes * of_unit <= static_cast<size_t>(limits.weights))
      units.per_chunk = lanes;
    return units;
  }
  const bool large = s.weights() >= kManyPixels * s.images * s.result_pixels();
  if (s.groups > 1) return {static_cast<size_t>(s.groups), static_cast<size_t>(s.groups)};
  if (s.outputs < kFewOutputs || !large) return {outputs, outputs};
  const size_t quarter = (outputs + kConvolutionParts - 1) / kConvolutionParts;
  return {outputs, (quarter + kLanes - 1) / kLanes * kLanes};
}

// Whether oneDNN has an implementation for groups of one channel, if there are such.
bool IsMadeFor(const ConvolutionShape& shape, const Passes& passes) {
  const std::vector<std::string>& names = passes.implementations();
  return shape.groups == 1 || std::all_of(names.begin(), names.end(), [](const std::string& name) {
           return absl::StartsWith(name, "jit_dw");
         });
}

}  // namespace

Kernel PrepareWeightGradient(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const auto conv = std::make_shared<WeightGradient>(WeightGradient{.step = step});
  const ConvolutionShape& whole = step.shape;
  const Chunking units = CutWeightGradient(step, limits);
  const size_t num_blocks = units.chunks();
  const double slowdown = Slowdown(step), most = limits.most_operations / slowdown;
  // A block takes all images at once if it may; otherwise pieces are quarters.
  const double operations = num_blocks > 1 ? 2 * most * static_cast<double>(num_blocks)
                                           : std::clamp(whole.operations() / kConvolutionParts,
                                                        limits.operations / 16 / slowdown, most);
  for (const double size : {1.0, 0.5, 0.25}) {
    conv->cut = ConvolutionCut(whole, CutBy::kResults, size * operations, most, limits.elements);
    conv->blocks = PlanBlocks(step, units, conv->cut);
    if (!conv->blocks.empty()) break;
  }
  if (conv->blocks.empty() || !IsMadeFor(whole, *conv->blocks[0].passes)) {
    if (auto depthwise = PrepareDepthwiseWeightGradient(step, limits)) return *std::move(depthwise);
  }
  if (conv->blocks.empty()) return LoopConvolution(step, limits);
  const bool many = whole.weights() > limits.weights;
  conv->parts = many ? 1 : std::min(kConvolutionParts, conv->cut.size());
  const size_t rounds = (conv->cut.size() + conv->parts - 1) / conv->parts;
  const WeightsBlock& first = conv->blocks[0].block;
  for (const BlockPlan& plan : conv->blocks) {
    conv->packed_elements =
        std::max(conv->packed_elements, RoundUp(plan.passes->weights().get_size()) / sizeof(float));
  }
  conv->packings = PlanPackings(step, conv->blocks, /*together=*/!many);
  // Packed, they may be larger: layouts fill vectors of channels.
  const size_t fit =
      std::max<size_t>(1, static_cast<size_t>(limits.weights) / conv->packed_elements);
  conv->blocks_at_once = many ? std::min(fit, num_blocks) : num_blocks;
  const bool gaps = !conv->cut.contiguous();
  MemoryPlan scratch;
  conv->image =
      BoxBlock(step.a, static_cast<size_t>(conv->cut.image_pixels() * first.shape.channels),
               gaps || (num_blocks > 1 && whole.groups > 1), scratch);
  conv->gradient =
      BoxBlock(step.b, static_cast<size_t>(conv->cut.result_pixels() * first.shape.outputs),
               gaps || num_blocks > 1, scratch);
  size_t surrounded = 0;
  for (const BlockPlan& plan : conv->blocks)
    surrounded = std::max(surrounded, plan.passes->surrounded_bytes());
  conv->surrounded = scratch.Add(surrounded);
  conv->plain = scratch.Add(PlainScratch(step, conv->packings) * sizeof(float));
  if (rounds > 1) conv->weights_at = scratch.Add(conv->packed_elements * sizeof(float));
  conv->scratchpad = scratch.Add(ScratchpadBytes(conv->blocks));
  Kernel kernel;
  kernel.primitive_bytes = PrimitiveBytes(conv->blocks);
  kernel.implementations = conv->blocks[0].passes->implementations();
  const double of_chunk = conv->cut.operations() * static_cast<double>(units.per_chunk) /
                          static_cast<double>(units.items);
  for (size_t begin = 0; begin < num_blocks; begin += conv->blocks_at_once) {
    const size_t count = std::min(conv->blocks_at_once, num_blocks - begin);
    const size_t chunks = count * conv->parts;
    AddPhase(
        kernel, chunks, of_chunk,
        [conv, begin, chunks](const Workspace& at, size_t chunk) {
          const size_t place = chunk % chunks;
          return conv->Run(at, begin + place / conv->parts, place % conv->parts, chunk / chunks);
        },
        rounds);
    if (conv->parts > 1) {
      const Chunking elements = ChunkItems(count * conv->packed_elements, conv->parts);
      AddPhase(kernel, elements.chunks(), static_cast<double>(elements.per_chunk * conv->parts),
               [conv, elements](const Workspace& at, size_t chunk) {
                 return conv->AddParts(at, elements, chunk);
               });
    }
    for (size_t block = begin; block < begin + count; block += many ? 1 : count) {
      AddPhase(kernel, conv->packings[block]->pieces.size(),
               static_cast<double>(conv->packings[block]->elements),
               [conv, block](const Workspace& at, size_t chunk) {
                 return conv->Unpack(at, block, chunk);
               });
    }
  }
  kernel.shared_bytes = conv->parts * conv->blocks_at_once * conv->packed_elements * sizeof(float);
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

}  // namespace vpod::engine

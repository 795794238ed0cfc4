// Forward pass and gradient of the image: pieces are chunks, after the weights are packed.
#include <algorithm>
#include <memory>

#include "device/engine/kernels/convolution_blocks.h"

namespace vpod::engine {
namespace {

using program::v1::Convolution;

struct Sliding {
  ConvolutionStep step;
  ConvolutionCut cut;
  std::vector<BlockPlan> blocks;
  std::vector<std::shared_ptr<const WeightsPacking>> packings;  // of each block, or one of all
  BoxBlock input, output;
  size_t plain = 0, scratchpad = 0;  // in scratch
  size_t packed_bytes = 0;           // of a block
  bool packs_all = true;             // at once, so that packed weights can be kept

  float* Packed(const Workspace& at, size_t block) const {
    return reinterpret_cast<float*>(packs_all ? at.packed + block * packed_bytes : at.shared);
  }

  // Packs a piece of this block, or of it and all that follow.
  absl::Status Pack(const Workspace& at, size_t block, size_t chunk) const {
    const WeightsPacking::Piece& piece = packings[block]->pieces[chunk];
    float* from = piece.plain.Read(step.b, at, blocks[block].block.first + piece.first,
                                   reinterpret_cast<float*>(at.scratch + plain));
    for (const WeightsPacking::Part& part : piece.parts)
      part.repacking.Execute(from + part.first, Packed(at, block + part.block));
    return absl::OkStatus();
  }

  absl::Status Run(const Workspace& at, size_t block, size_t chunk) const {
    const auto& [part, passes] = blocks[block];
    const bool forward = step.pass == Convolution::FORWARD;
    const ConvolutionPiece piece = cut[chunk];
    const Box image = ImageBox(piece, step.shape.rank(), part.channels),
              result = ResultBox(piece, step.shape.rank(), part.outputs);
    const Box& to = forward ? result : image;
    float* written = output.Write(at, to);
    const Pass* pass = passes->At(cut.GeometryOf(chunk));
    std::byte* pad = at.scratch + scratchpad;
    if (pass == nullptr) {
      std::fill_n(written, image.elements(step.shape.rank()), 0.0f);
    } else if (forward) {
      pass->Forward(input.Read(at, image), Packed(at, block), written, pad);
    } else {
      pass->InputGradient(input.Read(at, result), Packed(at, block), written, pad);
    }
    output.Store(at, to);
    return absl::OkStatus();
  }
};

// Blocks of weights that are too many to be packed at once; also of those that are more than what
// they are applied to, so that a thread reads some of them once instead of all for each piece.
Chunking CutSliding(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const ConvolutionShape& s = step.shape;
  constexpr int64_t kManyWeights = 1 << 18;
  constexpr size_t kMostBlocks = 8, kLanes = 64;  // oneDNN is fastest with so many results
  Chunking units = CutUnits(step, limits.weights);
  const bool forward = step.pass == Convolution::FORWARD;
  const int64_t applied_to =
      s.images * (forward ? s.channels * s.image_pixels() : s.outputs * s.result_pixels());
  if (units.chunks() > 1 || s.groups > 1 || s.weights() < std::max(kManyWeights, 2 * applied_to))
    return units;
  const size_t of_block = (units.items + kMostBlocks - 1) / kMostBlocks;
  return {units.items, std::min(units.items, (of_block + kLanes - 1) / kLanes * kLanes)};
}

}  // namespace

Kernel PrepareSliding(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const auto conv = std::make_shared<Sliding>(Sliding{.step = step});
  const bool forward = step.pass == Convolution::FORWARD;
  const Chunking units = CutSliding(step, limits);
  const double slowdown = Slowdown(step);
  // Small ones are quarters, if those still take some tens of microseconds.
  const double quarter = step.shape.operations() * slowdown / kConvolutionParts;
  const double operations = units.chunks() > 1
                                ? limits.most_operations
                                : std::clamp(quarter, limits.operations / 64, limits.operations);
  const WeightsBlock first = BlockAt(step, 0, static_cast<int64_t>(units.per_chunk));
  // There may be no good implementation for pieces of one size, and one for others.
  for (const double size : {1.0, 2.0, 0.5}) {
    conv->cut = ConvolutionCut(first.shape, forward ? CutBy::kResults : CutBy::kImage,
                               size * operations / slowdown, limits.most_operations / slowdown,
                               limits.elements);
    conv->blocks = PlanBlocks(step, units, conv->cut);
    if (!conv->blocks.empty()) break;
  }
  if (conv->blocks.empty()) return LoopConvolution(step, limits);
  const size_t num_blocks = conv->blocks.size();
  const bool is_cut = num_blocks > 1;
  conv->packs_all = step.shape.weights() <= limits.weights;
  for (const BlockPlan& plan : conv->blocks)
    conv->packed_bytes = std::max(conv->packed_bytes, RoundUp(plan.passes->weights().get_size()));
  conv->packings = PlanPackings(step, conv->blocks, conv->packs_all);
  MemoryPlan scratch;
  conv->plain = scratch.Add(PlainScratch(step, conv->packings) * sizeof(float));
  const auto image_elements = static_cast<size_t>(conv->cut.image_pixels() * first.shape.channels),
             result_elements = static_cast<size_t>(conv->cut.result_pixels() * first.shape.outputs);
  const bool gaps = !conv->cut.contiguous();
  const bool grouped = step.shape.groups > 1;
  conv->input = BoxBlock(step.a, forward ? image_elements : result_elements,
                         gaps || (is_cut && grouped), scratch);
  conv->output =
      BoxBlock(step.output, forward ? result_elements : image_elements, gaps || is_cut, scratch);
  conv->scratchpad = scratch.Add(ScratchpadBytes(conv->blocks));
  Kernel kernel;
  kernel.primitive_bytes = PrimitiveBytes(conv->blocks);
  kernel.implementations = conv->blocks[0].passes->implementations();
  const size_t run = conv->cut.size(), count = conv->packs_all ? num_blocks : 1;
  for (size_t begin = 0; begin < num_blocks; begin += count) {
    AddPhase(
        kernel, conv->packings[begin]->pieces.size(),
        static_cast<double>(conv->packings[begin]->elements),
        [conv, begin](const Workspace& at, size_t chunk) { return conv->Pack(at, begin, chunk); });
    AddPhase(kernel, count * run, conv->cut.operations(),
             [conv, begin, run](const Workspace& at, size_t chunk) {
               return conv->Run(at, begin + chunk / run, chunk % run);
             });
  }
  if (forward && !is_cut && !gaps) {
    kernel.rows_of_chunk = [conv](size_t chunk) -> Rows {
      const ConvolutionShape& s = conv->step.shape;
      const Box box = ResultBox(conv->cut[chunk], s.rank(), {0, s.outputs});
      // A chunk has whole images or some of the first dimension.
      const auto first = box.images.first * s.result_pixels() +
                         box.spatial[0].first * (s.result_pixels() / s.result[0]);
      return {static_cast<size_t>(first), box.elements(s.rank()) / static_cast<size_t>(s.outputs)};
    };
  }
  if (conv->packs_all) {
    kernel.packed_bytes = num_blocks * conv->packed_bytes;
  } else {
    kernel.shared_bytes = conv->packed_bytes;
  }
  kernel.packed_input = 1;
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

}  // namespace vpod::engine

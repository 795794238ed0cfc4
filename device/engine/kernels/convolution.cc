#include "device/engine/kernels/convolution.h"

#include <memory>

#include "device/base/simd.h"
#include "device/engine/kernels/convolution_passes.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;
using program::v1::Convolution;

VPOD_SIMD void AddInto(float* sums, const float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) sums[i] += values[i];
}

ConvolutionShape ShapeOf(const Convolution& op, const program::TensorType& image,
                         const program::TensorType& result) {
  const auto dims = [](const auto& field) { return program::Dims(field.begin(), field.end()); };
  return {.images = image.dims[0],
          .groups = op.groups(),
          .channels = image.dims[1],
          .outputs = result.dims[1],
          .image = program::SpatialDims(image),
          .result = program::SpatialDims(result),
          .kernel = dims(op.window().kernel()),
          .stride = dims(op.window().stride()),
          .dilation = dims(op.window().dilation()),
          .pad_before = dims(op.window().pad_before()),
          .pad_after = dims(op.window().pad_after())};
}

ConvolutionStep StepOf(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Convolution& op = instruction.convolution();
  ConvolutionStep step{.pass = op.pass(),
                       .a = Resolve(ipu, instruction.inputs(0)),
                       .b = Resolve(ipu, instruction.inputs(1)),
                       .output = ResolveOutput(ipu, instruction, 0)};
  const auto &a = step.a.type, &b = step.b.type, &output = step.output.type;
  step.shape = op.pass() == Convolution::FORWARD          ? ShapeOf(op, a, output)
               : op.pass() == Convolution::INPUT_GRADIENT ? ShapeOf(op, output, a)
                                                          : ShapeOf(op, a, b);
  return step;
}

// How many times as long oneDNN takes for an operation, roughly, where it fills vectors of 16
// channels with few: the inner ones of the result.
double Slowdown(const ConvolutionStep& step) {
  constexpr int64_t kLanes = 16;
  const ConvolutionShape& s = step.shape;
  const int64_t outputs = s.outputs / s.groups, channels = s.channels / s.groups;
  const bool depthwise = s.groups > 1 && outputs == 1 && channels == 1 && s.rank() == 2;
  if (depthwise && step.pass != Convolution::WEIGHT_GRADIENT) return 1;
  const int64_t inner = step.pass == Convolution::INPUT_GRADIENT ? channels : outputs;
  return static_cast<double>(kLanes) / static_cast<double>(std::min(kLanes, inner));
}

// --- When oneDNN is asked ---

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

bool IsForLoops(const ConvolutionStep& step) {
  const ConvolutionShape& s = step.shape;
  return s.taps() > kMostTaps || s.weights() / BlockUnits(s, step.pass) > kMostWeightsOfAUnit;
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

// Blocks of the weights that have one geometry, and what is planned for them.
struct BlockPlan {
  WeightsBlock block;
  std::shared_ptr<const Passes> passes;
};

// The blocks, all of one size but the last. Empty if the convolution is one for loops.
std::vector<BlockPlan> PlanBlocks(const ConvolutionStep& step, const Chunking& units,
                                  const ConvolutionCut& cut) {
  std::vector<BlockPlan> plans;
  if (IsForLoops(step, cut)) return plans;
  for (size_t i = 0; i < units.chunks(); ++i) {
    BlockPlan plan{.block = BlockAt(step.shape, step.pass, static_cast<int64_t>(units.begin(i)),
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

size_t ScratchpadBytes(const std::vector<BlockPlan>& plans) {
  return std::max(plans.front().passes->scratchpad_bytes(),
                  plans.back().passes->scratchpad_bytes());
}

// A few hundred microseconds.
constexpr double kLongOperations = 2e7;

void AddPhase(Kernel& kernel, size_t chunks, double operations,
              const std::function<absl::Status(const Workspace&, size_t)>& run, size_t rounds = 1) {
  kernel.phases.push_back({.chunks = chunks,
                           .run =
                               [run](const Workspace& at, size_t chunk) {
                                 return Guarded([&]() -> absl::Status { return run(at, chunk); });
                               },
                           .is_long = operations * static_cast<double>(chunks) >= kLongOperations,
                           .rounds = rounds,
                           .operations = operations});
}

constexpr size_t kParts = 4;

// --- Forward pass and gradient of the image: pieces are chunks, after the weights are packed ---

struct Sliding {
  ConvolutionStep step;
  ConvolutionCut cut;
  std::vector<BlockPlan> blocks;
  std::vector<std::shared_ptr<const WeightsPacking>> packings;  // of the blocks
  BoxBlock input, output;
  size_t rows = 0;  // of weights, in scratch
  size_t scratchpad = 0;
  size_t packed_bytes = 0;  // of a block
  bool packs_all = true;    // at once, so that packed weights can be kept

  float* Packed(const Workspace& at, size_t block) const {
    return reinterpret_cast<float*>(packs_all ? at.packed + block * packed_bytes : at.shared);
  }

  // Rows of a block's weights, as float32 and without gaps.
  float* ReadRows(const Workspace& at, const WeightsBlock& block, size_t first, size_t n) const {
    const bool half = step.b.type.type == program::v1::FLOAT16;
    const size_t begin = block.first + first * block.stride;
    if (!half && !block.has_gaps()) return step.b.As<float>(at) + begin;
    auto* to = reinterpret_cast<float*>(at.scratch + rows);
    const size_t runs = block.has_gaps() ? n : 1,
                 run = block.has_gaps() ? block.length : n * block.length;
    for (size_t i = 0; i < runs; ++i) {
      if (half) {
        FloatsOfHalves(step.b.As<_Float16>(at) + begin + i * block.stride, to + i * run, run);
      } else {
        std::copy_n(step.b.As<float>(at) + begin + i * block.stride, run, to + i * run);
      }
    }
    return to;
  }

  absl::Status Pack(const Workspace& at, size_t block, size_t chunk) const {
    const WeightsPacking::Piece& piece = packings[block]->pieces[chunk];
    Memory from(piece.plain, CpuEngine(),
                ReadRows(at, blocks[block].block, piece.first_row, piece.rows));
    Memory to(piece.packed, CpuEngine(), Packed(at, block));
    piece.reorder.execute(StreamOfThisThread(), from, to);
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

Kernel PrepareSliding(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const auto conv = std::make_shared<Sliding>(Sliding{.step = step});
  const bool forward = step.pass == Convolution::FORWARD;
  const Chunking units = CutSliding(step, limits);
  const double slowdown = Slowdown(step);
  // Small ones are quarters, if those still take some tens of microseconds.
  const double quarter = step.shape.operations() * slowdown / kParts;
  const double operations = units.chunks() > 1
                                ? limits.most_operations
                                : std::clamp(quarter, limits.operations / 64, limits.operations);
  const WeightsBlock first =
      BlockAt(step.shape, step.pass, 0, static_cast<int64_t>(units.per_chunk));
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
  for (const BlockPlan& plan : conv->blocks) {
    const bool same = !conv->packings.empty() && plan.passes == conv->blocks[0].passes;
    conv->packings.push_back(same ? conv->packings[0]
                                  : std::make_shared<const WeightsPacking>(
                                        PlainWeights(plan.block.shape), plan.passes->weights()));
    conv->packed_bytes = std::max(conv->packed_bytes, RoundUp(plan.passes->weights().get_size()));
  }
  MemoryPlan scratch;
  const size_t most_rows =
      std::max(conv->packings.front()->most_rows(), conv->packings.back()->most_rows());
  if (step.b.type.type == program::v1::FLOAT16 || first.has_gaps())
    conv->rows = scratch.Add(most_rows * first.length * sizeof(float));
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
  kernel.implementations = conv->blocks[0].passes->implementations();
  // The last block may have fewer pieces to pack than the others.
  const size_t pack = conv->packings.front()->pieces.size(),
               pack_last = conv->packings.back()->pieces.size(), run = conv->cut.size();
  for (size_t begin = 0; begin < num_blocks; begin += conv->packs_all ? num_blocks : 1) {
    const size_t count = conv->packs_all ? num_blocks : 1;
    const bool has_last = begin + count == num_blocks;
    AddPhase(kernel, has_last ? (count - 1) * pack + pack_last : count * pack,
             static_cast<double>(most_rows * first.length),
             [conv, begin, pack](const Workspace& at, size_t chunk) {
               return conv->Pack(at, begin + chunk / pack, chunk % pack);
             });
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

// --- Gradient of the weights ---
// Large weights are cut into blocks: no sums of parts. Otherwise up to kParts chunks take every
// kParts-th piece each and sum them in order; their sums are added in order at the end.

struct WeightGradient {
  ConvolutionStep step;
  ConvolutionCut cut;
  std::vector<BlockPlan> blocks;
  size_t blocks_at_once = 1;
  size_t parts = 1;
  std::vector<dnnl::reorder> unpacks;  // of the first and the last block
  BoxBlock image, gradient;
  FloatBlock output;
  size_t weights_at = 0, scratchpad = 0;  // in scratch
  size_t packed_elements = 0;             // of the largest block, a multiple of 16

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
    float* dy = gradient.Read(at, ResultBox(piece, rank, weights.outputs));
    float* sum = Sum(at, part, block);
    float* dw = round == 0 ? sum : reinterpret_cast<float*>(at.scratch + weights_at);
    pass.WeightGradient(x, dy, dw, at.scratch + scratchpad);
    if (round > 0) AddInto(sum, dw, pass.weights.get_size() / sizeof(float));
    return absl::OkStatus();
  }

  absl::Status Finish(const Workspace& at, size_t block) const {
    const auto& [weights, passes] = blocks[block];
    const Memory::desc& packed = passes->weights();
    float* sum = Sum(at, 0, block);
    for (size_t part = 1; part < parts; ++part)
      AddInto(sum, Sum(at, part, block), packed.get_size() / sizeof(float));
    Memory from(packed, CpuEngine(), sum),
        to(PlainWeights(weights.shape), CpuEngine(), output.Write(at, weights.first));
    unpacks[passes == blocks[0].passes ? 0 : 1].execute(StreamOfThisThread(), from, to);
    output.Store(at, weights.first, weights.elements());
    return absl::OkStatus();
  }
};

// Quarters of large weights; blocks of weights that are many.
Chunking CutWeightGradient(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const ConvolutionShape& s = step.shape;
  constexpr int64_t kFewOutputs = 64, kManyPixels = 64, kLanes = 16;
  const auto outputs = static_cast<size_t>(s.outputs);
  if (s.weights() > limits.weights) {
    Chunking units = CutUnits(step, limits.weights / static_cast<int64_t>(kParts));
    const auto lanes = std::min<size_t>(units.items, kLanes);
    const auto of_unit = static_cast<size_t>(s.weights()) / units.items;
    if (units.per_chunk < lanes && lanes * of_unit <= static_cast<size_t>(limits.weights))
      units.per_chunk = lanes;
    return units;
  }
  const bool large = s.weights() >= kManyPixels * s.images * s.result_pixels();
  if (s.groups > 1) return {static_cast<size_t>(s.groups), static_cast<size_t>(s.groups)};
  if (s.outputs < kFewOutputs || !large) return {outputs, outputs};
  const size_t quarter = (outputs + kParts - 1) / kParts;
  return {outputs, (quarter + kLanes - 1) / kLanes * kLanes};
}

Kernel PrepareWeightGradient(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const auto conv = std::make_shared<WeightGradient>(WeightGradient{.step = step});
  const ConvolutionShape& whole = step.shape;
  const Chunking units = CutWeightGradient(step, limits);
  const size_t num_blocks = units.chunks();
  const double slowdown = Slowdown(step), most = limits.most_operations / slowdown;
  // A block takes all images at once if it may; otherwise pieces are quarters.
  const double operations =
      num_blocks > 1 ? 2 * most * static_cast<double>(num_blocks)
                     : std::clamp(whole.operations() / kParts, limits.operations / 16, most);
  for (const double size : {1.0, 0.5, 0.25}) {
    conv->cut = ConvolutionCut(whole, CutBy::kResults, size * operations, most, limits.elements);
    conv->blocks = PlanBlocks(step, units, conv->cut);
    if (!conv->blocks.empty()) break;
  }
  if (conv->blocks.empty()) return LoopConvolution(step, limits);
  const bool many = whole.weights() > limits.weights;
  conv->parts = many ? 1 : std::min(kParts, conv->cut.size());
  const size_t rounds = (conv->cut.size() + conv->parts - 1) / conv->parts;
  const WeightsBlock& first = conv->blocks[0].block;
  for (const BlockPlan* plan : {&conv->blocks.front(), &conv->blocks.back()}) {
    const Memory::desc& packed = plan->passes->weights();
    conv->unpacks.emplace_back(dnnl::reorder::primitive_desc(CpuEngine(), packed, CpuEngine(),
                                                             PlainWeights(plan->block.shape)));
    conv->packed_elements =
        std::max(conv->packed_elements, RoundUp(packed.get_size()) / sizeof(float));
  }
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
  conv->output = FloatBlock(step.output, first.elements(), scratch);
  if (rounds > 1) conv->weights_at = scratch.Add(conv->packed_elements * sizeof(float));
  conv->scratchpad = scratch.Add(ScratchpadBytes(conv->blocks));
  Kernel kernel;
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
    AddPhase(kernel, count, static_cast<double>(first.elements() * (conv->parts + 1)),
             [conv, begin](const Workspace& at, size_t block) {
               return conv->Finish(at, begin + block);
             });
  }
  kernel.shared_bytes = conv->parts * conv->blocks_at_once * conv->packed_elements * sizeof(float);
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

}  // namespace

absl::StatusOr<Kernel> PrepareConvolution(const program::v1::Ipu& ipu,
                                          const Instruction& instruction,
                                          const ConvolutionLimits& limits) {
  const ConvolutionStep step = StepOf(ipu, instruction);
  // No images, whose gradients have no terms.
  if (step.a.type.empty()) return ZeroKernel(step.output);
  if (limits.loops || IsForLoops(step)) return LoopConvolution(step, limits);
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    return step.pass == Convolution::WEIGHT_GRADIENT ? PrepareWeightGradient(step, limits)
                                                     : PrepareSliding(step, limits);
  });
}

std::vector<KernelDef> ConvolutionKernels() {
  return {
      {Instruction::kConvolution, [](const program::v1::Ipu& ipu, const Instruction& instruction) {
         return PrepareConvolution(ipu, instruction, ConvolutionLimits());
       }}};
}

}  // namespace vpod::engine

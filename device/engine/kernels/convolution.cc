#include <map>
#include <memory>
#include <tuple>

#include "device/base/simd.h"
#include "device/engine/kernels/convolution_plan.h"
#include "device/engine/kernels/dnnl.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;
using Tag = dnnl::memory::format_tag;
using program::v1::Convolution;

// Multiply-adds of a chunk: about a millisecond.
constexpr double kOperations = 8e7;

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

Memory::desc ImageDesc(int64_t images, int64_t channels, program::Dims sizes, int64_t rows) {
  constexpr Tag kTags[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
  sizes[0] = rows;
  Memory::dims dims = {images, channels};
  dims.insert(dims.end(), sizes.begin(), sizes.end());
  return {dims, Memory::data_type::f32, kTags[sizes.size() - 1]};
}

Memory::desc WeightsDesc(const ConvolutionShape& s, bool any) {
  constexpr Tag kPlain[] = {Tag::oiw, Tag::oihw, Tag::oidhw};
  constexpr Tag kGrouped[] = {Tag::goiw, Tag::goihw, Tag::goidhw};
  Memory::dims dims = {s.outputs / s.groups, s.channels / s.groups};
  if (s.groups > 1) dims.insert(dims.begin(), s.groups);
  dims.insert(dims.end(), s.kernel.begin(), s.kernel.end());
  const Tag plain = (s.groups > 1 ? kGrouped : kPlain)[s.kernel.size() - 1];
  return {dims, Memory::data_type::f32, any ? Tag::any : plain};
}

// A pass over pieces of one geometry.
struct Pass {
  dnnl::primitive primitive;
  Memory::desc image, weights, result, scratchpad;
};

// The passes that the pieces of an op need; the first one chooses the layout of the weights.
class Passes {
 public:
  Passes(ConvolutionShape shape, Convolution::Pass kind) : shape_(std::move(shape)), kind_(kind) {}

  const Pass* For(const ConvolutionPiece& piece) {
    const auto key = std::make_tuple(piece.images, piece.image_rows, piece.result_rows,
                                     piece.pad_before, piece.pad_after);
    auto [it, is_new] = passes_.try_emplace(key);
    if (is_new) it->second = std::make_unique<Pass>(Make(piece));
    return it->second.get();
  }
  const Memory::desc& weights() const { return weights_; }
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }

 private:
  Pass Make(const ConvolutionPiece& piece) {
    const ConvolutionShape& s = shape_;
    const auto image = ImageDesc(piece.images, s.channels, s.image, piece.image_rows);
    const auto result = ImageDesc(piece.images, s.outputs, s.result, piece.result_rows);
    const auto weights = weights_ ? weights_ : WeightsDesc(s, /*any=*/true);
    Memory::dims before(s.pad_before), after(s.pad_after), dilates(s.dilation);
    before[0] = piece.pad_before;
    after[0] = piece.pad_after;
    for (auto& dilate : dilates) --dilate;  // oneDNN counts what it skips
    const auto kDirect = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kDirect, image,
         // For a gradient this is a hint only.
         kind_ == Convolution::FORWARD ? weights : WeightsDesc(s, /*any=*/true), result,
         Memory::dims(s.stride), dilates, before, after},
        UserScratchpad(), CpuEngine());
    if (kind_ == Convolution::FORWARD) {
      return Finish(dnnl::convolution_forward(forward), forward, image, forward.weights_desc(),
                    result);
    }
    if (kind_ == Convolution::INPUT_GRADIENT) {
      const dnnl::convolution_backward_data::primitive_desc desc(
          {kDirect, image, weights, result, Memory::dims(s.stride), dilates, before, after},
          UserScratchpad(), CpuEngine(), forward);
      return Finish(dnnl::convolution_backward_data(desc), desc, image, desc.weights_desc(),
                    result);
    }
    const dnnl::convolution_backward_weights::primitive_desc desc(
        {kDirect, image, weights, result, Memory::dims(s.stride), dilates, before, after},
        UserScratchpad(), CpuEngine(), forward);
    return Finish(dnnl::convolution_backward_weights(desc), desc, image, desc.diff_weights_desc(),
                  result);
  }

  template <class Desc>
  Pass Finish(dnnl::primitive primitive, const Desc& desc, const Memory::desc& image,
              const Memory::desc& weights, const Memory::desc& result) {
    weights_ = weights;
    const Memory::desc scratchpad = desc.scratchpad_desc();
    scratchpad_bytes_ = std::max(scratchpad_bytes_, scratchpad.get_size());
    return {std::move(primitive), image, weights, result, scratchpad};
  }

  const ConvolutionShape shape_;
  const Convolution::Pass kind_;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>, std::unique_ptr<Pass>> passes_;
  Memory::desc weights_;
  size_t scratchpad_bytes_ = 0;
};

dnnl::reorder MakeReorder(const Memory::desc& from, const Memory::desc& to) {
  return dnnl::reorder(dnnl::reorder::primitive_desc(CpuEngine(), from, CpuEngine(), to));
}

// How weights get from row-major order into a layout of oneDNN's: in pieces along their first
// dimension, outputs or groups.
struct WeightsPacking {
  struct Piece {
    size_t first = 0, elements = 0;  // row-major
    Memory::desc plain, packed;
    dnnl::reorder reorder;
  };
  std::vector<Piece> pieces;

  WeightsPacking() = default;
  WeightsPacking(const Memory::desc& plain, const Memory::desc& packed) {
    // A multiple of the blocks that layouts have.
    constexpr size_t kUnit = 64, kElements = size_t{1} << 16;
    const auto rows = static_cast<size_t>(plain.dims()[0]);
    const size_t row = plain.get_size() / sizeof(float) / rows;
    Chunking chunks{rows, std::max<size_t>(1, kElements / row / kUnit) * kUnit};
    try {
      Cut(chunks, row, plain, packed);
    } catch (const dnnl::error&) {
      // A layout that cannot be cut.
      Cut({rows, rows}, row, plain, packed);
    }
  }
  size_t most_elements() const { return pieces[0].elements; }

 private:
  void Cut(const Chunking& chunks, size_t row, const Memory::desc& plain,
           const Memory::desc& packed) {
    pieces.clear();
    for (size_t chunk = 0; chunk < chunks.chunks(); ++chunk) {
      Memory::dims dims = plain.dims(), first(dims.size(), 0);
      dims[0] = static_cast<Memory::dim>(chunks.size(chunk));
      Piece piece{.first = chunks.begin(chunk) * row, .elements = chunks.size(chunk) * row};
      // The plain piece is a tensor of its own, the packed one a part of all weights.
      piece.plain = Memory::desc(dims, Memory::data_type::f32, program::RowMajorStrides(dims));
      first[0] = static_cast<Memory::dim>(chunks.begin(chunk));
      piece.packed = chunks.chunks() == 1 ? packed : packed.submemory_desc(dims, first);
      piece.reorder = MakeReorder(piece.plain, piece.packed);
      pieces.push_back(std::move(piece));
    }
  }
};

void Execute(const Pass& pass, std::byte* scratchpad, int image_argument, float* image,
             int weights_argument, float* weights, int result_argument, float* result) {
  pass.primitive.execute(StreamOfThisThread(),
                         {{image_argument, Memory(pass.image, CpuEngine(), image)},
                          {weights_argument, Memory(pass.weights, CpuEngine(), weights)},
                          {result_argument, Memory(pass.result, CpuEngine(), result)},
                          {DNNL_ARG_SCRATCHPAD, Memory(pass.scratchpad, CpuEngine(), scratchpad)}});
}

// Range of a channels-last tensor that a piece takes.
struct Range {
  size_t begin, count;
};
Range ImageRange(const ConvolutionShape& s, const ConvolutionPiece& piece) {
  const int64_t row = s.image_pixels() / s.image[0] * s.channels;
  return {static_cast<size_t>((piece.first_image * s.image[0] + piece.image_row) * row),
          static_cast<size_t>(piece.images * piece.image_rows * row)};
}
Range ResultRange(const ConvolutionShape& s, const ConvolutionPiece& piece) {
  const int64_t row = s.result_pixels() / s.result[0] * s.outputs;
  return {static_cast<size_t>((piece.first_image * s.result[0] + piece.result_row) * row),
          static_cast<size_t>(piece.images * std::max<int64_t>(0, piece.result_rows) * row)};
}

size_t MostElements(const ConvolutionShape& s, const std::vector<ConvolutionPiece>& pieces,
                    Range (*range)(const ConvolutionShape&, const ConvolutionPiece&)) {
  size_t most = 0;
  for (const ConvolutionPiece& piece : pieces) most = std::max(most, range(s, piece).count);
  return most;
}

// --- Forward pass and gradient of the image: pieces are chunks, after the weights are packed ---

struct Sliding {
  ConvolutionShape shape;
  bool forward;
  std::vector<ConvolutionPiece> pieces;
  std::vector<const Pass*> passes;  // of the pieces; null: no window touches these rows
  std::unique_ptr<Passes> owner;
  FloatBlock weights, input, output;
  WeightsPacking packing;
  size_t scratchpad = 0;

  absl::Status Pack(const Workspace& at, size_t chunk) const {
    const WeightsPacking::Piece& piece = packing.pieces[chunk];
    Memory from(piece.plain, CpuEngine(),
                const_cast<float*>(weights.Read(at, piece.first, piece.elements)));
    Memory to(piece.packed, CpuEngine(), at.packed);
    piece.reorder.execute(StreamOfThisThread(), from, to);
    return absl::OkStatus();
  }

  absl::Status Run(const Workspace& at, size_t chunk) const {
    const ConvolutionPiece& piece = pieces[chunk];
    const Range image = ImageRange(shape, piece), result = ResultRange(shape, piece);
    const Range &from = forward ? image : result, &to = forward ? result : image;
    float* written = output.Write(at, to.begin);
    if (passes[chunk] == nullptr) {
      std::fill_n(written, to.count, 0.0f);
    } else {
      auto* read = const_cast<float*>(input.Read(at, from.begin, from.count));
      auto* weights_data = reinterpret_cast<float*>(at.packed);
      std::byte* pad = at.scratch + scratchpad;
      if (forward) {
        Execute(*passes[chunk], pad, DNNL_ARG_SRC, read, DNNL_ARG_WEIGHTS, weights_data,
                DNNL_ARG_DST, written);
      } else {
        Execute(*passes[chunk], pad, DNNL_ARG_DIFF_SRC, written, DNNL_ARG_WEIGHTS, weights_data,
                DNNL_ARG_DIFF_DST, read);
      }
    }
    output.Store(at, to.begin, to.count);
    return absl::OkStatus();
  }
};

Kernel PrepareSliding(const Convolution& op, const Operand& input, const Operand& weights,
                      const Operand& output) {
  const auto conv = std::make_shared<Sliding>();
  conv->forward = op.pass() == Convolution::FORWARD;
  conv->shape =
      conv->forward ? ShapeOf(op, input.type, output.type) : ShapeOf(op, output.type, input.type);
  const ConvolutionShape& s = conv->shape;
  conv->pieces =
      CutConvolution(s, conv->forward ? CutBy::kResultRows : CutBy::kImageRows, kOperations);
  conv->owner = std::make_unique<Passes>(s, op.pass());
  for (const ConvolutionPiece& piece : conv->pieces)
    conv->passes.push_back(piece.result_rows > 0 ? conv->owner->For(piece) : nullptr);
  conv->packing = WeightsPacking(WeightsDesc(s, /*any=*/false), conv->owner->weights());
  MemoryPlan scratch;
  conv->weights = FloatBlock(weights, conv->packing.most_elements(), scratch);
  const size_t image_elements = MostElements(s, conv->pieces, ImageRange),
               result_elements = MostElements(s, conv->pieces, ResultRange);
  conv->input = FloatBlock(input, conv->forward ? image_elements : result_elements, scratch);
  conv->output = FloatBlock(output, conv->forward ? result_elements : image_elements, scratch);
  conv->scratchpad = scratch.Add(conv->owner->scratchpad_bytes());
  Kernel kernel;
  kernel.phases = {{conv->packing.pieces.size(),
                    [conv](const Workspace& at, size_t chunk) {
                      return Guarded([&]() -> absl::Status { return conv->Pack(at, chunk); });
                    },
                    /*long_chunks=*/true},
                   {conv->pieces.size(),
                    [conv](const Workspace& at, size_t chunk) {
                      return Guarded([&]() -> absl::Status { return conv->Run(at, chunk); });
                    },
                    /*long_chunks=*/true}};
  kernel.packed_bytes = conv->owner->weights().get_size();
  kernel.packed_input = 1;
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

// --- Gradient of the weights ---
// Large weights are cut by outputs: no sums of parts. Otherwise up to kParts chunks take every
// kParts-th piece each and sum them in order; their sums are added in order at the end.

constexpr size_t kParts = 4;

struct WeightGradient {
  ConvolutionShape shape;  // of one block of outputs
  int64_t all_outputs = 0;
  Chunking blocks;  // of outputs
  size_t parts = 1, rounds = 1;
  std::vector<ConvolutionPiece> pieces;
  struct Block {
    std::unique_ptr<Passes> owner;
    std::vector<const Pass*> passes;  // of the pieces
    Memory::desc plain;
    dnnl::reorder unpack;
  };
  Block full, last;  // blocks of all sizes
  FloatBlock image, output;
  Operand gradient;
  size_t gradient_at = 0, weights_at = 0, scratchpad = 0;  // in scratch
  size_t packed_elements = 0;                              // of the largest block, a multiple of 16

  const Block& BlockAt(size_t block) const { return block + 1 == blocks.chunks() ? last : full; }
  float* Sum(const Workspace& at, size_t part, size_t block) const {
    return reinterpret_cast<float*>(at.shared) + (part * blocks.chunks() + block) * packed_elements;
  }

  // The gradient of a block of outputs over a piece: pixels with the block's channels side by side.
  float* GatherGradient(const Workspace& at, const Range& range, size_t block) const {
    auto* to = reinterpret_cast<float*>(at.scratch + gradient_at);
    const size_t n = blocks.size(block), all = static_cast<size_t>(all_outputs);
    const bool half = gradient.type.type == program::v1::FLOAT16;
    if (!half && n == all) return gradient.As<float>(at) + range.begin;
    for (size_t pixel = 0; pixel < range.count / all; ++pixel) {
      const size_t from = range.begin + pixel * all + blocks.begin(block);
      if (half) {
        FloatsOfHalves(gradient.As<_Float16>(at) + from, to + pixel * n, n);
      } else {
        std::copy_n(gradient.As<float>(at) + from, n, to + pixel * n);
      }
    }
    return to;
  }

  // Chunk c of a round: a block of outputs, over the pieces of a part.
  absl::Status Run(const Workspace& at, size_t round, size_t chunk) const {
    const size_t part = chunk % parts, block = chunk / parts, index = round * parts + part;
    float* sum = Sum(at, part, block);
    if (index >= pieces.size()) return absl::OkStatus();
    const ConvolutionPiece& piece = pieces[index];
    const Block& of = BlockAt(block);
    const Pass& pass = *of.passes[index];
    ConvolutionShape all = shape;
    all.outputs = all_outputs;
    const Range image_range = ImageRange(shape, piece), result_range = ResultRange(all, piece);
    auto* x = const_cast<float*>(image.Read(at, image_range.begin, image_range.count));
    float* dy = GatherGradient(at, result_range, block);
    float* dw = round == 0 ? sum : reinterpret_cast<float*>(at.scratch + weights_at);
    Execute(pass, at.scratch + scratchpad, DNNL_ARG_SRC, x, DNNL_ARG_DIFF_WEIGHTS, dw,
            DNNL_ARG_DIFF_DST, dy);
    if (round > 0) AddInto(sum, dw, pass.weights.get_size() / sizeof(float));
    return absl::OkStatus();
  }

  absl::Status Finish(const Workspace& at, size_t block) const {
    const Block& of = BlockAt(block);
    const Memory::desc& packed = of.owner->weights();
    float* sum = Sum(at, 0, block);
    for (size_t part = 1; part < parts; ++part)
      AddInto(sum, Sum(at, part, block), packed.get_size() / sizeof(float));
    const auto elements = static_cast<size_t>(shape.weights() / shape.outputs);
    const size_t first = blocks.begin(block) * elements;
    Memory from(packed, CpuEngine(), sum), to(of.plain, CpuEngine(), output.Write(at, first));
    of.unpack.execute(StreamOfThisThread(), from, to);
    output.Store(at, first, blocks.size(block) * elements);
    return absl::OkStatus();
  }
};

void CutOutputs(WeightGradient& conv) {
  const ConvolutionShape& s = conv.shape;
  const auto outputs = static_cast<size_t>(s.outputs);
  conv.blocks = {outputs, outputs};
  constexpr int64_t kFewOutputs = 64, kManyPixels = 64, kLanes = 16;
  const bool large = s.weights() >= kManyPixels * s.images * s.result_pixels();
  if (s.groups == 1 && s.outputs >= kFewOutputs && large) {
    const size_t quarter = (outputs + kParts - 1) / kParts;
    conv.blocks.per_chunk = (quarter + kLanes - 1) / kLanes * kLanes;
  }
}

Kernel PrepareWeightGradient(const Convolution& op, const Operand& image, const Operand& gradient,
                             const Operand& output) {
  const auto conv = std::make_shared<WeightGradient>();
  conv->shape = ShapeOf(op, image.type, gradient.type);
  conv->all_outputs = conv->shape.outputs;
  conv->gradient = gradient;
  CutOutputs(*conv);
  const ConvolutionShape whole = conv->shape;
  const size_t num_blocks = conv->blocks.chunks();
  // A block of outputs takes all images at once if it may; otherwise pieces are quarters.
  const double share = 1.0 / static_cast<double>(num_blocks);
  const double operations = num_blocks > 1 ? kOperationsOfAChunk / share
                                           : std::clamp(whole.operations() / kParts,
                                                        kOperations / 16, kOperationsOfAChunk / 2);
  conv->pieces = CutConvolution(whole, CutBy::kResultRows, operations);
  conv->parts = std::min(kParts, conv->pieces.size());
  conv->rounds = (conv->pieces.size() + conv->parts - 1) / conv->parts;
  for (size_t block = num_blocks > 1 ? 0 : num_blocks - 1; block < num_blocks;
       block += std::max<size_t>(1, num_blocks - 1)) {
    WeightGradient::Block& of = block + 1 == num_blocks ? conv->last : conv->full;
    conv->shape.outputs = static_cast<int64_t>(conv->blocks.size(block));
    of.owner = std::make_unique<Passes>(conv->shape, op.pass());
    of.passes.clear();
    for (const ConvolutionPiece& piece : conv->pieces) of.passes.push_back(of.owner->For(piece));
    of.plain = WeightsDesc(conv->shape, /*any=*/false);
    of.unpack = MakeReorder(of.owner->weights(), of.plain);
    conv->packed_elements =
        std::max(conv->packed_elements, (of.owner->weights().get_size() + 63) / 64 * 16);
  }
  const size_t scratchpad = std::max(conv->last.owner->scratchpad_bytes(),
                                     num_blocks > 1 ? conv->full.owner->scratchpad_bytes() : 0);
  const auto block_outputs = conv->blocks.per_chunk;
  const auto all_outputs = static_cast<size_t>(whole.outputs);
  MemoryPlan scratch;
  conv->image = FloatBlock(image, MostElements(whole, conv->pieces, ImageRange), scratch);
  conv->output = FloatBlock(
      output, block_outputs * static_cast<size_t>(whole.weights() / whole.outputs), scratch);
  conv->gradient_at = scratch.Add(MostElements(whole, conv->pieces, ResultRange) / all_outputs *
                                  block_outputs * sizeof(float));
  if (conv->rounds > 1) conv->weights_at = scratch.Add(conv->packed_elements * sizeof(float));
  conv->scratchpad = scratch.Add(scratchpad);
  Kernel kernel;
  for (size_t round = 0; round < conv->rounds; ++round) {
    kernel.phases.push_back({num_blocks * conv->parts,
                             [conv, round](const Workspace& at, size_t chunk) {
                               return Guarded(
                                   [&]() -> absl::Status { return conv->Run(at, round, chunk); });
                             },
                             /*long_chunks=*/true});
  }
  kernel.phases.push_back({num_blocks, [conv](const Workspace& at, size_t block) {
                             return Guarded(
                                 [&]() -> absl::Status { return conv->Finish(at, block); });
                           }});
  kernel.shared_bytes = conv->parts * num_blocks * conv->packed_elements * sizeof(float);
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

absl::StatusOr<Kernel> PrepareConvolution(const program::v1::Ipu& ipu,
                                          const Instruction& instruction) {
  const Convolution& op = instruction.convolution();
  const Operand a = Resolve(ipu, instruction.inputs(0)), b = Resolve(ipu, instruction.inputs(1)),
                output = ResolveOutput(ipu, instruction, 0);
  if (a.type.empty()) return ZeroKernel(output);  // no images, whose gradients have no terms
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    return op.pass() == Convolution::WEIGHT_GRADIENT ? PrepareWeightGradient(op, a, b, output)
                                                     : PrepareSliding(op, a, b, output);
  });
}

}  // namespace

std::vector<KernelDef> ConvolutionKernels() {
  return {{Instruction::kConvolution, PrepareConvolution}};
}

}  // namespace vpod::engine

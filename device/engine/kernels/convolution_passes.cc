#include "device/engine/kernels/convolution_passes.h"

namespace vpod::engine {

using Memory = dnnl::memory;
using Tag = dnnl::memory::format_tag;
using program::v1::Convolution;

namespace {

Memory::desc ImageDesc(int64_t images, int64_t channels, const Memory::dims& sizes) {
  constexpr Tag kTags[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
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
  const Tag plain = (s.groups > 1 ? kGrouped : kPlain)[s.rank() - 1];
  return {dims, Memory::data_type::f32, any ? Tag::any : plain};
}

dnnl::reorder MakeReorder(const Memory::desc& from, const Memory::desc& to) {
  return dnnl::reorder(dnnl::reorder::primitive_desc(CpuEngine(), from, CpuEngine(), to));
}

void Execute(const Pass& pass, std::byte* scratchpad, int image_argument, float* image,
             int weights_argument, float* weights, int result_argument, float* result) {
  pass.primitive.execute(StreamOfThisThread(),
                         {{image_argument, Memory(pass.image, CpuEngine(), image)},
                          {weights_argument, Memory(pass.weights, CpuEngine(), weights)},
                          {result_argument, Memory(pass.result, CpuEngine(), result)},
                          {DNNL_ARG_SCRATCHPAD, Memory(pass.scratchpad, CpuEngine(), scratchpad)}});
}

}  // namespace

int64_t BlockUnits(const ConvolutionShape& s, Convolution::Pass pass) {
  if (s.groups > 1) return s.groups;
  return pass == Convolution::INPUT_GRADIENT ? s.channels : s.outputs;
}

WeightsBlock BlockAt(const ConvolutionShape& s, Convolution::Pass pass, int64_t first,
                     int64_t units) {
  const int64_t channels = s.channels / s.groups, outputs = s.outputs / s.groups;
  WeightsBlock block{.shape = s, .channels = {0, s.channels}, .outputs = {0, s.outputs}};
  const auto set_rows = [&](int64_t begin, int64_t rows, int64_t length, int64_t stride) {
    block.first = static_cast<size_t>(begin);
    block.rows = static_cast<size_t>(rows);
    block.length = static_cast<size_t>(length);
    block.stride = static_cast<size_t>(stride);
  };
  if (s.groups > 1) {
    block.shape.groups = units;
    block.channels = {first * channels, units * channels};
    block.outputs = {first * outputs, units * outputs};
    const int64_t row = outputs * channels * s.taps();
    set_rows(first * row, units, row, row);
  } else if (pass == Convolution::INPUT_GRADIENT) {
    block.channels = {first, units};
    set_rows(first * s.taps(), outputs, units * s.taps(), channels * s.taps());
  } else {
    block.outputs = {first, units};
    const int64_t row = channels * s.taps();
    set_rows(first * row, units, row, row);
  }
  block.shape.channels = block.channels.size;
  block.shape.outputs = block.outputs.size;
  return block;
}

void Pass::Forward(float* x, float* w, float* y, std::byte* pad) const {
  Execute(*this, pad, DNNL_ARG_SRC, x, DNNL_ARG_WEIGHTS, w, DNNL_ARG_DST, y);
}
void Pass::InputGradient(float* dy, float* w, float* dx, std::byte* pad) const {
  Execute(*this, pad, DNNL_ARG_DIFF_SRC, dx, DNNL_ARG_WEIGHTS, w, DNNL_ARG_DIFF_DST, dy);
}
void Pass::WeightGradient(float* x, float* dy, float* dw, std::byte* pad) const {
  Execute(*this, pad, DNNL_ARG_SRC, x, DNNL_ARG_DIFF_WEIGHTS, dw, DNNL_ARG_DIFF_DST, dy);
}

Passes::Passes(ConvolutionShape shape, Convolution::Pass kind, const ConvolutionCut& cut)
    : shape_(std::move(shape)), kind_(kind) {
  for (size_t geometry = 0; geometry < cut.geometries(); ++geometry) {
    const ConvolutionPiece piece = cut.ExampleOf(geometry);
    passes_.push_back(piece.is_empty(shape_.rank()) ? nullptr
                                                    : std::make_unique<Pass>(Make(piece)));
  }
}

Pass Passes::Make(const ConvolutionPiece& piece) {
  const ConvolutionShape& s = shape_;
  Memory::dims image_size, result_size, before, after, dilates(s.dilation);
  for (size_t i = 0; i < s.rank(); ++i) {
    const ConvolutionPart& part = piece.parts[i];
    image_size.push_back(part.image_size);
    result_size.push_back(part.result_size);
    before.push_back(part.pad_before);
    after.push_back(part.pad_after);
    --dilates[i];  // oneDNN counts what it skips
  }
  const auto image = ImageDesc(piece.images, s.channels, image_size),
             result = ImageDesc(piece.images, s.outputs, result_size);
  const auto weights = weights_ ? weights_ : WeightsDesc(s, /*any=*/true);
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
    return Finish(dnnl::convolution_backward_data(desc), desc, image, desc.weights_desc(), result);
  }
  const dnnl::convolution_backward_weights::primitive_desc desc(
      {kDirect, image, weights, result, Memory::dims(s.stride), dilates, before, after},
      UserScratchpad(), CpuEngine(), forward);
  return Finish(dnnl::convolution_backward_weights(desc), desc, image, desc.diff_weights_desc(),
                result);
}

template <class Desc>
Pass Passes::Finish(dnnl::primitive primitive, const Desc& desc, const Memory::desc& image,
                    const Memory::desc& weights, const Memory::desc& result) {
  weights_ = weights;
  const std::string name = desc.impl_info_str();
  if (std::find(implementations_.begin(), implementations_.end(), name) == implementations_.end())
    implementations_.push_back(name);
  const Memory::desc scratchpad = desc.scratchpad_desc();
  scratchpad_bytes_ = std::max(scratchpad_bytes_, scratchpad.get_size());
  return {std::move(primitive), image, weights, result, scratchpad};
}

Memory::desc PlainWeights(const ConvolutionShape& shape) {
  return WeightsDesc(shape, /*any=*/false);
}

WeightsPacking::WeightsPacking(const Memory::desc& plain, const Memory::desc& packed) {
  // A multiple of the blocks that layouts have.
  constexpr size_t kUnit = 64, kElements = size_t{1} << 16;
  const auto rows = static_cast<size_t>(plain.dims()[0]);
  const size_t row = plain.get_size() / sizeof(float) / rows;
  try {
    Cut({rows, std::max<size_t>(1, kElements / row / kUnit) * kUnit}, plain, packed);
  } catch (const dnnl::error&) {
    // A layout that cannot be cut.
    Cut({rows, rows}, plain, packed);
  }
}

void WeightsPacking::Cut(const Chunking& chunks, const Memory::desc& plain,
                         const Memory::desc& packed) {
  pieces.clear();
  for (size_t chunk = 0; chunk < chunks.chunks(); ++chunk) {
    Memory::dims dims = plain.dims(), first(dims.size(), 0);
    dims[0] = static_cast<Memory::dim>(chunks.size(chunk));
    Piece piece{.first_row = chunks.begin(chunk), .rows = chunks.size(chunk)};
    // The plain piece is a tensor of its own, the packed one a part of all weights.
    piece.plain = Memory::desc(dims, Memory::data_type::f32, program::RowMajorStrides(dims));
    first[0] = static_cast<Memory::dim>(chunks.begin(chunk));
    piece.packed = chunks.chunks() == 1 ? packed : packed.submemory_desc(dims, first);
    piece.reorder = MakeReorder(piece.plain, piece.packed);
    pieces.push_back(std::move(piece));
  }
}

}  // namespace vpod::engine

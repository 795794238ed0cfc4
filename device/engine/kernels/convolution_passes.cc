#include "device/engine/kernels/convolution_passes.h"

#include "absl/strings/match.h"

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

// A descriptor of a gradient. oneDNN takes one of the forward pass as a hint, which it does
// without.
template <class Primitive>
typename Primitive::primitive_desc WithoutHint(const typename Primitive::desc& desc) {
  dnnl_primitive_desc_t result = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_create(&result, &desc.data, UserScratchpad().get(),
                                                     CpuEngine().get(), nullptr),
                          "could not create a primitive descriptor");
  return typename Primitive::primitive_desc(result);
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
  constexpr int kMostAttempts = 3;
  size_t first = 0;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const std::optional<size_t> failed = MakeAll(cut, first);
    if (!failed) return;
    if (*failed == first) break;
    // There may be a good implementation for the layout that these pieces choose.
    first = *failed;
  }
  throw dnnl::error(dnnl_unimplemented, "there is no good implementation for all pieces");
}

std::optional<size_t> Passes::MakeAll(const ConvolutionCut& cut, size_t first) {
  passes_.clear();
  passes_.resize(cut.geometries());
  weights_ = Memory::desc();
  scratchpad_bytes_ = 0;
  implementations_.clear();
  for (size_t i = 0; i < passes_.size(); ++i) {
    const size_t geometry = i == 0 ? first : i <= first ? i - 1 : i;
    const ConvolutionPiece piece = cut.ExampleOf(geometry);
    if (piece.is_empty(shape_.rank())) continue;
    try {
      passes_[geometry] = std::make_unique<Pass>(Make(piece));
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
      return geometry;
    }
  }
  return std::nullopt;
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
  const Memory::dims stride(s.stride);
  if (kind_ == Convolution::FORWARD) {
    using Primitive = dnnl::convolution_forward;
    const Primitive::primitive_desc desc({dnnl::prop_kind::forward_training, kDirect, image,
                                          weights, result, stride, dilates, before, after},
                                         UserScratchpad(), CpuEngine());
    return Finish<Primitive>(desc, image, desc.weights_desc(), result);
  }
  if (kind_ == Convolution::INPUT_GRADIENT) {
    using Primitive = dnnl::convolution_backward_data;
    const auto desc =
        WithoutHint<Primitive>({kDirect, image, weights, result, stride, dilates, before, after});
    return Finish<Primitive>(desc, image, desc.weights_desc(), result);
  }
  using Primitive = dnnl::convolution_backward_weights;
  const auto desc =
      WithoutHint<Primitive>({kDirect, image, weights, result, stride, dilates, before, after});
  return Finish<Primitive>(desc, image, desc.diff_weights_desc(), result);
}

template <class Primitive>
Pass Passes::Finish(const typename Primitive::primitive_desc& desc, const Memory::desc& image,
                    const Memory::desc& weights, const Memory::desc& result) {
  const std::string name = desc.impl_info_str();
  if (absl::StartsWith(name, "ref"))
    throw dnnl::error(dnnl_unimplemented, "there is only a reference implementation");
  weights_ = weights;
  if (std::find(implementations_.begin(), implementations_.end(), name) == implementations_.end())
    implementations_.push_back(name);
  const Memory::desc scratchpad = desc.scratchpad_desc();
  scratchpad_bytes_ = std::max(scratchpad_bytes_, scratchpad.get_size());
  return {Primitive(desc), image, weights, result, scratchpad};
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

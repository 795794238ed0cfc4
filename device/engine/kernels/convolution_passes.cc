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
  scratchpad_bytes_ = surrounded_bytes_ = 0;
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

namespace {

// A piece as oneDNN describes it.
struct Geometry {
  Memory::desc image, result;
  Memory::dims stride, dilates, before, after;
};

// `surrounded`: the padding is part of the image.
Geometry GeometryOf(const ConvolutionShape& shape, const ConvolutionPiece& piece,
                    bool surrounded = false) {
  Memory::dims image_size, result_size;
  Geometry of{.stride = shape.stride, .dilates = shape.dilation};
  for (size_t i = 0; i < shape.rank(); ++i) {
    const ConvolutionPart& part = piece.parts[i];
    const int64_t padding = surrounded ? part.pad_before + part.pad_after : 0;
    image_size.push_back(part.image_size + padding);
    result_size.push_back(part.result_size);
    of.before.push_back(surrounded ? 0 : part.pad_before);
    of.after.push_back(surrounded ? 0 : part.pad_after);
    --of.dilates[i];  // oneDNN counts what it skips
  }
  of.image = ImageDesc(piece.images, shape.channels, image_size);
  of.result = ImageDesc(piece.images, shape.outputs, result_size);
  return of;
}

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

}  // namespace

Pass Passes::Make(const ConvolutionPiece& piece) {
  if (kind_ == Convolution::WEIGHT_GRADIENT) return MakeWeightGradient(piece);
  const Geometry of = GeometryOf(shape_, piece);
  const auto weights = weights_ ? weights_ : AnyWeights(shape_);
  if (kind_ == Convolution::FORWARD) {
    using Primitive = dnnl::convolution_forward;
    const Primitive::primitive_desc desc(
        {dnnl::prop_kind::forward_training, kDirect, of.image, weights, of.result, of.stride,
         of.dilates, of.before, of.after},
        UserScratchpad(), CpuEngine());
    return Finish<Primitive>(desc, of.image, desc.weights_desc(), of.result);
  }
  using Primitive = dnnl::convolution_backward_data;
  const auto desc = WithoutHint<Primitive>(
      {kDirect, of.image, weights, of.result, of.stride, of.dilates, of.before, of.after});
  return Finish<Primitive>(desc, of.image, desc.weights_desc(), of.result);
}

// On AVX2, oneDNN multiplies matrices if the window is larger than the image, which is slow. The
// padding becomes part of the image there, so that the window fits.
Pass Passes::MakeWeightGradient(const ConvolutionPiece& piece) {
  using Primitive = dnnl::convolution_backward_weights;
  const auto weights = weights_ ? weights_ : AnyWeights(shape_);
  const auto desc_of = [&](const Geometry& of) {
    return WithoutHint<Primitive>(
        {kDirect, of.image, weights, of.result, of.stride, of.dilates, of.before, of.after});
  };
  const auto is_product = [](const Primitive::primitive_desc& desc) {
    return absl::StrContains(desc.impl_info_str(), "gemm");
  };
  const Geometry as_it_is = GeometryOf(shape_, piece);
  const auto desc = desc_of(as_it_is);
  int64_t padding = 0;
  bool cropped = false;  // the windows leave out pixels of the piece
  for (size_t i = 0; i < shape_.rank(); ++i) {
    const ConvolutionPart& part = piece.parts[i];
    padding += part.pad_before + part.pad_after;
    cropped |= part.pad_before < 0 || part.pad_after < 0;
  }
  if (padding > 0 && !cropped && is_product(desc)) {
    const Geometry of = GeometryOf(shape_, piece, /*surrounded=*/true);
    const auto better = desc_of(of);
    if (!is_product(better) && !absl::StartsWith(better.impl_info_str(), "ref")) {
      Pass pass = Finish<Primitive>(better, of.image, better.diff_weights_desc(), of.result);
      pass.surrounded = true;
      surrounded_bytes_ = std::max(surrounded_bytes_, of.image.get_size());
      return pass;
    }
  }
  return Finish<Primitive>(desc, as_it_is.image, desc.diff_weights_desc(), as_it_is.result);
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

}  // namespace vpod::engine

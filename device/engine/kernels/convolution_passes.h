// Convolutions of pieces by oneDNN.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/engine/kernels/convolution_weights.h"

namespace vpod::engine {

// A pass over pieces of one geometry.
struct Pass {
  dnnl::primitive primitive;
  dnnl::memory::desc image, weights, result, scratchpad;
  bool surrounded = false;  // the image has its padding around it, as zeros

  // The operands are dense float32.
  void Forward(float* image, float* weights, float* result, std::byte* scratchpad) const;
  void InputGradient(float* result, float* weights, float* image, std::byte* scratchpad) const;
  void WeightGradient(float* image, float* result, float* weights, std::byte* scratchpad) const;
};

// The passes that the pieces of a cut need; one of them chooses the layout of the weights.
class Passes {
 public:
  // Throws dnnl::error: dnnl_unimplemented if oneDNN has no implementation for a piece, or only the
  // one that is for reference.
  Passes(ConvolutionShape shape, program::v1::Convolution::Pass kind, const ConvolutionCut& cut);

  // The pass for a geometry of the cut; null if no window touches its pixels.
  const Pass* At(size_t geometry) const { return passes_[geometry].get(); }
  const dnnl::memory::desc& weights() const { return weights_; }
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }
  // The size of the largest image that has its padding around it; 0 if none has.
  size_t surrounded_bytes() const { return surrounded_bytes_; }
  const std::vector<std::string>& implementations() const { return implementations_; }
  size_t primitives() const {
    return passes_.size() -
           static_cast<size_t>(std::count(passes_.begin(), passes_.end(), nullptr));
  }

 private:
  // The pieces of geometry `first` choose the layout of the weights, unless they are empty. Returns
  // a geometry that has no good implementation then.
  std::optional<size_t> MakeAll(const ConvolutionCut& cut, size_t first);
  Pass Make(const ConvolutionPiece& piece);
  Pass MakeWeightGradient(const ConvolutionPiece& piece);
  template <class Primitive>
  Pass Finish(const typename Primitive::primitive_desc& desc, const dnnl::memory::desc& image,
              const dnnl::memory::desc& weights, const dnnl::memory::desc& result);

  const ConvolutionShape shape_;
  const program::v1::Convolution::Pass kind_;
  std::vector<std::unique_ptr<Pass>> passes_;
  dnnl::memory::desc weights_;
  size_t scratchpad_bytes_ = 0, surrounded_bytes_ = 0;
  std::vector<std::string> implementations_;  // each once
};

}  // namespace vpod::engine

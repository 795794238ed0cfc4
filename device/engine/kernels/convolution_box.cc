#include "device/engine/kernels/convolution_box.h"

namespace vpod::engine {

Box ImageBox(const ConvolutionPiece& piece, size_t rank, Box::Span channels) {
  Box box{.images = {piece.first_image, piece.images}, .channels = channels};
  for (size_t i = 0; i < rank; ++i)
    box.spatial[i] = {piece.parts[i].image, piece.parts[i].image_size};
  return box;
}

Box ResultBox(const ConvolutionPiece& piece, size_t rank, Box::Span channels) {
  Box box{.images = {piece.first_image, piece.images}, .channels = channels};
  for (size_t i = 0; i < rank; ++i)
    box.spatial[i] = {piece.parts[i].result, std::max<int64_t>(0, piece.parts[i].result_size)};
  return box;
}

size_t BoxBlock::FirstOf(const Box& box) const {
  const program::Dims& dims = operand_.type.dims;  // images, channels, spatial
  int64_t first = box.images.first;
  for (size_t i = program::kImageHead; i < dims.size(); ++i)
    first = first * dims[i] + box.spatial[i - program::kImageHead].first;
  return static_cast<size_t>(first * dims[1] + box.channels.first);
}

template <class Visit>
void BoxBlock::ForRuns(const Box& box, const Visit& visit) const {
  const program::Dims& dims = operand_.type.dims;
  const size_t rank = dims.size() - program::kImageHead;
  // Dimensions inside which the box is whole are one run.
  int64_t run = box.channels.size;
  bool whole = run == dims[1];
  size_t axis = rank;
  while (whole && axis > 0) {
    --axis;
    run *= box.spatial[axis].size;
    whole = box.spatial[axis].size == dims[axis + program::kImageHead];
  }
  int64_t images = box.images.size;
  if (whole) {
    run *= images;
    images = 1;
  }
  if (run == 0) return;
  Box at = box;
  size_t done = 0;
  for (int64_t image = 0; image < images; ++image) {
    at.images.first = box.images.first + image;
    while (true) {
      visit(FirstOf(at), done, static_cast<size_t>(run));
      done += static_cast<size_t>(run);
      size_t i = axis;
      for (; i > 0; --i) {
        const Box::Span& span = box.spatial[i - 1];
        if (++at.spatial[i - 1].first < span.first + span.size) break;
        at.spatial[i - 1].first = span.first;
      }
      if (i == 0) break;
    }
  }
}

float* BoxBlock::Read(const Workspace& at, const Box& box) const {
  if (direct_) return operand_.As<float>(at) + FirstOf(box);
  float* floats = Scratch(at);
  ForRuns(box, [&](size_t from, size_t to, size_t n) {
    if (half_) {
      FloatsOfHalves(operand_.As<_Float16>(at) + from, floats + to, n);
    } else {
      std::copy_n(operand_.As<float>(at) + from, n, floats + to);
    }
  });
  return floats;
}

float* BoxBlock::Write(const Workspace& at, const Box& box) const {
  return direct_ ? operand_.As<float>(at) + FirstOf(box) : Scratch(at);
}

void BoxBlock::Store(const Workspace& at, const Box& box) const {
  if (direct_) return;
  const float* floats = Scratch(at);
  ForRuns(box, [&](size_t to, size_t from, size_t n) {
    if (half_) {
      RoundToHalves(operand_, at, to, 1, floats + from, operand_.As<_Float16>(at) + to, n);
    } else {
      std::copy_n(floats + from, n, operand_.As<float>(at) + to);
    }
  });
}

}  // namespace vpod::engine

// How a convolution is cut into pieces that oneDNN computes, and what the convolution over a piece
// looks like.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/engine/kernels/operand.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::engine {

// A convolution in terms of its forward pass.
struct ConvolutionShape {
  int64_t images = 0, groups = 1;
  int64_t channels = 0, outputs = 0;  // of all groups
  program::Dims image, result;        // spatial sizes
  program::Dims kernel, stride, dilation, pad_before, pad_after;

  size_t rank() const { return kernel.size(); }
  int64_t weights() const;       // elements
  double operations() const;     // multiply-adds
  int64_t taps() const;          // elements of a window
  int64_t image_pixels() const;  // of one image
  int64_t result_pixels() const;
};

// The limits of pieces. Tests lower them.
struct ConvolutionLimits {
  double operations = 8e7;              // of a piece, about a millisecond
  double most_operations = 1 << 27;     // of an image that is not cut
  int64_t elements = int64_t{1} << 22;  // of its image or result: more would leave the caches
  int64_t weights = int64_t{1} << 24;   // that are packed at a time
  int64_t loop_operations = 1 << 20;    // of a chunk without oneDNN, some milliseconds
  int64_t loop_results = 1 << 23;       // whose sums are kept at a time, if they take rounds
  bool loops = false;                   // never ask oneDNN
};

// Cuts by results (each needs pixels of the image that others need too), or by pixels of the image,
// for a gradient of it: each needs several results.
enum class CutBy { kResults, kImage };

// Consecutive results along a spatial dimension and the part of the image under their windows, or
// a part of the image and the results whose windows touch it.
struct ConvolutionPart {
  int64_t image = 0, image_size = 0;
  int64_t result = 0, result_size = 0;  // not above 0: no window touches the part
  int64_t pad_before = 0, pad_after = 0;
};

// One dimension of a convolution and the number of its parts.
struct ConvolutionLine {
  int64_t image, result, kernel, stride, dilation, pad_before, pad_after;
  CutBy by;
  int64_t parts = 1;

  ConvolutionLine(const ConvolutionShape& shape, size_t axis, CutBy by);

  // Cuts into parts of at most `count`-th of the dimension, about equal.
  void Cut(int64_t count);
  ConvolutionPart operator[](int64_t part) const;

 private:
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  int64_t size() const { return by == CutBy::kResults ? result : image; }
  // Images are cut where a window begins: what is shared out are `unit` pixels, the first of which
  // may lie ahead of the image.
  int64_t unit() const { return by == CutBy::kResults ? 1 : stride; }
  int64_t ahead() const { return by == CutBy::kResults ? 0 : pad_before % stride; }
  int64_t units() const { return (size() + ahead() + unit() - 1) / unit(); }
  int64_t BeginOf(int64_t part) const;
  ConvolutionPart OfResults(int64_t first, int64_t end) const;
  ConvolutionPart OfImage(int64_t first, int64_t end) const;
};

// Consecutive images, whole or, if it is one image, a part of it.
struct ConvolutionPiece {
  int64_t first_image = 0, images = 1;
  std::array<ConvolutionPart, program::kMaxSpatialRank> parts;

  bool is_empty(size_t rank) const;
};

// The pieces, images outermost. Images of at most `operations_of_image` multiply-adds stay whole,
// if they have no more than `elements`; a piece has about `operations`, or those of one result.
// Rows are cut where it is not enough to share them out, and where they have more than `kMostWidth`
// pixels: oneDNN takes time in proportion to prepare a piece.
class ConvolutionCut {
 public:
  static constexpr int64_t kMostWidth = 2048;

  ConvolutionCut() = default;
  ConvolutionCut(const ConvolutionShape& shape, CutBy by, double operations,
                 double operations_of_image, int64_t elements);

  size_t size() const;
  ConvolutionPiece operator[](size_t piece) const;
  // The geometry of a piece: pieces of one differ in their place only. Below geometries().
  size_t GeometryOf(size_t piece) const;
  size_t geometries() const;
  // Some piece of a geometry.
  ConvolutionPiece ExampleOf(size_t geometry) const;

  // Pieces are rows, or more, without gaps between their pixels.
  bool contiguous() const { return contiguous_; }
  // The most that a piece has.
  int64_t image_pixels() const { return most_images() * image_pixels_; }
  int64_t result_pixels() const { return most_images() * result_pixels_; }
  double operations() const { return static_cast<double>(most_images()) * operations_; }

 private:
  // A spatial dimension.
  struct Axis {
    ConvolutionLine line;
    // A part of each kind: those of one differ in their place only.
    std::vector<ConvolutionPart> examples;

    size_t Parts() const { return static_cast<size_t>(line.parts); }
    size_t KindOf(size_t part) const;
  };

  int64_t most_images() const { return static_cast<int64_t>(images_.size(0)); }
  size_t ImageKinds() const {
    return images_.size(images_.chunks() - 1) == images_.size(0) ? 1 : 2;
  }
  // Index of a piece, or geometry, by axis, and of its images.
  template <class CountOf>
  size_t Split(size_t index, const CountOf& count_of, std::array<size_t, 3>& of_axes) const;

  Chunking images_;
  std::vector<Axis> axes_;
  bool contiguous_ = true;
  int64_t image_pixels_ = 1, result_pixels_ = 1;
  double operations_ = 0;  // of one image of a piece
};

}  // namespace vpod::engine

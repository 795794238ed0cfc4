// Images of another size.
#include "client/nn/resize.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

using nn::Interpolation;

// Output size and scale factors, one of which is given, are arguments 1 and `scales`.
absl::StatusOr<Tensor> Resized(const Call& call, size_t rank, nn::ResizeOptions options,
                               size_t scales) {
  const Tensor image = call.tensor(0);
  const Dims dims = call.DimsOf(image);
  if (dims.size() != rank + 2) {
    return call.Refuse(absl::StrCat("the image is ", call.TypeOf(image).ToString(), ", must have ",
                                    rank + 2, " dimensions"));
  }
  Dims size = call.ints(1);
  options.scales = call.numbers(scales);
  if (size.empty() == options.scales.empty())
    return call.Refuse("needs either an output size or scale factors");
  if (size.empty()) {
    if (options.scales.size() != rank)
      return call.Refuse(absl::StrCat("needs ", rank, " scale factors"));
    for (size_t i = 0; i < rank; ++i) {
      const double length = std::floor(static_cast<double>(dims[i + 2]) * options.scales[i]);
      if (!(length >= 1 && length <= static_cast<double>(program::kMaxElements)))
        return call.Refuse(absl::StrCat("scale factor ", options.scales[i], " gives no image"));
      size.push_back(static_cast<int64_t>(length));
    }
  }
  return nn::Resize(call.graph(), image, size, options);
}

// (self, size, scales)
template <size_t kRank, Interpolation kInterpolation>
Outputs Nearest(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensor result,
                        Resized(call, kRank, {.interpolation = kInterpolation}, 2));
  return Tensors{result};
}

// (self, size, whether corners are aligned, scales)
template <size_t kRank, Interpolation kInterpolation, bool kAntialias = false>
Outputs Blended(const Call& call) {
  const nn::ResizeOptions options{
      .interpolation = kInterpolation, .align_corners = call.flag(2), .antialias = kAntialias};
  VPOD_ASSIGN_OR_RETURN(const Tensor result, Resized(call, kRank, options, 3));
  return Tensors{result};
}

constexpr char kNearest[] = "tensor, ints?, numbers?";
constexpr char kBlended[] = "tensor, ints?, bool, numbers?";

}  // namespace

std::vector<Row> ResizeRows() {
  return {
      {"upsample_nearest1d.vec", kNearest, Nearest<1, Interpolation::kNearest>},
      {"upsample_nearest2d.vec", kNearest, Nearest<2, Interpolation::kNearest>},
      {"upsample_nearest3d.vec", kNearest, Nearest<3, Interpolation::kNearest>},
      {"_upsample_nearest_exact1d.vec", kNearest, Nearest<1, Interpolation::kNearestExact>},
      {"_upsample_nearest_exact2d.vec", kNearest, Nearest<2, Interpolation::kNearestExact>},
      {"_upsample_nearest_exact3d.vec", kNearest, Nearest<3, Interpolation::kNearestExact>},
      {"upsample_linear1d.vec", kBlended, Blended<1, Interpolation::kLinear>},
      {"upsample_bilinear2d.vec", kBlended, Blended<2, Interpolation::kLinear>},
      {"upsample_trilinear3d.vec", kBlended, Blended<3, Interpolation::kLinear>},
      {"upsample_bicubic2d.vec", kBlended, Blended<2, Interpolation::kCubic>},
      {"_upsample_bilinear2d_aa.vec", kBlended, Blended<2, Interpolation::kLinear, true>},
      {"_upsample_bicubic2d_aa.vec", kBlended, Blended<2, Interpolation::kCubic, true>},
  };
}

}  // namespace vpod::aten

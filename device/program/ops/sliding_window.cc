#include "device/program/ops/sliding_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vpod::program {

absl::Status CheckImage(const char* name, const TensorType& image) {
  const int spatial = image.rank() - static_cast<int>(kImageHead);
  if (spatial < 1 || spatial > kMaxSpatialRank || !IsFloat(image.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name, " is ", image.ToString(),
                     ", must be floats [batch, channels, one to three spatial dimensions]"));
  }
  if (std::find(image.dims.begin() + 1, image.dims.end(), 0) == image.dims.end())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", name, " is ", image.ToString(), "; only the batch may be 0"));
}

absl::StatusOr<Dims> CountWindows(const Dims& image_size, const v1::SlidingWindow& window) {
  const auto rank = static_cast<int>(image_size.size());
  for (const auto* field : {&window.kernel(), &window.stride(), &window.dilation(),
                            &window.pad_before(), &window.pad_after()}) {
    if (field->size() != rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("the window needs ", rank, " entries in each field, one for each spatial ",
                       "dimension, and has ", field->size()));
    }
  }
  Dims counts;
  for (int i = 0; i < rank; ++i) {
    const int64_t size = image_size[static_cast<size_t>(i)], kernel = window.kernel(i),
                  stride = window.stride(i), dilation = window.dilation(i),
                  before = window.pad_before(i), after = window.pad_after(i);
    // Factors below 2^32: the product of kernel and dilation fits when both are in bounds.
    const bool bounded = kernel >= 1 && stride >= 1 && dilation >= 1 && kernel <= kMaxElements &&
                         dilation <= kMaxElements;
    const int64_t extent = bounded ? dilation * (kernel - 1) + 1 : 0;
    if (!bounded || before >= extent || after >= extent || size + before + after < extent) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a kernel of ", kernel, " with stride ", stride, ", dilation ", dilation, " and padding ",
          before, "+", after, " does not fit spatial dimension ", i, " of ", size));
    }
    counts.push_back((size + before + after - extent) / stride + 1);
  }
  return counts;
}

double KernelElements(const v1::SlidingWindow& window) {
  double elements = 1;
  for (uint32_t size : window.kernel()) elements *= size;
  return elements;
}

TensorType ImageType(const TensorType& image, int64_t channels, const Dims& sizes) {
  TensorType type{image.type, {image.dims[0], channels}};
  type.dims.insert(type.dims.end(), sizes.begin(), sizes.end());
  return type;
}

Layout ImagesLayout(const v1::Instruction&, OperandPlace) { return Layout::kChannelsLast; }

}  // namespace vpod::program

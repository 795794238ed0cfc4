#include "device/program/ops/sliding_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::program {
namespace {

absl::Status CheckField(const char* name, uint32_t value, int axis) {
  if (value >= 1 && value <= kMaxElements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the window's ", name, " along spatial dimension ",
                                                 axis, " is ", value, ", must be 1 to ",
                                                 kMaxElements));
}

}  // namespace

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

int64_t WindowExtent(const v1::SlidingWindow& window, int axis) {
  return int64_t{window.dilation(axis)} * (int64_t{window.kernel(axis)} - 1) + 1;
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
    VPOD_RETURN_IF_ERROR(CheckField("kernel", window.kernel(i), i));
    VPOD_RETURN_IF_ERROR(CheckField("stride", window.stride(i), i));
    VPOD_RETURN_IF_ERROR(CheckField("dilation", window.dilation(i), i));
    const int64_t before = window.pad_before(i), after = window.pad_after(i);
    const int64_t extent = WindowExtent(window, i);
    if (before >= extent || after >= extent) {
      return absl::InvalidArgumentError(absl::StrCat("the padding of spatial dimension ", i, " is ",
                                                     before, "+", after, ", must be 0 to ",
                                                     extent - 1, ", below the extent of a window"));
    }
    const int64_t padded = image_size[static_cast<size_t>(i)] + before + after;
    if (padded < extent) {
      return absl::InvalidArgumentError(absl::StrCat("a window of extent ", extent,
                                                     " does not fit spatial dimension ", i, " of ",
                                                     padded, " with its padding"));
    }
    counts.push_back((padded - extent) / window.stride(i) + 1);
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

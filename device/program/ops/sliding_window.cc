#include "device/program/ops/sliding_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

absl::Status CheckField(const Constraint& constraint, const char* name, uint32_t value, int axis) {
  if (value >= 1 && value <= kMaxElements) return absl::OkStatus();
  return Broken(constraint, absl::StrCat("the window's ", name, " along spatial dimension ", axis,
                                         " is ", value, ", must be 1 to ", kMaxElements));
}

// Whether the type is that of an image but for dimensions of 0.
bool HasImageForm(const TensorType& type) {
  const int spatial = type.rank() - static_cast<int>(kImageHead);
  return spatial >= 1 && spatial <= kMaxSpatialRank && IsFloat(type.type);
}

}  // namespace

bool IsImage(const TensorType& type) {
  return HasImageForm(type) &&
         std::find(type.dims.begin() + 1, type.dims.end(), 0) == type.dims.end();
}

absl::Status CheckImage(const Constraint& constraint, const char* name, const TensorType& image) {
  if (IsImage(image)) return absl::OkStatus();
  return Broken(
      constraint,
      absl::StrCat("the ", name, " is ", image.ToString(),
                   HasImageForm(image) ? "; only the batch may be 0"
                                       : ", must be floats [batch, channels, one to three spatial "
                                         "dimensions]"));
}

int64_t WindowExtent(const v1::SlidingWindow& window, int axis) {
  return int64_t{window.dilation(axis)} * (int64_t{window.kernel(axis)} - 1) + 1;
}

absl::StatusOr<Dims> CountWindows(const Constraint& constraint, const Dims& image_size,
                                  const v1::SlidingWindow& window) {
  const auto rank = static_cast<int>(image_size.size());
  for (const auto* field : {&window.kernel(), &window.stride(), &window.dilation(),
                            &window.pad_before(), &window.pad_after()}) {
    if (field->size() != rank) {
      return Broken(constraint, absl::StrCat("the window needs ", rank,
                                             " entries in each field, one for each spatial ",
                                             "dimension, and has ", field->size()));
    }
  }
  Dims counts;
  for (int i = 0; i < rank; ++i) {
    VPOD_RETURN_IF_ERROR(CheckField(constraint, "kernel", window.kernel(i), i));
    VPOD_RETURN_IF_ERROR(CheckField(constraint, "stride", window.stride(i), i));
    VPOD_RETURN_IF_ERROR(CheckField(constraint, "dilation", window.dilation(i), i));
    const int64_t before = window.pad_before(i), after = window.pad_after(i);
    const int64_t extent = WindowExtent(window, i);
    if (before >= extent || after >= extent) {
      return Broken(constraint,
                    absl::StrCat("the padding of spatial dimension ", i, " is ", before, "+", after,
                                 ", must be 0 to ", extent - 1, ", below the extent of a window"));
    }
    const int64_t padded = image_size[static_cast<size_t>(i)] + before + after;
    if (padded < extent) {
      return Broken(constraint,
                    absl::StrCat("a window of extent ", extent, " does not fit spatial dimension ",
                                 i, " of ", padded, " with its padding; an image is [batch, ",
                                 "channels, spatial dimensions]"));
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

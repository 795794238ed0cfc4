// Fashion-MNIST from Debian's package dataset-fashion-mnist (MIT licence): 28x28 grey images in ten
// classes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::examples {

inline constexpr int kImageSide = 28;
inline constexpr int kPixels = kImageSide * kImageSide;
inline constexpr char kDefaultDataDirectory[] = "/usr/share/datasets/fashion-mnist";

struct Dataset {
  std::vector<float> images;    // count × 784, from -0.5 to 0.5
  std::vector<int32_t> labels;  // 0 to 9
  size_t size() const { return labels.size(); }
};

// `split` is "train" or "t10k". The error names the file and, when it is missing, the package.
absl::StatusOr<Dataset> LoadFashionMnist(const std::string& directory, const std::string& split);

// The images of each epoch in an order that depends on seed and epoch only.
std::vector<uint32_t> EpochOrder(size_t count, uint64_t seed, uint64_t epoch);

}  // namespace vpod::examples

#include "client/examples/fashion_mnist/dataset.h"

#include <zlib.h>

#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"
#include "device/base/status.h"

namespace vpod::examples {
namespace {

// An idx file: magic with the number of dimensions, big-endian sizes, bytes. `dimensions` is 1
// or 3.
absl::StatusOr<std::vector<uint8_t>> ReadIdx(const std::string& path, uint32_t dimensions) {
  VPOD_RETURN_IF_ERROR(base::CheckIsFileOrNothing(path));  // to open a named pipe would wait
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, "; install the package dataset-fashion-mnist"));
  }
  const auto number = [&]() -> uint32_t {
    uint8_t bytes[4] = {};
    if (gzread(file, bytes, 4) != 4) return 0;
    return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
  };
  bool good = number() == 0x0800 + dimensions;
  const uint32_t count = number();
  uint64_t bytes = count;
  for (uint32_t i = 1; i < dimensions; ++i) {
    good = number() == kImageSide && good;
    bytes *= kImageSide;
  }
  std::vector<uint8_t> data;
  if (good && count <= 1'000'000) {
    data.resize(bytes);
    good = gzread(file, data.data(), static_cast<unsigned>(bytes)) == static_cast<int>(bytes);
  }
  gzclose(file);
  if (!good || data.empty())
    return absl::DataLossError(absl::StrCat(path, " is damaged or is not a Fashion-MNIST file"));
  return data;
}

}  // namespace

absl::StatusOr<Dataset> LoadFashionMnist(const std::string& directory, const std::string& split) {
  VPOD_ASSIGN_OR_RETURN(const auto images,
                        ReadIdx(absl::StrCat(directory, "/", split, "-images-idx3-ubyte.gz"), 3));
  VPOD_ASSIGN_OR_RETURN(const auto labels,
                        ReadIdx(absl::StrCat(directory, "/", split, "-labels-idx1-ubyte.gz"), 1));
  if (images.size() != labels.size() * kPixels) {
    return absl::DataLossError(
        absl::StrCat(directory, ": images and labels of ", split, " do not match"));
  }
  Dataset dataset;
  dataset.images.reserve(images.size());
  for (uint8_t pixel : images) dataset.images.push_back(static_cast<float>(pixel) / 255.0f - 0.5f);
  for (uint8_t label : labels) dataset.labels.push_back(label);
  return dataset;
}

std::vector<uint32_t> EpochOrder(size_t count, uint64_t seed, uint64_t epoch) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15ull + epoch);
  // std::shuffle may differ between libraries; this is the textbook algorithm.
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

}  // namespace vpod::examples

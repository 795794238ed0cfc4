// Pooling of one to three spatial dimensions, and its gradients; windows of images as columns.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

// The image with a batch, which PyTorch lets go.
struct Image {
  Tensor batch;
  bool single = false;
};

absl::StatusOr<Image> ImageOf(const Call& call, size_t i, size_t rank) {
  const Tensor tensor = call.tensor(i);
  Dims dims = call.DimsOf(tensor);
  if (dims.size() == rank + 2) return Image{tensor};
  if (dims.size() != rank + 1) {
    return call.Refuse(absl::StrCat("argument ", i, " is ", call.TypeOf(tensor).ToString(),
                                    ", must have ", rank + 1, " or ", rank + 2, " dimensions"));
  }
  dims.insert(dims.begin(), 1);
  return Image{call.graph().Reshape(tensor, dims), true};
}

Tensor Like(const Call& call, const Image& image, Tensor result) {
  if (!image.single) return result;
  Dims dims = call.DimsOf(result);
  if (!dims.empty()) dims.erase(dims.begin());
  return call.graph().Reshape(result, dims);
}

struct Windows {
  v1::SlidingWindow window;
  bool beyond = false;  // whether windows of a rounded up size leave the padded image
};

// Kernel, stride and padding from argument `first` on, dilation if there is one, and whether the
// size is rounded up.
absl::StatusOr<Windows> WindowsOf(const Call& call, const Dims& image, size_t first,
                                  std::optional<size_t> dilations, size_t ceil) {
  const size_t rank = image.size() - 2;
  VPOD_ASSIGN_OR_RETURN(const Dims kernel, call.PerDimension(first, rank));
  VPOD_ASSIGN_OR_RETURN(const Dims stride, call.PerDimension(first + 1, rank, kernel));
  VPOD_ASSIGN_OR_RETURN(const Dims padding, call.PerDimension(first + 2, rank));
  Dims dilation(rank, 1);
  if (dilations) {
    VPOD_ASSIGN_OR_RETURN(dilation, call.PerDimension(*dilations, rank));
  }
  Windows windows;
  v1::SlidingWindow& window = windows.window;
  for (size_t i = 0; i < rank; ++i) {
    constexpr int64_t kMost = program::kMaxElements;
    if (std::min({kernel[i], stride[i], dilation[i]}) < 1 || padding[i] < 0 ||
        std::max({kernel[i], stride[i], dilation[i], padding[i]}) > kMost) {
      return call.Refuse(absl::StrCat("kernels, strides and dilations must be 1 to ", kMost,
                                      ", paddings 0 or more"));
    }
    const int64_t extent = dilation[i] * (kernel[i] - 1) + 1, size = image[i + 2];
    int64_t after = padding[i];
    const int64_t rest = size + 2 * padding[i] - extent;
    if (call.flag(ceil) && rest >= 0) {
      int64_t count = (rest + stride[i] - 1) / stride[i] + 1;
      // The last window begins in the image or in the padding before it.
      if ((count - 1) * stride[i] >= size + padding[i]) --count;
      after = std::max(after, (count - 1) * stride[i] + extent - size - padding[i]);
      windows.beyond |= after > padding[i];
    }
    window.add_kernel(static_cast<uint32_t>(kernel[i]));
    window.add_stride(static_cast<uint32_t>(stride[i]));
    window.add_dilation(static_cast<uint32_t>(dilation[i]));
    window.add_pad_before(static_cast<uint32_t>(padding[i]));
    window.add_pad_after(static_cast<uint32_t>(after));
  }
  return windows;
}

// (self, kernel, stride, padding, dilation, ceil)
template <size_t kRank>
Outputs MaxPool(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Windows windows, WindowsOf(call, call.DimsOf(image.batch), 1, 4, 5));
  const auto [output, indices] = call.graph().MaxPoolWithIndices(image.batch, windows.window);
  return Tensors{Like(call, image, output), Like(call, image, indices)};
}

// (output gradient, self, kernel, stride, padding, dilation, ceil, indices)
template <size_t kRank>
Outputs MaxPoolBackward(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image gradient, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 1, kRank));
  VPOD_ASSIGN_OR_RETURN(const Image indices, ImageOf(call, 7, kRank));
  const Dims dims = call.DimsOf(image.batch);
  VPOD_ASSIGN_OR_RETURN(const Windows windows, WindowsOf(call, dims, 2, 5, 6));
  v1::Instruction op;
  *op.mutable_max_pool_gradient()->mutable_window() = windows.window;
  op.mutable_max_pool_gradient()->mutable_image_size()->Add(dims.begin() + 2, dims.end());
  const Tensors outputs = call.graph().AddOperation(std::move(op), {gradient.batch, indices.batch});
  VPOD_RETURN_IF_ERROR(call.graph().status());
  return Tensors{Like(call, image, outputs[0])};
}

// Kernel … from argument `first` on: (kernel, stride, padding, ceil, whether padding counts,
// divisor)
absl::StatusOr<Tensor> Averages(const Call& call, Tensor image, size_t first) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(Windows windows,
                        WindowsOf(call, call.DimsOf(image), first, std::nullopt, first + 3));
  v1::SlidingWindow& window = windows.window;
  const bool divided = call.has(first + 5);
  const bool count_padding = call.flag(first + 4) || divided;
  if (count_padding && windows.beyond && !divided) {
    // The padding counts, what is beyond it does not: the image takes the padding into itself.
    Dims around(call.DimsOf(image).size(), 0);
    for (int i = 0; i < window.kernel_size(); ++i) {
      const uint32_t padding = window.pad_before(i);
      around[i + 2] = padding;
      window.set_pad_before(i, 0);
      window.set_pad_after(i, window.pad_after(i) - padding);
    }
    return graph.AveragePool(graph.Pad(image, around, around, 0), window, false);
  }
  if (!divided) return graph.AveragePool(image, window, count_padding);
  if (call.number(first + 5) == 0) return call.Refuse("the divisor must not be 0");
  double kernel = 1;
  for (uint32_t size : window.kernel()) kernel *= size;
  const Term mean = call.term(graph.AveragePool(call.Wide(image), window, true));
  return call.Narrow(mean * (kernel / call.number(first + 5)), image);
}

template <size_t kRank>
Outputs AveragePool(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Tensor result, Averages(call, image.batch, 1));
  return Tensors{Like(call, image, result)};
}

// (output gradient, self, …)
template <size_t kRank>
Outputs AveragePoolBackward(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image gradient, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 1, kRank));
  absl::Status status;
  const Tensors gradients = Pullback(call, {image.batch}, gradient.batch, [&](const Tensors& own) {
    const absl::StatusOr<Tensor> result = Averages(call, own[0], 2);
    status = result.status();
    return result.ok() ? *result : call.graph().Fail(status);
  });
  VPOD_RETURN_IF_ERROR(status);
  return Tensors{Like(call, image, gradients[0])};
}

template <size_t kRank>
Outputs AdaptiveAveragePool(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Dims size, call.PerDimension(1, kRank));
  return Tensors{Like(call, image, call.graph().AdaptiveAveragePool(image.batch, size))};
}

template <size_t kRank>
Outputs AdaptiveAveragePoolBackward(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image gradient, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 1, kRank));
  const Dims dims = call.DimsOf(gradient.batch);
  const Tensors gradients = Pullback(call, {image.batch}, gradient.batch, [&](const Tensors& own) {
    return call.graph().AdaptiveAveragePool(own[0], Dims(dims.begin() + 2, dims.end()));
  });
  return Tensors{Like(call, image, gradients[0])};
}

template <size_t kRank>
Outputs AdaptiveMaxPool(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 0, kRank));
  VPOD_ASSIGN_OR_RETURN(const Dims size, call.PerDimension(1, kRank));
  const auto [output, indices] = call.graph().AdaptiveMaxPool(image.batch, size);
  return Tensors{Like(call, image, output), Like(call, image, indices)};
}

// --- Windows as columns: [n, channels * kernel height * kernel width, windows] ---

// The windows along one dimension of an image that has its padding.
struct Windowed {
  int64_t kernel = 0, dilation = 0, stride = 0, padding = 0, count = 0;

  // The place of each element of a window in each window, INT32 [kernel, count].
  Term Places(Graph& graph) const {
    const TensorType type{v1::INT32, {kernel, count}};
    const Term within(graph, graph.Iota(type, 0)), window(graph, graph.Iota(type, 1));
    return within * static_cast<double>(dilation) + window * static_cast<double>(stride);
  }
};

// Kernel, dilation, padding and stride from argument `first` on, for a dimension of the image.
absl::StatusOr<Windowed> WindowedOf(const Call& call, size_t first, size_t dimension,
                                    int64_t length) {
  Windowed of;
  const std::pair<int64_t*, int64_t> numbers[] = {
      {&of.kernel, 1}, {&of.dilation, 1}, {&of.padding, 0}, {&of.stride, 1}};
  for (size_t i = 0; i < std::size(numbers); ++i) {
    VPOD_ASSIGN_OR_RETURN(const Dims given, call.PerDimension(first + i, 2));
    const auto [number, least] = numbers[i];
    *number = given[dimension];
    if (*number < least || *number > program::kMaxElements) {
      return call.Refuse(absl::StrCat("argument ", first + i, " has ", *number, ", must be ", least,
                                      " to ", program::kMaxElements));
    }
  }
  const int64_t room = length + 2 * of.padding - of.dilation * (of.kernel - 1) - 1;
  if (room < 0)
    return call.Refuse(absl::StrCat("the windows do not fit the image's length ", length));
  of.count = room / of.stride + 1;
  return of;
}

// (self, kernel, dilation, padding, stride)
Outputs Im2Col(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Image image, ImageOf(call, 0, 2));
  const Dims dims = call.DimsOf(image.batch);
  VPOD_ASSIGN_OR_RETURN(const Windowed rows, WindowedOf(call, 1, 0, dims[2]));
  VPOD_ASSIGN_OR_RETURN(const Windowed columns, WindowedOf(call, 1, 1, dims[3]));
  const Dims around = {0, 0, rows.padding, columns.padding};
  Tensor windows = graph.Pad(image.batch, around, around, 0);
  windows = graph.Gather(windows, columns.Places(graph), 3);
  windows = graph.Gather(windows, rows.Places(graph), 2);  // [n, c, kh, height, kw, width]
  windows = graph.Transpose(windows, {0, 1, 2, 4, 3, 5});
  return Tensors{Like(call, image,
                      graph.Reshape(windows, {dims[0], dims[1] * rows.kernel * columns.kernel,
                                              rows.count * columns.count}))};
}

// (self, size of the image, kernel, dilation, padding, stride): what windows have in common is
// added up.
Outputs Col2Im(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Image given, ImageOf(call, 0, 1));
  VPOD_ASSIGN_OR_RETURN(const Dims size, call.PerDimension(1, 2));
  VPOD_ASSIGN_OR_RETURN(const Windowed rows, WindowedOf(call, 2, 0, size[0]));
  VPOD_ASSIGN_OR_RETURN(const Windowed columns, WindowedOf(call, 2, 1, size[1]));
  const Dims dims = call.DimsOf(given.batch);
  const int64_t kernel = rows.kernel * columns.kernel, n = dims[0], channels = dims[1] / kernel;
  if (dims[1] % kernel != 0 || dims[2] != rows.count * columns.count) {
    return call.Refuse(absl::StrCat("the columns are ", call.TypeOf(call.tensor(0)).ToString(),
                                    ", must have a multiple of ", kernel, " elements for ",
                                    rows.count * columns.count, " windows"));
  }
  const int64_t height = size[0] + 2 * rows.padding, width = size[1] + 2 * columns.padding;
  const Tensor windows = graph.Transpose(
      graph.Reshape(call.Wide(given.batch),
                    {n, channels, rows.kernel, columns.kernel, rows.count, columns.count}),
      {0, 1, 2, 4, 3, 5});
  const auto zeros = [&](Dims shape) {
    return graph.Constant({call.TypeOf(windows).type, std::move(shape)}, 0);
  };
  Tensor image =
      graph.Scatter(v1::Scatter::ADD, zeros({n, channels, rows.kernel, rows.count, width}),
                    columns.Places(graph), windows, 4);
  image = graph.Scatter(v1::Scatter::ADD, zeros({n, channels, height, width}), rows.Places(graph),
                        image, 2);
  image =
      graph.Slice(image, {0, 0, rows.padding, columns.padding}, {n, channels, size[0], size[1]});
  return Tensors{Like(call, given, call.Narrow(image, call.tensor(0)))};
}

constexpr char kMax[] = "tensor, ints, ints=[], ints=0, ints=1, bool=false";
constexpr char kMaxBackward[] = "tensor, tensor, ints, ints, ints, ints, bool, tensor";
constexpr char kAverage[] = "tensor, ints, ints=[], ints=0, bool=false, bool=true, int?=None";
constexpr char kAverageBackward[] = "tensor, tensor, ints, ints, ints, bool, bool, int?";

}  // namespace

std::vector<Row> PoolingRows() {
  return {
      {"max_pool2d_with_indices.default", kMax, MaxPool<2>},
      {"max_pool2d_with_indices_backward.default", kMaxBackward, MaxPoolBackward<2>},
      {"max_pool3d_with_indices.default", kMax, MaxPool<3>},
      {"max_pool3d_with_indices_backward.default", kMaxBackward, MaxPoolBackward<3>},
      {"avg_pool2d.default", kAverage, AveragePool<2>},
      {"avg_pool2d_backward.default", kAverageBackward, AveragePoolBackward<2>},
      {"avg_pool3d.default", kAverage, AveragePool<3>},
      {"avg_pool3d_backward.default", kAverageBackward, AveragePoolBackward<3>},
      {"_adaptive_avg_pool2d.default", "tensor, ints", AdaptiveAveragePool<2>},
      {"_adaptive_avg_pool2d_backward.default", "tensor, tensor", AdaptiveAveragePoolBackward<2>},
      {"_adaptive_avg_pool3d.default", "tensor, ints", AdaptiveAveragePool<3>},
      {"_adaptive_avg_pool3d_backward.default", "tensor, tensor", AdaptiveAveragePoolBackward<3>},
      {"adaptive_max_pool2d.default", "tensor, ints", AdaptiveMaxPool<2>},
      {"adaptive_max_pool3d.default", "tensor, ints", AdaptiveMaxPool<3>},
      {"im2col.default", "tensor, ints, ints, ints, ints", Im2Col},
      {"col2im.default", "tensor, ints, ints, ints, ints, ints", Col2Im},
  };
}

}  // namespace vpod::aten

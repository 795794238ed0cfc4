#include "device/program/ops/pooling.h"

#include <optional>
#include <utility>

#include "client/graph/graph.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::graph {

v1::SlidingWindow Graph::Sliding(int rank, uint32_t kernel, uint32_t stride, uint32_t padding,
                                 uint32_t dilation) {
  v1::SlidingWindow window;
  for (int i = 0; i < rank; ++i) {
    window.add_kernel(kernel);
    window.add_stride(stride);
    window.add_dilation(dilation);
    window.add_pad_before(padding);
    window.add_pad_after(padding);
  }
  return window;
}

Tensor Graph::MaxPool(Tensor image, const v1::SlidingWindow& window) {
  return MaxPoolWithIndices(image, window).output;
}

Graph::Pooled Graph::MaxPoolWithIndices(Tensor image, const v1::SlidingWindow& window) {
  v1::Instruction op;
  *op.mutable_max_pool()->mutable_window() = window;
  const std::vector<Tensor> outputs = AddOperation(std::move(op), {image});
  return outputs.empty() ? Pooled{} : Pooled{outputs[0], outputs[1]};
}

Tensor Graph::AveragePool(Tensor image, const v1::SlidingWindow& window, bool count_padding) {
  v1::Instruction op;
  *op.mutable_average_pool()->mutable_window() = window;
  op.mutable_average_pool()->set_count_padding(count_padding);
  return AddSimple(std::move(op), {image});
}

namespace {

// The window that slides over the image where those that divide it are equally long and far apart.
std::optional<v1::SlidingWindow> AsSliding(const TensorType& image, const Dims& size) {
  if (!program::IsImage(image) || size.size() + 2 != image.dims.size()) return {};
  v1::SlidingWindow window;
  for (size_t i = 0; i < size.size(); ++i) {
    const int64_t pixels = image.dims[i + 2], count = size[i];
    if (count < 1 || count > pixels) return {};
    const auto first = program::DividingWindow(pixels, count, 0);
    const int64_t stride = count == 1 ? 1 : program::DividingWindow(pixels, count, 1).begin;
    for (int64_t w = 1; w < count; ++w) {
      const auto [begin, end] = program::DividingWindow(pixels, count, w);
      if (begin != w * stride || end - begin != first.end) return {};
    }
    window.add_kernel(static_cast<uint32_t>(first.end));
    window.add_stride(static_cast<uint32_t>(stride));
    window.add_dilation(1);
    window.add_pad_before(0);
    window.add_pad_after(0);
  }
  return window;
}

}  // namespace

Graph::Pooled Graph::AdaptiveMaxPool(Tensor image, const Dims& size) {
  if (!Usable({image}, "max_pool")) return {};
  if (const auto window = AsSliding(TypeOf(image), size)) return MaxPoolWithIndices(image, *window);
  v1::Instruction op;
  op.mutable_max_pool()->mutable_output_size()->Add(size.begin(), size.end());
  const std::vector<Tensor> outputs = AddOperation(std::move(op), {image});
  return outputs.empty() ? Pooled{} : Pooled{outputs[0], outputs[1]};
}

Tensor Graph::AdaptiveAveragePool(Tensor image, const Dims& size) {
  if (!Usable({image}, "average_pool")) return {};
  if (const auto window = AsSliding(TypeOf(image), size)) return AveragePool(image, *window);
  v1::Instruction op;
  op.mutable_average_pool()->mutable_output_size()->Add(size.begin(), size.end());
  return AddSimple(std::move(op), {image});
}

}  // namespace vpod::graph

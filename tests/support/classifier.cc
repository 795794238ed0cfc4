#include "tests/support/classifier.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace vpod::testing {
namespace {

using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;

graph::Dims Batched(int64_t batch, graph::Dims dims) {
  dims.insert(dims.begin(), batch);
  return dims;
}

}  // namespace

TrainedClassifier AddClassifier(const nn::Builder& net, const Classifier& classifier, int64_t batch,
                                program::v1::DataType type) {
  graph::Graph& graph = net.graph();
  TrainedClassifier trained;
  std::vector<Tensor> inputs;
  for (const auto& [dims, limit] : classifier.inputs) {
    const graph::TensorType stream{limit == 0 ? FLOAT32 : INT32, Batched(batch, dims)};
    trained.streams.push_back({absl::StrCat("input", inputs.size()), stream, limit});
    const Tensor input = graph.Input(trained.streams.back().name, stream);
    inputs.push_back(limit == 0 ? graph.Cast(input, type) : input);
  }
  const graph::TensorType of_labels{INT32, Batched(batch, classifier.labels)};
  trained.streams.push_back({"labels", of_labels, classifier.classes});
  const Tensor labels = graph.Input("labels", of_labels);
  const Tensor logits = graph.Cast(classifier.logits(net, inputs), FLOAT32);
  const int64_t rows = of_labels.elements();
  trained.loss = graph.Mean(graph.SoftmaxCrossEntropy(
      graph.Reshape(logits, {rows, classifier.classes}), graph.Reshape(labels, {rows})));
  graph.Output("loss", trained.loss);
  return trained;
}

void Draw(const RandomStream& stream, std::mt19937_64& random, absl::Span<uint32_t> elements) {
  std::normal_distribution<float> normal;
  for (uint32_t& element : elements) {
    element = stream.limit == 0
                  ? std::bit_cast<uint32_t>(normal(random))
                  : static_cast<uint32_t>(random() % static_cast<uint64_t>(stream.limit));
  }
}

}  // namespace vpod::testing

#include "tests/programs/bits_models.h"

#include "client/models/bert.h"
#include "client/models/efficientnet.h"
#include "client/models/gpt2.h"
#include "client/models/mobilenet.h"
#include "client/models/recurrent.h"
#include "client/models/transformer.h"

namespace vpod::testing {
namespace {

using graph::Graph;
using graph::Tensor;
using Inputs = std::vector<Tensor>;

constexpr int32_t kVocabulary = 100;
constexpr int64_t kTokens = 12;

// Convolutions, batch norms, a residual, a pooling and linear layers.
template <bool kDropout>
Tensor Small(const nn::Builder& net, const Inputs& inputs) {
  Graph& graph = net.graph();
  const auto convolution = [&](const char* name, Tensor x, uint32_t stride) {
    return net.Convolution(name, x, 8, {.kernel = 3, .stride = stride, .padding = 1});
  };
  Tensor x = graph.Relu(net.BatchNorm("bn1", convolution("conv1", inputs[0], 1)));
  if (kDropout) x = graph.Dropout(x, 0.25f);
  const Tensor y = net.BatchNorm("bn2", convolution("conv2", x, 1));
  x = graph.Relu(graph.Add(y, x));
  x = graph.MaxPool(convolution("conv3", x, 2), Graph::Sliding(2, 2, 2));
  x = graph.Unary(program::v1::TANH, net.Linear("fc1", net.Flatten(x), 24));
  if (kDropout) x = graph.Dropout(x, 0.5f);
  return net.Linear("fc2", x, 5);
}

BitsModel SmallModel(Tensor (*logits)(const nn::Builder& net, const Inputs& inputs)) {
  return {.classifier = {.inputs = {{{2, 8, 8}}}, .logits = logits, .classes = 5},
          .optimizer = compiler::SgdOptions{.learning_rate = 0.05f, .momentum = 0.9f},
          .batch = 4,
          .iterations = 3};
}

// Networks of half the width have every kind of block, and take a quarter of the time. Batch norms
// of two elements, as at the end of the network for large images, would multiply the
// gradients until they overflow float16.
Tensor MobileNet(const nn::Builder& net, const Inputs& inputs) {
  return models::MobileNetV2(net, inputs[0], {.width = 0.5, .classes = 10, .small_images = true});
}

Tensor EfficientNet(const nn::Builder& net, const Inputs& inputs) {
  models::EfficientNetOptions options = models::EfficientNetB0();
  options.classes = 10;
  options.small_images = true;
  options.width = options.depth = 0.5;
  return models::EfficientNet(net, inputs[0], options);
}

Tensor Encoder(const nn::Builder& net, const Inputs& inputs) {
  const Tensor tokens = models::TransformerEncoder(net.In("encoder"), inputs[0], {.gelu = true});
  return net.Linear("fc", net.graph().Reduce(program::v1::MEAN, tokens, {1}), 10);
}

Tensor Lstm(const nn::Builder& net, const Inputs& inputs) {
  return models::LstmClassifier(net, inputs[0],
                                {.hidden = 32, .recurrent = {.layers = 2, .dropout = 0.2f}});
}

Tensor Gru(const nn::Builder& net, const Inputs& inputs) {
  return models::GruClassifier(
      net, inputs[0],
      {.vocabulary = kVocabulary,
       .embedding = 24,
       .hidden = 32,
       .recurrent = {.layers = 2, .bidirectional = true, .dropout = 0.2f}});
}

Tensor BertTiny(const nn::Builder& net, const Inputs& inputs) {
  models::BertOptions options = models::BertTiny();
  options.vocabulary = kVocabulary;
  options.positions = kTokens;
  return models::BertForClassification(net, {inputs[0], inputs[1], inputs[2]}, options, 10);
}

Tensor Gpt2(const nn::Builder& net, const Inputs& inputs) {
  return models::Gpt2ForLanguage(
      net, inputs[0],
      {.vocabulary = kVocabulary, .positions = kTokens, .width = 64, .layers = 2, .heads = 4});
}

}  // namespace

// Each has an optimiser that it is usually trained with.
const std::map<std::string, BitsModel>& BitsModels() {
  const Classifier::Input photo{{3, 32, 32}}, features{{kTokens, 24}},
      tokens{{kTokens}, kVocabulary}, flags{{kTokens}, 2};
  const compiler::RmsPropOptions rms_prop{.learning_rate = 0.001f, .momentum = 0.9f};
  const compiler::AdamOptions adam{}, adam_w{.weight_decay = 0.01f, .decoupled_weight_decay = true};
  static const auto* const models = new std::map<std::string, BitsModel>{
      {"small", SmallModel(Small<false>)},
      {"small_dropout", SmallModel(Small<true>)},
      {"mobilenet", {.classifier = {{photo}, MobileNet}, .optimizer = rms_prop, .iterations = 1}},
      {"efficientnet",
       {.classifier = {{photo}, EfficientNet}, .optimizer = rms_prop, .iterations = 1}},
      {"encoder", {{{{{kTokens, 64}}}, Encoder}, adam_w}},
      {"lstm", {{{features}, Lstm}, adam, 1.0f}},
      {"gru", {{{tokens}, Gru}, adam, 1.0f}},
      {"bert_tiny", {{{tokens, flags, flags}, BertTiny}, compiler::LambOptions{}}},
      {"gpt2", {{{tokens}, Gpt2, {kTokens}, kVocabulary}, adam_w, 1.0f}}};
  return *models;
}

}  // namespace vpod::testing

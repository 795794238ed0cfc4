#include <gtest/gtest.h>

#include "client/models/bert.h"
#include "client/models/gpt2.h"
#include "client/models/parameters.h"
#include "client/models/recurrent.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;

Tensor Tokens(Graph& graph, const char* name = "tokens") {
  return graph.Input(name, {INT32, {2, 7}});
}

// The number of parameters is linear in the layers and in the vocabulary, so that small models are
// enough to count those of a large one.
template <class Options, class Build>
int64_t CountOf(const Options& options, const Build& build) {
  const auto count_with = [&](int layers, int64_t vocabulary) {
    Graph graph;
    Options small = options;
    small.layers = layers;
    small.vocabulary = vocabulary;
    build(nn::Builder(graph, {}), Tokens(graph), small);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
    int64_t count = 0;
    Parameters(graph, &count);
    return count;
  };
  const int64_t least = count_with(0, 1);
  return least + options.layers * (count_with(1, 1) - least) +
         (options.vocabulary - 1) * (count_with(0, 2) - least);
}

// The numbers of parameters of the published weights, with the pooler.
TEST(BertTest, HasAsManyParametersAsThePublishedOnes) {
  const auto with_pooler = [](const nn::Builder& net, Tensor tokens, const BertOptions& options) {
    BertPooler(net, Bert(net, {tokens}, options).hidden);
  };
  EXPECT_EQ(CountOf(BertTiny(), with_pooler), 4385920);
  EXPECT_EQ(CountOf(BertBase(), with_pooler), 109482240);
  EXPECT_EQ(CountOf(BertLarge(), with_pooler), 335141888);
  const auto masked = [](const nn::Builder& net, Tensor tokens, const BertOptions& options) {
    BertForMaskedLanguage(net, {tokens}, options);
  };
  EXPECT_EQ(CountOf(BertBase(), masked), 109514298);
}

TEST(BertTest, HasTheNamesOfTheWidelyUsedOne) {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  const BertInputs inputs{Tokens(graph), Tokens(graph, "types"), Tokens(graph, "attended")};
  const Tensor logits = BertForClassification(net, inputs, BertTiny(), 3);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,3]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("bert.embeddings.word_embeddings.weight"), "float32[30522,128]");
  EXPECT_EQ(types.at("bert.embeddings.position_embeddings.weight"), "float32[512,128]");
  EXPECT_EQ(types.at("bert.embeddings.token_type_embeddings.weight"), "float32[2,128]");
  EXPECT_EQ(types.at("bert.embeddings.LayerNorm.bias"), "float32[128]");
  const std::string layer = "bert.encoder.layer.1.";
  EXPECT_EQ(types.at(layer + "attention.self.query.weight"), "float32[128,128]");
  EXPECT_EQ(types.at(layer + "attention.self.key.bias"), "float32[128]");
  EXPECT_EQ(types.at(layer + "attention.self.value.weight"), "float32[128,128]");
  EXPECT_EQ(types.at(layer + "attention.output.dense.weight"), "float32[128,128]");
  EXPECT_EQ(types.at(layer + "attention.output.LayerNorm.weight"), "float32[128]");
  EXPECT_EQ(types.at(layer + "intermediate.dense.weight"), "float32[512,128]");
  EXPECT_EQ(types.at(layer + "output.dense.weight"), "float32[128,512]");
  EXPECT_EQ(types.at(layer + "output.LayerNorm.bias"), "float32[128]");
  EXPECT_EQ(types.at("bert.pooler.dense.weight"), "float32[128,128]");
  EXPECT_EQ(types.at("classifier.weight"), "float32[3,128]");
}

TEST(BertTest, TheMaskedLanguageHeadUsesTheWordEmbeddings) {
  Graph graph;
  const Tensor logits = BertForMaskedLanguage(nn::Builder(graph, {}), {Tokens(graph)}, BertTiny());
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,7,30522]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("cls.predictions.transform.dense.weight"), "float32[128,128]");
  EXPECT_EQ(types.at("cls.predictions.transform.LayerNorm.weight"), "float32[128]");
  EXPECT_EQ(types.at("cls.predictions.bias"), "float32[30522]");
  EXPECT_FALSE(types.contains("cls.predictions.decoder.weight"));
  EXPECT_FALSE(types.contains("bert.pooler.dense.weight"));
}

TEST(BertTest, LayersAreSpreadOverIpus) {
  Graph graph;
  graph.SetIpu(1);
  BertOptions options = BertTiny();
  options.layers = 3;
  options.layers_per_ipu = 2;
  BertForMaskedLanguage(nn::Builder(graph, {}), {Tokens(graph)}, options);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.ipu(), 1u);
  for (Tensor variable : graph.variables()) {
    const graph::Value& value = graph.values()[variable.id];
    const size_t layer = value.name.find("layer.");
    const uint32_t expected = layer == std::string::npos ? 1 : value.name[layer + 6] == '2' ? 3 : 2;
    EXPECT_EQ(value.ipu, expected) << value.name;
  }
}

// IPU 0 has an attention, the next one its feed-forward layer and the rest.
TEST(BertTest, HalfLayersAreDealtToIpus) {
  Graph graph;
  BertOptions options = BertTiny();
  options.half_layers = {1, 3};
  options.predictions = 3;
  const Tensor logits = BertForMaskedLanguage(nn::Builder(graph, {}), {Tokens(graph)}, options);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).dims, (graph::Dims{2, 3, 30522}));
  for (Tensor variable : graph.variables()) {
    const graph::Value& value = graph.values()[variable.id];
    const bool second = value.name.find("layer.1") != std::string::npos ||
                        (value.name.find("layer.0") != std::string::npos &&
                         value.name.find("attention") == std::string::npos);
    EXPECT_EQ(value.ipu, second ? 1u : 0u) << value.name;
  }
  EXPECT_EQ(graph.values()[logits.id].stage, 2u);
}

std::string BertRefusal(const BertOptions& options, graph::Dims attended = {2, 7}) {
  Graph graph;
  const Tensor mask = graph.Input("attended", {INT32, std::move(attended)});
  Bert(nn::Builder(graph, {}), {.tokens = Tokens(graph), .attended = mask}, options);
  return std::string(graph.status().message());
}

TEST(BertTest, OptionsThatDoNotFitAreRefused) {
  BertOptions options = BertTiny();
  options.heads = 3;
  EXPECT_EQ(BertRefusal(options), "bert has 3 heads, must be 1 or more that divide the width 128");
  options = BertTiny();
  options.half_layers = {1, 2};
  EXPECT_EQ(BertRefusal(options), "bert has 4 half layers, 3 are dealt to IPUs");
  options = BertTiny();
  options.positions = 6;
  EXPECT_EQ(BertRefusal(options),
            "the tokens are int32[2,7], must be [batch, tokens] with at most 6 tokens, for which "
            "there are positions");
  EXPECT_EQ(BertRefusal(BertTiny(), {2, 1, 7}),
            "a padding mask needs [batch, tokens] and has int32[2,1,7]");
}

TEST(Gpt2Test, HasAsManyParametersAsThePublishedOnes) {
  const auto model = [](const nn::Builder& net, Tensor tokens, const Gpt2Options& options) {
    Gpt2ForLanguage(net, tokens, options);
  };
  EXPECT_EQ(CountOf(Gpt2Small(), model), 124439808);
  EXPECT_EQ(CountOf(Gpt2Medium(), model), 354823168);
  EXPECT_EQ(CountOf(Gpt2Large(), model), 774030080);
  EXPECT_EQ(CountOf(Gpt2Xl(), model), 1557611200);
}

TEST(Gpt2Test, HasThePublishedNames) {
  Graph graph;
  const Gpt2Options options{.vocabulary = 100, .width = 32, .layers = 2, .heads = 4};
  const Tensor logits =
      Gpt2ForLanguage(nn::Builder(graph, {.training = true}), Tokens(graph), options);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,7,100]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("transformer.wte.weight"), "float32[100,32]");
  EXPECT_EQ(types.at("transformer.wpe.weight"), "float32[1024,32]");
  EXPECT_EQ(types.at("transformer.h.1.ln_1.weight"), "float32[32]");
  EXPECT_EQ(types.at("transformer.h.1.attn.c_attn.weight"), "float32[32,96]");
  EXPECT_EQ(types.at("transformer.h.1.attn.c_proj.bias"), "float32[32]");
  EXPECT_EQ(types.at("transformer.h.1.ln_2.bias"), "float32[32]");
  EXPECT_EQ(types.at("transformer.h.1.mlp.c_fc.weight"), "float32[32,128]");
  EXPECT_EQ(types.at("transformer.h.1.mlp.c_proj.weight"), "float32[128,32]");
  EXPECT_EQ(types.at("transformer.ln_f.weight"), "float32[32]");
  EXPECT_EQ(types.size(), 2u * 12 + 4);
}

TEST(Gpt2Test, HeadsThatDoNotFitAreRefused) {
  Graph graph;
  Gpt2(nn::Builder(graph, {}), Tokens(graph), {.heads = 7});
  EXPECT_EQ(graph.status().message(),
            "gpt2 has 7 heads, must be 1 or more that divide the width 768");
}

TEST(RecurrentClassifierTest, TakesTokensAndFeatures) {
  Graph graph;
  const nn::Builder net(graph, {});
  const Tensor features = graph.Input("features", {FLOAT32, {2, 7, 5}});
  const Tensor logits = LstmClassifier(
      net, features, {.hidden = 8, .recurrent = {.bidirectional = true}, .classes = 3});
  GruClassifier(net.In("other"), Tokens(graph), {.vocabulary = 50, .embedding = 6, .hidden = 8});
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,3]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("lstm.weight_ih_l0_reverse"), "float32[32,5]");
  EXPECT_EQ(types.at("fc.weight"), "float32[3,16]");
  EXPECT_EQ(types.at("other.embedding.weight"), "float32[50,6]");
  EXPECT_EQ(types.at("other.gru.weight_ih_l0"), "float32[24,6]");
  EXPECT_EQ(types.at("other.fc.weight"), "float32[10,8]");
}

}  // namespace
}  // namespace vpod::models

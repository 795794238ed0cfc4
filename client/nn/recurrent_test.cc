#include "client/nn/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::nn {
namespace {

using program::v1::FLOAT32;

std::vector<std::string> Parameters(const Graph& graph) {
  std::vector<std::string> names;
  for (Tensor variable : graph.variables()) {
    names.push_back(
        absl::StrCat(graph.values()[variable.id].name, " ", graph.TypeOf(variable).ToString()));
  }
  return names;
}

TEST(RecurrentTest, NamesAndShapesAreThoseOfPyTorch) {
  Graph graph;
  const Builder net(graph, {});
  const Tensor x = graph.Input("x", {FLOAT32, {2, 5, 3}});
  const Recurrent lstm = Lstm(net, "lstm", x, 4, {.layers = 2, .bidirectional = true});
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(lstm.output).ToString(), "float32[2,5,8]");
  EXPECT_EQ(graph.TypeOf(lstm.last).ToString(), "float32[2,8]");
  EXPECT_EQ(graph.TypeOf(lstm.hidden).ToString(), "float32[4,2,4]");
  EXPECT_EQ(graph.TypeOf(lstm.cell).ToString(), "float32[4,2,4]");
  std::vector<std::string> expected;
  for (const char* layer : {"l0", "l0_reverse", "l1", "l1_reverse"}) {
    const int features = absl::string_view(layer).substr(0, 2) == "l0" ? 3 : 8;
    expected.push_back(absl::StrCat("lstm.weight_ih_", layer, " float32[16,", features, "]"));
    expected.push_back(absl::StrCat("lstm.weight_hh_", layer, " float32[16,4]"));
    expected.push_back(absl::StrCat("lstm.bias_ih_", layer, " float32[16]"));
    expected.push_back(absl::StrCat("lstm.bias_hh_", layer, " float32[16]"));
  }
  EXPECT_EQ(Parameters(graph), expected);
  for (Tensor variable : graph.variables()) {
    for (float value : graph.InitialOf(variable).Values(graph.TypeOf(variable)))
      EXPECT_LE(std::abs(value), 0.5);
  }
  const Recurrent gru = Gru(net, "gru", x, 4);
  EXPECT_EQ(graph.TypeOf(gru.output).ToString(), "float32[2,5,4]");
  EXPECT_FALSE(gru.cell.valid());
  EXPECT_EQ(Parameters(graph)[16], "gru.weight_ih_l0 float32[12,3]");
}

// The product with the input is one for all steps; a step has the one with its state.
TEST(RecurrentTest, AStepHasFewOperations) {
  const auto operations = [](auto layer, int64_t time) {
    Graph graph;
    layer(Builder(graph, {}), "layer", graph.Input("x", {FLOAT32, {2, time, 3}}), 4,
          RecurrentOptions());
    std::map<bool, int> count;  // by whether they are products
    for (const graph::Node& node : graph.nodes()) ++count[node.instruction.has_mat_mul()];
    return count;
  };
  EXPECT_EQ(operations(Lstm, 16)[true], 17);
  EXPECT_EQ(operations(Gru, 16)[true], 17);
  EXPECT_EQ(operations(Lstm, 17)[false] - operations(Lstm, 16)[false], 15);
  EXPECT_EQ(operations(Gru, 17)[false] - operations(Gru, 16)[false], 16);
}

using Sequence = std::vector<std::vector<double>>;  // [time][elements]

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The formulas of torch.nn.LSTM and torch.nn.GRU for a batch of one. `parameters`: weights and
// biases in the order of their names.
struct Reference {
  Sequence outputs;
  std::vector<double> hidden, cell;
};
Reference Unrolled(bool lstm, const Sequence& x, const std::vector<std::vector<float>>& parameters,
                   size_t hidden) {
  const auto times = [](const std::vector<float>& weights, const std::vector<float>& bias,
                        const std::vector<double>& vector) {
    std::vector<double> product(bias.begin(), bias.end());
    for (size_t i = 0; i < product.size(); ++i) {
      for (size_t j = 0; j < vector.size(); ++j)
        product[i] += double{weights[i * vector.size() + j]} * vector[j];
    }
    return product;
  };
  Reference result{{}, std::vector<double>(hidden), std::vector<double>(hidden)};
  for (const std::vector<double>& input : x) {
    const auto a = times(parameters[0], parameters[2], input),
               b = times(parameters[1], parameters[3], result.hidden);
    for (size_t i = 0; i < hidden; ++i) {
      const size_t j = i + hidden, k = j + hidden, l = k + hidden;
      if (lstm) {
        result.cell[i] =
            Sigmoid(a[j] + b[j]) * result.cell[i] + Sigmoid(a[i] + b[i]) * std::tanh(a[k] + b[k]);
        result.hidden[i] = Sigmoid(a[l] + b[l]) * std::tanh(result.cell[i]);
      } else {
        const double candidate = std::tanh(a[k] + Sigmoid(a[i] + b[i]) * b[k]),
                     update = Sigmoid(a[j] + b[j]);
        result.hidden[i] = (1 - update) * candidate + update * result.hidden[i];
      }
    }
    result.outputs.push_back(result.hidden);
  }
  return result;
}

class ValuesTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ValuesTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Lstm" : "Gru"; });

TEST_P(ValuesTest, BothDirectionsFollowTheFormulas) {
  constexpr int64_t kTime = 5, kFeatures = 3, kHidden = 4;
  Graph graph;
  const Builder net(graph, {.seed = 5});
  const Tensor x = graph.Input("x", {FLOAT32, {1, kTime, kFeatures}});
  const Recurrent layer =
      (GetParam() ? Lstm : Gru)(net, "rnn", x, kHidden, {.bidirectional = true});
  graph.Output("output", layer.output);
  graph.Output("last", layer.last);
  graph.Output("hidden", layer.hidden);
  if (GetParam()) graph.Output("cell", layer.cell);
  const auto compiled = compiler::Compile(graph, {.programs = {{.name = "infer"}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
  Sequence sequence(kTime);
  std::vector<double> flat;
  for (int64_t t = 0; t < kTime; ++t) {
    for (int64_t f = 0; f < kFeatures; ++f) {
      flat.push_back(std::sin(static_cast<double>(3 * t + f)));
      sequence[static_cast<size_t>(t)].push_back(flat.back());
    }
  }
  ASSERT_TRUE(session->WriteStream("x", 0, absl::MakeConstSpan(flat)).ok());
  ASSERT_TRUE(session->Run("infer").ok());
  const auto read = [&](const char* name) { return *session->Stream<float>(name, 0); };
  for (bool reverse : {false, true}) {
    std::vector<std::vector<float>> parameters;
    for (const char* name : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
      parameters.push_back(
          *session->ReadFloats(absl::StrCat("rnn.", name, "_l0", reverse ? "_reverse" : "")));
    }
    Sequence input = sequence;
    if (reverse) std::reverse(input.begin(), input.end());
    Reference expected = Unrolled(GetParam(), input, parameters, kHidden);
    if (reverse) std::reverse(expected.outputs.begin(), expected.outputs.end());
    for (size_t i = 0; i < kHidden; ++i) {
      const size_t column = i + (reverse ? kHidden : 0);
      for (size_t t = 0; t < kTime; ++t)
        EXPECT_NEAR(read("output")[t * 2 * kHidden + column], expected.outputs[t][i], 1e-6);
      EXPECT_NEAR(read("last")[column], expected.outputs.back()[i], 1e-6);
      EXPECT_NEAR(read("hidden")[column], expected.hidden[i], 1e-6);
      if (GetParam()) {
        EXPECT_NEAR(read("cell")[column], expected.cell[i], 1e-6);
      }
    }
  }
}

TEST(RecurrentTest, MistakesNameTheLayer) {
  const auto refusal = [](graph::Dims dims, int64_t hidden, int layers) {
    Graph graph;
    Lstm(Builder(graph, {}).In("net"), "lstm", graph.Input("x", {FLOAT32, std::move(dims)}), hidden,
         {.layers = layers});
    return std::string(graph.status().message());
  };
  const std::string start =
      "lstm 'net.lstm' needs [batch, time, features] with elements, a hidden size and layers of 1 "
      "or more, and has ";
  EXPECT_EQ(refusal({2, 3}, 4, 1), start + "float32[2,3], 4 and 1");
  EXPECT_EQ(refusal({2, 3, 5}, 0, 1), start + "float32[2,3,5], 0 and 1");
  EXPECT_EQ(refusal({2, 3, 5}, 4, 0), start + "float32[2,3,5], 4 and 0");
  EXPECT_EQ(refusal({2, 3, 5}, int64_t{1} << 40, 1),
            "parameter 'net.lstm.weight_ih_l0' cannot be float32[4398046511104,5]");
}

}  // namespace
}  // namespace vpod::nn

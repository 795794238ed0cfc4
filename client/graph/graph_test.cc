#include "client/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/graph/scope.h"

namespace vpod::graph {
namespace {

using testing::HasSubstr;
using v1::BOOL;
using v1::FLOAT16;
using v1::FLOAT32;
using v1::INT32;

// Builds something wrong from two sound inputs, float32[2,3] and int32[2].
using Mistake = std::function<Tensor(Graph& graph, Tensor x, Tensor labels)>;

struct NamedMistake {
  std::string message;
  Mistake make;
};

const std::vector<NamedMistake>& Mistakes() {
  static const auto& mistakes = *new std::vector<NamedMistake>{
      {"matmul does not take float32[2,3] and float32[2,3]",
       [](Graph& g, Tensor x, Tensor) { return g.MatMul(x, x); }},
      {"the image is float32[2,3], must be floats [batch, channels, ",
       [](Graph& g, Tensor x, Tensor) { return g.Convolution(x, x, Graph::Sliding(2, 3)); }},
      {"the image is float32[2,3], must be floats ",
       [](Graph& g, Tensor x, Tensor) { return g.MaxPool(x, Graph::Sliding(2, 2, 2)); }},
      {"TANH does not take int32[2]",
       [](Graph& g, Tensor, Tensor labels) { return g.Unary(v1::TANH, labels); }},
      {"ADD does not take float32[2,3] and int32[2]",
       [](Graph& g, Tensor x, Tensor labels) { return g.Add(x, labels); }},
      {"shapes [2,3] and [2] do not broadcast",
       [](Graph& g, Tensor x, Tensor) {
         return g.Add(x, g.Constant({FLOAT32, {2}}, 1));
       }},
      {"axes [2] of float32[2,3] must be 0 to 1 in ascending order, without repetition",
       [](Graph& g, Tensor x, Tensor) { return g.Reduce(v1::SUM, x, {2}); }},
      {"arg-max does not take int32[2]",
       [](Graph& g, Tensor, Tensor labels) { return g.ArgMax(labels); }},
      {"unknown element type 99",
       [](Graph& g, Tensor x, Tensor) { return g.Cast(x, static_cast<v1::DataType>(99)); }},
      {"cannot reshape float32[2,3] to float32[7]",
       [](Graph& g, Tensor x, Tensor) { return g.Reshape(x, {7}); }},
      {"cannot reshape float32[2,3] to float32[-2,-3]",
       [](Graph& g, Tensor x, Tensor) {
         return g.Reshape(x, {-2, -3});
       }},
      {"pass_by: the value is float32[2,3], the source int32[2], must be of one type",
       [](Graph& g, Tensor x, Tensor labels) { return g.PassBy(x, labels); }},
      {"cross-entropy does not take logits float32[2,3] and labels float32[2,3]",
       [](Graph& g, Tensor x, Tensor) { return g.SoftmaxCrossEntropy(x, x); }},
      {"variable 'w' of type float32[2] has 3 initial values",
       [](Graph& g, Tensor, Tensor) {
         return g.Variable("w", {FLOAT32, {2}}, {1, 2, 3});
       }},
      {"variable 'w' of type int32[1]",
       [](Graph& g, Tensor, Tensor) {
         return g.Variable("w", {INT32, {1}}, {1});
       }},
      {"w: dimensions [-1,-1]",
       [](Graph& g, Tensor, Tensor) {
         return g.Variable("w", {FLOAT32, {-1, -1}}, {1});
       }},
      {"w: dimensions [4611686018427387904,4]",
       [](Graph& g, Tensor, Tensor) {
         return g.Variable("w", {FLOAT32, {int64_t{1} << 62, 4}}, {});
       }},
      {"image of type float32[0] has no elements",
       [](Graph& g, Tensor, Tensor) {
         return g.Input("image", {FLOAT32, {0}});
       }},
      {"w of type float32[3,0] has no elements",
       [](Graph& g, Tensor, Tensor) {
         return g.Variable("w", {FLOAT32, {3, 0}}, {});
       }},
      {"the output 'y' of type float32[0,3] has no elements",
       [](Graph& g, Tensor x, Tensor) {
         g.Output("y", g.Slice(x, {2, 0}, {0, 3}));
         return Tensor{};
       }},
      {"the all-reduce of float32[0,3] to float32[0,3] moves no elements",
       [](Graph& g, Tensor x, Tensor) {
         return g.AllReduce(v1::SUM, g.Slice(x, {2, 0}, {0, 3}));
       }},
      {"unknown element type 0",
       [](Graph& g, Tensor, Tensor) {
         return g.Constant({v1::DATA_TYPE_UNSPECIFIED, {}}, 0);
       }},
      {"constant: float32[2] has 8 bytes; 7 given",
       [](Graph& g, Tensor, Tensor) {
         return g.Constant({FLOAT32, {2}}, std::string(7, '\1'));
       }},
      {"constant: a bool is neither 0 nor 1",
       [](Graph& g, Tensor, Tensor) {
         return g.Constant({BOOL, {2}}, std::string("\1\2"));
       }},
      {"the name 'x' is used twice",
       [](Graph& g, Tensor, Tensor) {
         return g.Input("x", {FLOAT32, {2}});
       }},
      {"the name 'w' is used twice",
       [](Graph& g, Tensor, Tensor) {
         g.Variable("w", {FLOAT32, {}}, {1});
         return g.Variable("w", {FLOAT32, {}}, {1});
       }},
      {"inputs and variables need a name",
       [](Graph& g, Tensor, Tensor) {
         return g.Input("", {FLOAT32, {2}});
       }},
      {"add: operand 1 is not a value of this graph",
       [](Graph& g, Tensor x, Tensor) { return g.Add(x, Tensor{}); }},
      {"mat_mul: operand 1 is not a value of this graph",
       [](Graph& g, Tensor x, Tensor) { return g.MatMul(x, Tensor{1000}); }},
  };
  return mistakes;
}

TEST(GraphTest, MistakesAreRememberedAndNamed) {
  for (const auto& [message, make] : Mistakes()) {
    SCOPED_TRACE(message);
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
    const Tensor labels = graph.Input("labels", {INT32, {2}});
    ASSERT_TRUE(graph.status().ok());
    EXPECT_FALSE(make(graph, x, labels).valid());
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(graph.status().message()), HasSubstr(message));
  }
}

TEST(GraphTest, TheFirstMistakeStays) {
  for (const auto& [message, make] : Mistakes()) {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
    const Tensor labels = graph.Input("labels", {INT32, {2}});
    graph.MatMul(x, x);
    const std::string first(graph.status().message());
    make(graph, x, labels);
    EXPECT_EQ(graph.status().message(), first) << message;
  }
}

// Model code goes on with what a mistake returned; every operation has to bear it.
TEST(GraphTest, EverythingBearsTheResultOfAMistake) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  const Tensor bad = graph.MatMul(x, x);
  const std::string first(graph.status().message());
  const size_t nodes = graph.nodes().size();
  graph.Output("y", bad);
  for (Tensor result :
       {graph.MatMul(bad, x), graph.Convolution(x, bad, Graph::Sliding(2, 3)),
        graph.MaxPool(bad, Graph::Sliding(2, 1)), graph.Relu(bad), graph.Add(x, bad),
        graph.Reduce(v1::SUM, bad, {0}), graph.ArgMax(bad), graph.Cast(bad, FLOAT16),
        graph.Reshape(bad, {6}), graph.Stop(bad), graph.PassBy(bad, x), graph.PassBy(x, bad),
        graph.SoftmaxCrossEntropy(x, bad), graph.Mean(bad), graph.Sum(bad),
        graph.ReduceToType(bad, {FLOAT32, {}}), graph.Relu(x)}) {
    EXPECT_FALSE(result.valid());
  }
  const auto gradients = graph.Gradients(bad, {x, bad});
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_FALSE(gradients[0].valid());
  EXPECT_TRUE(graph.outputs().empty());
  EXPECT_EQ(graph.nodes().size(), nodes);
  EXPECT_EQ(graph.status().message(), first);
}

// Inputs and outputs become streams, which are found by name.
TEST(GraphTest, NamesAreUniqueAmongInputsAndOutputs) {
  {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2}});
    graph.Output("x", x);
    EXPECT_EQ(graph.status().message(), "the name 'x' is used twice");
  }
  {
    Graph graph;
    graph.Output("y", graph.Input("x", {FLOAT32, {2}}));
    EXPECT_TRUE(graph.status().ok());
    graph.Input("y", {FLOAT32, {2}});
    EXPECT_EQ(graph.status().message(), "the name 'y' is used twice");
  }
  {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2}});
    graph.Output("y", x);
    graph.Output("y", x);
    EXPECT_EQ(graph.status().message(), "the output 'y' is used twice");
  }
  {
    Graph graph;
    graph.Output("", graph.Input("x", {FLOAT32, {2}}));
    EXPECT_EQ(graph.status().message(), "outputs need a name");
  }
  {
    // Variables are no streams.
    Graph graph;
    graph.Input("x", {FLOAT32, {2}});
    graph.Output("y", graph.Variable("x", {FLOAT32, {}}, {1}));
    graph.Variable("y", {FLOAT32, {}}, {1});
    EXPECT_TRUE(graph.status().ok()) << graph.status();
  }
}

TEST(GraphTest, TypesAreInferred) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3, 8, 8}});
  const Tensor w = graph.Variable("w", {FLOAT32, {4, 3, 3, 3}}, std::vector<float>(108));
  const Tensor y =
      graph.MaxPool(graph.Convolution(x, w, Graph::Sliding(2, 3, 1, 1)), Graph::Sliding(2, 2, 2));
  EXPECT_EQ(graph.TypeOf(y).ToString(), "float32[2,4,4,4]");
  const Tensor flat = graph.Reshape(graph.Cast(y, FLOAT16), {2, 64});
  EXPECT_EQ(graph.TypeOf(flat).ToString(), "float16[2,64]");
  EXPECT_EQ(graph.TypeOf(graph.ArgMax(flat)).ToString(), "int32[2]");
  EXPECT_EQ(graph.TypeOf(graph.Mean(flat)).ToString(), "float16[]");
  EXPECT_EQ(graph.TypeOf(graph.Binary(v1::LESS, flat, flat)).ToString(), "bool[2,64]");
  EXPECT_EQ(graph.Cast(x, FLOAT32), x);  // nothing to do
  EXPECT_TRUE(graph.status().ok()) << graph.status();
}

// As PyTorch allows it; windows that lie in the padding alone give zeros.
TEST(GraphTest, ConvolutionsTakeAnyPadding) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3, 8, 8}});
  const Tensor w = graph.Variable("w", {FLOAT32, {4, 3, 1, 1}}, std::vector<float>(12));
  const Tensor y = graph.Convolution(x, w, Graph::Sliding(2, 1, 1, 2));
  EXPECT_EQ(graph.TypeOf(y).ToString(), "float32[2,4,12,12]");
  EXPECT_TRUE(graph.status().ok()) << graph.status();
}

// Windows that divide the image evenly, or overlap evenly, slide.
TEST(GraphTest, AdaptivePoolingsSlideWhereTheyCan) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3, 8, 6}});
  const auto window_of_last = [&] {
    const v1::AveragePool& op = graph.nodes().back().instruction.average_pool();
    if (!op.has_window()) return std::string("none");
    return absl::StrCat(op.window().kernel(0), "/", op.window().stride(0), " ",
                        op.window().kernel(1), "/", op.window().stride(1));
  };
  EXPECT_EQ(graph.TypeOf(graph.AdaptiveAveragePool(x, {4, 3})).ToString(), "float32[2,3,4,3]");
  EXPECT_EQ(window_of_last(), "2/2 2/2");
  graph.AdaptiveAveragePool(x, {1, 5});
  EXPECT_EQ(window_of_last(), "8/1 2/1");
  EXPECT_EQ(graph.TypeOf(graph.AdaptiveAveragePool(x, {3, 6})).ToString(), "float32[2,3,3,6]");
  EXPECT_EQ(window_of_last(), "none");
  graph.AdaptiveAveragePool(x, {8, 9});
  EXPECT_EQ(window_of_last(), "none");
  const auto [output, indices] = graph.AdaptiveMaxPool(x, {3, 6});
  EXPECT_EQ(graph.TypeOf(output).ToString(), "float32[2,3,3,6]");
  EXPECT_EQ(graph.TypeOf(indices).ToString(), "int32[2,3,3,6]");
  EXPECT_TRUE(graph.status().ok()) << graph.status();
  graph.AdaptiveAveragePool(x, {3});
  EXPECT_THAT(std::string(graph.status().message()),
              HasSubstr("output size [3] of float32[2,3,8,6] needs an entry of 1 or more"));
}

TEST(GraphTest, ValuesAndOperationsBelongToTheIpuThatWasSet) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  graph.SetIpu(3);
  const Tensor w = graph.Variable("w", {FLOAT32, {3}}, {1, 2, 3});
  const Tensor y = graph.Multiply(x, w);
  graph.SetIpu(1);
  // A reshape moves no bytes: it stays where its source is.
  const Tensor flat = graph.Reshape(y, {6});
  EXPECT_EQ(graph.values()[x.id].ipu, 0u);
  EXPECT_EQ(graph.values()[w.id].ipu, 3u);
  EXPECT_EQ(graph.values()[y.id].ipu, 3u);
  EXPECT_EQ(graph.nodes().back().ipu, 3u);
  EXPECT_EQ(graph.values()[flat.id].ipu, 3u);
  // Taking gradients leaves the setting as it was.
  graph.Gradients(graph.Sum(flat), {x, w});
  EXPECT_EQ(graph.values()[graph.Relu(y).id].ipu, 1u);
}

std::string Bytes(const auto&... elements) {
  std::string bytes;
  const auto add = [&](const auto& element) {
    bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
  };
  (add(elements), ...);
  return bytes;
}

TEST(GraphTest, EqualConstantsAreOneValue) {
  Graph graph;
  const std::string bytes = Bytes(1.0f, 2.0f);
  const Tensor a = graph.Constant({FLOAT32, {2}}, bytes);
  EXPECT_EQ(*graph.values()[a.id].elements, bytes);
  EXPECT_EQ(graph.Constant({FLOAT32, {2}}, bytes), a);
  EXPECT_NE(graph.Constant({FLOAT32, {1, 2}}, bytes), a);
  EXPECT_NE(graph.Constant({FLOAT32, {2}}, Bytes(2.0f, 1.0f)), a);
  EXPECT_NE(graph.Constant({INT32, {2}}, bytes), a);
  graph.SetIpu(1);
  const Tensor there = graph.Constant({FLOAT32, {2}}, bytes);
  EXPECT_NE(there, a);
  EXPECT_EQ(graph.values()[there.id].ipu, 1u);
  graph.SetStage(1);
  EXPECT_NE(graph.Constant({FLOAT32, {2}}, bytes), there);
  EXPECT_TRUE(graph.status().ok()) << graph.status();
}

TEST(GraphTest, EqualElementsAreOneNumber) {
  Graph graph;
  const auto number = [&](v1::DataType type, const std::string& bytes) {
    const auto elements = static_cast<int64_t>(bytes.size() / program::SizeOf(type));
    const Value& value = graph.values()[graph.Constant({type, {elements}}, bytes).id];
    EXPECT_EQ(value.elements, nullptr);
    return value.constant;
  };
  EXPECT_EQ(number(FLOAT32, Bytes(1.5f, 1.5f, 1.5f)), 1.5);
  EXPECT_TRUE(std::signbit(number(FLOAT32, Bytes(-0.0f, -0.0f))));
  EXPECT_EQ(number(FLOAT16, Bytes(uint16_t{0xc000})), -2);
  EXPECT_EQ(number(INT32, Bytes(int32_t{-5}, int32_t{-5})), -5);
  EXPECT_EQ(number(v1::UINT32, Bytes(0xfffffffeu)), 4294967294.0);
  EXPECT_EQ(number(v1::INT8, Bytes(int8_t{-128})), -128);
  EXPECT_EQ(number(v1::UINT16, Bytes(uint16_t{65535})), 65535);
  EXPECT_EQ(number(BOOL, Bytes(true, true)), 1);
  EXPECT_EQ(number(FLOAT32, ""), 0);
  const float nan = std::nanf("1");
  EXPECT_NE(graph.values()[graph.Constant({FLOAT32, {1}}, Bytes(nan)).id].elements, nullptr);
  EXPECT_NE(graph.values()[graph.Constant({FLOAT32, {2}}, Bytes(0.0f, -0.0f)).id].elements,
            nullptr);
  EXPECT_TRUE(graph.status().ok()) << graph.status();
}

TEST(GraphTest, GradientsComeInTheTypeOfWhatWasWanted) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  const Tensor w = graph.Variable("w", {FLOAT16, {3}}, {1, 2, 3});
  const Tensor n = graph.Input("n", {INT32, {2}});
  const Tensor y = graph.Multiply(graph.Cast(x, FLOAT16), w);
  for (Tensor loss : {graph.Sum(y), y, graph.Cast(graph.Mean(y), FLOAT32)}) {
    const auto gradients = graph.Gradients(loss, {x, w, n, y, loss});
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    EXPECT_EQ(graph.TypeOf(gradients[0]).ToString(), "float32[2,3]");
    EXPECT_EQ(graph.TypeOf(gradients[1]).ToString(), "float16[3]");
    EXPECT_FALSE(gradients[2].valid());  // the loss does not depend on it
    EXPECT_EQ(graph.TypeOf(gradients[3]).ToString(), "float16[2,3]");
    EXPECT_EQ(graph.TypeOf(gradients[4]), graph.TypeOf(loss));
  }
}

std::vector<std::string> NamesOfNodes(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes())
    names.push_back(program::NameOf(graph.origins().at(node.origin)));
  return names;
}

TEST(GraphTest, OperationsBelongToScopes) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  graph.Relu(x);
  {
    const Graph::Scope layer(graph, "layer1");
    {
      const Graph::Scope block(graph, "0");
      graph.Add(x, x);
      const Graph::Scope other = Graph::Scope::At(graph, "other");
      graph.MatMul(x, x, false, true);
    }
    graph.Sum(x);
  }
  graph.Add(x, x);
  EXPECT_EQ(NamesOfNodes(graph),
            (std::vector<std::string>{"relu", "add 'layer1.0'", "mat_mul 'other'", "sum 'layer1'",
                                      "add"}));
  EXPECT_EQ(graph.scope(), "");
}

TEST(GraphTest, APartOfAScopeIsNamedAfterBoth) {
  EXPECT_EQ(InScope("layer1", "0"), "layer1.0");
  EXPECT_EQ(InScope("", "layer1"), "layer1");
  EXPECT_EQ(InScope("layer1", ""), "layer1");
}

TEST(GraphTest, StateIsNamedWithItsScope) {
  Graph graph;
  const TensorType type{FLOAT32, {1}};
  {
    const Graph::Scope layer(graph, "block2"), part(graph, "l2");
    graph.Variable("weight", type, {1});
    graph.Buffer("mean", type, {1});
    graph.Dropout(graph.Input("x", type), 0.5f);  // adds random state, which is the job's
  }
  graph.Variable("weight", type, {1});
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  std::vector<std::string> names;
  for (const std::vector<Tensor>& state : {graph.variables(), graph.buffers(), graph.inputs()}) {
    for (Tensor tensor : state) names.push_back(graph.values()[tensor.id].name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"block2.l2.weight", "weight", "block2.l2.mean",
                                             "random/seed", "random/counter", "x"}));
  const Graph::Scope layer(graph, "block2");
  graph.Variable("", type, {1});
  EXPECT_EQ(graph.status().message(), "inputs and variables need a name");
}

TEST(GraphTest, GradientsBelongToWhatTheyAreTheGradientOf) {
  Graph graph;
  Tensor x = graph.Variable("x", {FLOAT32, {2}}, {1, 2}), loss;
  {
    const Graph::Scope scope(graph, "layer");
    loss = graph.Sum(graph.Unary(v1::TANH, x));
  }
  const size_t forward = graph.nodes().size();
  graph.Gradients(loss, {x});
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  const std::vector<std::string> names = NamesOfNodes(graph);
  const std::set<std::string> backward(names.begin() + static_cast<long>(forward), names.end());
  EXPECT_EQ(backward, (std::set<std::string>{"sum 'layer' (backward)", "tanh 'layer' (backward)"}));
}

TEST(GraphTest, OriginsCanBeShownOnALine) {
  Graph graph;
  const Graph::Scope scope(graph, "a\nb" + std::string(1000, 'x'));
  graph.Relu(graph.Input("x", {FLOAT32, {2}}));
  const v1::Origin& origin = graph.origins().at(graph.nodes()[0].origin);
  EXPECT_LE(origin.scope().size(), program::kMostOriginBytes);
  EXPECT_THAT(origin.scope(), testing::StartsWith("a\xef\xbf\xbd"
                                                  "bxxx"));
}

TEST(GraphTest, GradientsRefuseIntegerLossesAndForeignValues) {
  {
    Graph graph;
    const Tensor n = graph.Input("n", {INT32, {2}});
    EXPECT_FALSE(graph.Gradients(n, {n})[0].valid());
    EXPECT_EQ(graph.status().message(), "gradients: the loss is int32[2], must be floats");
  }
  for (Tensor foreign : {Tensor{}, Tensor{1000}}) {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2}});
    EXPECT_FALSE(graph.Gradients(graph.Sum(x), {x, foreign})[1].valid());
    EXPECT_EQ(graph.status().message(), "gradients: operand 0 is not a value of this graph");
  }
}

}  // namespace
}  // namespace vpod::graph
